"""An index with dense vectors in fewer bits or with ANN indexes of faiss: its life, its damage, its recall."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from conftest import Cli
from scattered import Scattered
from vizsla import Index, VectorIndex, VizslaError
from vizsla.engine import convert_rows
from vizsla.errors import CollectionError
from vizsla.index import measure_recall, verify

pytestmark = pytest.mark.usefixtures("few_documents")


def documents_of(numbers: Sequence[int], turn: int = 0) -> list[dict[str, Any]]:
    """Documents of two words of their own; document 0 is empty."""
    return [{"id": str(i), "text": f"w{i % 97} v{i}x{turn}" if i else " ", "year": 1900 + i % 100} for i in numbers]


def exhaustive(documents: dict[str, dict[str, Any]], query: str, form: str = "float32") -> list[tuple[str, float]]:
    """All documents by their scores, computed from their texts."""
    model = Scattered()
    some = {i: d for i, d in documents.items() if d["text"].strip()}
    rows = convert_rows(model.document_embeddings([d["text"] for d in some.values()])[0], form)[:].astype(np.float64)
    (vector,) = model.query_embeddings([query])[0]
    scores = np.einsum("ij,j->i", rows, vector).astype(np.float32)
    return sorted(zip(some, scores.tolist(), strict=True), key=lambda pair: -pair[1])


def pairs_of(hits: Sequence[Any]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


@pytest.mark.parametrize(
    "kind",
    [
        "float16",
        "sq8",
        "hnsw(min_documents=300)",
        "hnsw(min_documents=300, store=sq8)",
        "ivf(min_documents=300, nlist=8, nprobe=8)",
        "pq(min_documents=300, nbits=4, oversample=50, store=float16)",
    ],
)
def test_the_life_of_an_index(kind: str, tmp_path: Path) -> None:
    parsed = VectorIndex.parse(kind)
    living: dict[str, dict[str, Any]] = {}

    def check(index: Index, built: int) -> None:
        expected = {q: exhaustive(living, q, parsed.store) for q in ("w5", "w9 w80", "v500x0")}
        for query, ranking in expected.items():
            scores = dict(ranking)
            assert pairs_of(index.search(query, 20, search_params="exact")) == ranking[:20]
            found = pairs_of(index.search(query, 20))
            assert len(found) == 20
            assert all(scores[d] == score for d, score in found)
            assert len(set(found) & set(ranking[:20])) >= (20 if not parsed.is_approximate else 14)
            late = pairs_of(index.search(query, 20, "year >= 1950"))
            assert all(living[d]["year"] >= 1950 and scores[d] == score for d, score in late)
            wanted = [(d, score) for d, score in ranking if living[d]["year"] >= 1950][:20]
            assert len(set(late) & set(wanted)) >= (20 if not parsed.is_approximate else 14)
            assert index.explain(query, found[0][0]).score == pytest.approx(found[0][1], rel=1e-5)
        facts = index.info()["dense"]
        assert (facts["kind"], facts["built_segments"] if parsed.is_approximate else built) == (str(parsed), built)
        assert verify(index.path) == []

    with Index.create(tmp_path / "i", Scattered(), vector_index=kind) as index:
        for start in (0, 650):
            new = documents_of(range(start, start + 650))
            index.add(new)
            index.commit()
            living |= {d["id"]: d for d in new}
        check(index, 2)
        index.add(documents_of(range(5, 95, 3), 1))  # replaced, in a segment too small for an ANN index
        index.delete([str(i) for i in range(900, 1000)])
        index.commit()
        living |= {d["id"]: d for d in documents_of(range(5, 95, 3), 1)}
        living = {i: d for i, d in living.items() if not 900 <= int(i) < 1000}
        check(index, 2)
    with Index.open(tmp_path / "i") as index:
        check(index, 2)
        index.compact()
        check(index, 1)
        assert index.info()["segments"] == 1


def test_the_kind_can_be_changed(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with Index.create(folder, Scattered()) as index:
        index.add(documents_of(range(1500)))
        index.commit()
        exact = pairs_of(index.search("w5 w7", 30))
        plain = index.info()["dense"]["vector_bytes"]
    code, _, said = cli("compact", folder, "--vector-index", "hnsw(min_documents=100)")
    assert code == 0, said
    with Index.open(folder) as index:
        assert index.info()["dense"]["built"] == ["HNSW32_SQ8 100"]
        files = set(folder.rglob("*.faiss"))
        index.compact("hnsw(min_documents=100, ef_search=90)")  # another search parameter: nothing is built
        assert set(folder.rglob("*.faiss")) == files
        assert len(set(pairs_of(index.search("w5 w7", 30))) & set(exact)) > 25
        index.compact("ivf(min_documents=100, nlist=10, store=float16)")
        assert index.info()["dense"]["built"] == ["IVF10,SQ8"]
        assert index.info()["dense"]["vector_bytes"] == plain // 2
        with pytest.raises(VizslaError, match="stored in float16, and what float32 would have is lost"):
            index.compact("exact")
        index.compact("sq8")
        assert not list(folder.rglob("*.faiss"))
        assert index.info()["dense"]["vector_bytes"] == plain // 4 + 4 * 1500
        assert verify(index.path) == []
    code, out, _ = cli("info", folder)
    assert (code, "sq8, 18.0 kB in sq8" in out) == (0, True), out
    code, _, said = cli("compact", folder, "--vector-index", "hnws")
    assert (code, "did you mean 'hnsw'?" in said) == (2, True)


def test_small_segments_are_searched_exactly_and_info_says_so(cli: Cli, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", Scattered(), vector_index="ivf(nlist=64)") as index:
        index.add(documents_of(range(200)))
        index.commit()
        ranking = exhaustive({d["id"]: d for d in documents_of(range(200))}, "w5")
        assert pairs_of(index.search("w5", 200)) == ranking
    _, out, _ = cli("info", tmp_path / "i")
    assert "1 segment too small for it, searched exactly" in " ".join(out.split())


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "i", Scattered(), vector_index="ivf(min_documents=100, nlist=16, nprobe=1)") as index:
        index.add(documents_of(range(1200)))
        index.commit()
        yield index


def test_a_damaged_structure(cli: Cli, built: Index) -> None:
    (file,) = built.path.rglob("*.faiss")
    sound = file.read_bytes()
    file.unlink()
    file.write_bytes(sound[: len(sound) // 2] + bytes([sound[len(sound) // 2] ^ 1]) + sound[len(sound) // 2 + 1 :])
    with Index.open(built.path) as index:
        with pytest.raises(CollectionError, match=r"near_0-1\.faiss is damaged: its content is not what was written"):
            index.search("w5")
        assert len(index.search("w5", search_params="exact")) == 10
        (problem,) = verify(index.path)
        assert "near_0-1.faiss is damaged" in problem
    code, _, said = cli("search", built.path, "w5")
    assert (code, said.count("\n"), "is damaged" in said) == (2, 1, True)
    file.write_bytes(sound[:-1])
    with pytest.raises(CollectionError, match="is damaged: it has"):
        Index.open(built.path)
    file.unlink()
    with pytest.raises(CollectionError, match=r"near_0-1\.faiss is missing"):
        Index.open(built.path)


def test_readers_keep_the_structure_they_have(built: Index) -> None:
    with Index.open(built.path) as reader:
        built.compact("hnsw(min_documents=100)")
        assert len(reader.search("w5")) == 10  # opened only now, though its file is gone
        assert reader.info()["dense"]["kind"].startswith("ivf")


def test_without_faiss(built: Index, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with Index.open(built.path) as index:
        with pytest.raises(VizslaError, match=r"needs faiss, which is not installed; get it with: pip install"):
            index.search("w5")
        assert len(index.search("w5", search_params="exact")) == 10
        assert index.info()["dense"]["built_segments"] == 1
    with pytest.raises(VizslaError, match="hnsw needs faiss"):
        Index.create(tmp_path / "n", Scattered(), vector_index="hnsw")
    assert not (tmp_path / "n").exists()
    with Index.create(tmp_path / "n", Scattered(), vector_index="sq8") as index:  # needs none
        index.add(documents_of(range(20)))
        index.commit()
        assert len(index.search("w5")) == 10
    assert cli("info", built.path)[0] == 0


def test_what_cannot_be(built: Index, tmp_path: Path) -> None:
    for model, kind, problem in (
        ("bm25", "hnsw", "hnsw is for dense vectors, and bm25 has no dense part"),
        (Scattered(), "pq(m=3)", "cannot be cut into 3 equal parts"),
    ):
        with pytest.raises(VizslaError, match=problem):
            Index.create(tmp_path / "n", model, vector_index=kind)
    not_numbers = "scattered makes vectors with numbers that are NaN"
    with Index.create(tmp_path / "n", Scattered()) as index, pytest.raises(VizslaError, match=not_numbers):
        index.add([{"id": "1", "text": "nan"}])
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        with pytest.raises(VizslaError, match="needs a GPU and a GPU build of faiss"):
            built.search("w5", search_params="device=gpu")
    with pytest.raises(VizslaError, match="ivf does not take the option ef_search"):
        built.search("w5", search_params="ef_search=3")


class OnGpu:
    """Stands for faiss's index on a GPU: it takes no parameters, and finds no more than it can."""

    def __init__(self, index: Any) -> None:
        self._index, self.ntotal, self.nprobe = index, index.ntotal, 1

    def search(self, asked: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        assert count <= 2048
        scores, found = self._index.search(asked, count, params=faiss.SearchParametersIVF(nprobe=self.nprobe))
        return scores, found


def test_the_way_to_a_gpu_with_the_gpu_faked(built: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is masked falls out of what a GPU finds, which knows no masks; on a device that is not one."""
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda _, __, index: OnGpu(index), raising=False)
    built.delete([str(i) for i in range(100, 200)])
    built.commit()
    for filter in (None, "year >= 1950"):
        exact = pairs_of(built.search("w5 w7", 10, filter, search_params="exact"))
        assert (
            pairs_of(built.search("w5 w7", 10, filter, search_params="nprobe=16, oversample=20, device=gpu")) == exact
        )
    monkeypatch.setattr("vizsla.engine.vector_indexes.faiss_indexes._MAX_ON_GPU", 64)
    with pytest.raises(VizslaError, match="a GPU finds at most 64 candidates, not 200"):
        built.search("w5 w7", 10, search_params="oversample=20, device=gpu")
    with pytest.raises(VizslaError, match="hnsw does not take the option device"):
        VectorIndex.parse("hnsw(device=gpu)")


def test_recall_is_printed(built: Index, cli: Cli, tmp_path: Path) -> None:
    queries = tmp_path / "queries.tsv"
    queries.write_text("".join(f"{i}\tw{i} v{i}x0\n" for i in range(30)))
    command = ("vectors", "recall", built.path, "--queries", queries, "-k", 5)
    code, out, said = cli(
        *command, "--json", "--search-params", "nprobe=1", "--search-params", "nprobe=16, oversample=300"
    )
    assert code == 0, said
    exact, little, much = json.loads(out)["settings"]
    assert (exact["search_params"], exact["recall"], exact["ratio"]) == ("exact", 1.0, 1.0)
    assert little["recall"] < much["recall"] == 1.0
    with Index.open(built.path) as index:
        shares = []
        for i in range(30):
            query = f"w{i} v{i}x0"
            found = {hit.id for hit in index.search(query, 5)}
            shares.append(len(found & {hit.id for hit in index.search(query, 5, search_params="exact")}) / 5)
        assert little["recall"] == pytest.approx(np.mean(shares))
    code, out, _ = cli(*command)
    assert (code, "recall@5" in out, "ivf(nlist=16, nprobe=1, min_documents=100)" in out) == (0, True, True)
    with Index.create(tmp_path / "b", "bm25") as index, pytest.raises(VizslaError, match="bm25 has 0"):
        measure_recall(index, ["w5"], ["exact"])
