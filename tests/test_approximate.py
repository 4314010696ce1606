"""Dense vectors in fewer bits, and structures of faiss's over them: scores are exact, recall and damage are told."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from scattered import WIDTH, Scattered
from vizsla.engine import (
    DenseKind,
    Query,
    Segment,
    Structure,
    Weighting,
    Weightings,
    build_segment,
    search_many,
    stored,
)
from vizsla.engine.nearest import build_structure
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import Index
from vizsla.index.files import hash_file

faiss = pytest.importorskip("faiss")
NOTHING = np.zeros(0, np.int64)
STRUCTURES = (
    "hnsw(least=1)",
    "hnsw(least=1, codes=float32, links=8)",
    "ivf(least=1, lists=4)",
    "ivf(least=1, lists=3, probes=3, codes=float16)",
    "ivf(least=1, lists=2, probes=2, codes=pq, bits=4, parts=4)",
    "pq(least=1, bits=4, parts=8)",
)


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """Collections are small here, so that a mask names few documents only where it names very few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vizsla.engine.nearest._FEW", 60)
        yield


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    centres = rng.normal(size=(6, WIDTH))
    return (centres[rng.integers(0, 6, n)] + 0.3 * rng.normal(size=(n, WIDTH))).astype(np.float32)


def segment_of(vectors: Any, there: np.ndarray, first: int = 0) -> Segment:
    n = len(vectors)
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    sizes = there.astype(np.int64)[None]
    return build_segment(np.arange(first, first + n), np.zeros((1, n), np.int64), sizes, *rows, {0: vectors})


def with_structure(segment: Segment, kind: DenseKind, folder: Path) -> Segment:
    built = kind.structure(len(segment), WIDTH)
    assert built is not None, "the kind must fit so few vectors"
    file = folder / f"{abs(hash((built, len(segment), int(segment.numbers[0]))))}.faiss"
    build_structure(kind, built, segment.dense[0], file)
    return replace(segment, near={0: Structure(np.fromfile(file, np.uint8), hash_file(file), built, file.name)})


def scored(segments: Sequence[Segment], vector: np.ndarray, masks: Sequence[np.ndarray | None]) -> dict[int, float]:
    """Every document that can be found and its score, by the plainest way there is."""
    found = {}
    for segment, mask in zip(segments, masks, strict=True):
        values = np.einsum("ij,j->i", segment.dense[0][:].astype(np.float64), vector).astype(np.float32)
        allowed = (segment.sizes[0] > 0) & (True if mask is None else mask)
        found |= {int(segment.numbers[d]): float(values[d]) for d in np.flatnonzero(allowed)}
    return found


def best(scores: dict[int, float], k: int) -> list[tuple[int, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@settings(max_examples=50)
@given(data=st.data())
def test_fewer_bits_are_searched_exactly(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    form = data.draw(st.sampled_from(("float16", "sq8")))
    segments, masks, first = [], [], 0
    for n in data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        there = rng.random(n) < 0.9
        vectors = clustered(rng, n) * rng.choice([1e-6, 1.0, 50.0], (n, 1)).astype(np.float32) * there[:, None]
        segments.append(segment_of(stored(vectors.astype(np.float32), form), there, first))
        masks.append(None if data.draw(st.booleans()) else rng.random(n) < 0.6)
        first += n
    k = data.draw(st.integers(1, 60))
    asked = rng.normal(size=(data.draw(st.sampled_from((1, 3, 9))), WIDTH))  # the kernel, and the product of matrices
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    hits = search_many(segments, queries, Weightings.pack([Weighting()]), k, masks)
    for vector, found in zip(asked, hits, strict=True):
        pairs = list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))
        assert pairs == best(scored(segments, vector, masks), k)


@given(st.integers(0, 10_000))
def test_vectors_in_fewer_bits_are_near_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(20, WIDTH)) * rng.choice([1e-3, 1.0, 100.0], (20, 1))).astype(np.float32)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(stored(rows, "sq8")[:] - rows) <= largest / 127 * 0.5001).all()
    half = stored(rows, "float16")
    assert np.array_equal(half[:].astype(np.float32), rows.astype(np.float16).astype(np.float32))
    assert stored(half, "float16") is half
    with pytest.raises(VizslaError, match="too large for float16"):
        stored(rows * np.float32(1e9), "float16")


@pytest.fixture(scope="module")
def built_segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Segment]]:
    """For each kind three segments, the middle one too small for a structure; some documents have no vector."""
    rng, folder, made = np.random.default_rng(0), tmp_path_factory.mktemp("built"), {}
    for text in STRUCTURES:
        segments, first = [], 0
        for n in (900, 40, 700):
            there = rng.random(n) < 0.95
            vectors = clustered(rng, n) * there[:, None]
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            segment = segment_of(vectors, there, first)
            segments.append(segment if n < 100 else with_structure(segment, DenseKind.parse(text), folder))
            first += n
        made[text] = segments
    return made


@settings(max_examples=80)
@given(data=st.data())
def test_a_structure_finds_what_may_be_found_with_its_own_score(
    data: st.DataObject, built_segments: dict[str, list[Segment]]
) -> None:
    """Through masks of all sizes, those that name few documents and those that are searched by faiss."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    kind = data.draw(st.sampled_from(STRUCTURES))
    segments = built_segments[kind]
    masks: list[np.ndarray | None] = [
        None if data.draw(st.booleans()) else rng.random(len(segment)) < data.draw(st.sampled_from((0.02, 0.3, 0.9)))
        for segment in segments
    ]
    k = data.draw(st.sampled_from((1, 10, 50)))
    asked = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    hits = search_many(segments, queries, Weightings.pack([Weighting()]), k, masks, effort=DenseKind.parse(kind))
    for vector, found in zip(asked, hits, strict=True):
        scores = scored(segments, vector, masks)
        pairs = list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))
        assert all(scores[number] == score for number, score in pairs)  # no other document, no other score
        assert pairs == best(dict(pairs), k)
        assert len(pairs) == min(k, len(scores)) or kind.startswith(("ivf", "pq"))  # lists may be all masked


@pytest.mark.parametrize("kind", STRUCTURES)
def test_most_of_the_best_are_found(kind: str, built_segments: dict[str, list[Segment]]) -> None:
    rng, shares = np.random.default_rng(1), []
    for _ in range(60):
        vector = rng.normal(size=WIDTH)
        query = Query(NOTHING, NOTHING, np.zeros(0), {0: vector})
        (exact,), (found,) = (
            search_many(built_segments[kind], [query], Weightings.pack([Weighting()]), 10, effort=effort)
            for effort in (None, DenseKind.parse(kind))
        )
        shares.append(len(np.intersect1d(exact.numbers, found.numbers)) / 10)
    assert np.mean(shares) > (0.8 if DenseKind.parse(kind).product_codes else 0.95)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), rare=st.booleans())
def test_with_enough_effort_everything_is_found(
    seed: int, rare: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All lists looked through, and as many candidates as there are documents; or so few allowed that all are."""
    rng = np.random.default_rng(seed)
    kind = DenseKind.parse("pq(least=1, bits=4)" if rare else "ivf(least=1, lists=5, probes=5, oversample=1000)")
    segment = segment_of(clustered(rng, 1500), np.ones(1500, bool))
    masks: list[np.ndarray | None] = [rng.random(1500) < (0.015 if rare else 0.9)]
    asked = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    built = with_structure(segment, kind, tmp_path_factory.mktemp("built"))
    hits = search_many([built], queries, Weightings.pack([Weighting()]), 10, masks, effort=kind)
    for vector, found in zip(asked, hits, strict=True):
        expected = best(scored([segment], vector, masks), 10)
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == expected


def test_terms_beside_vectors_are_searched_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = clustered(rng, 500)
    nothing = np.zeros(500, np.int64)
    pointers = np.concatenate([np.arange(501), np.full(500, 500)])
    rows = pointers, nothing, np.ones(500, np.int64)
    segment = build_segment(
        np.arange(500), np.zeros((2, 500), np.int64), np.ones((2, 500), np.int64), *rows, {1: vectors}
    )
    kind = DenseKind.parse("ivf(least=1, lists=8, probes=1, oversample=1)")
    file = tmp_path / "built.faiss"
    build_structure(kind, "IVF8,SQ8", vectors, file)
    near = replace(segment, near={1: Structure(np.fromfile(file, np.uint8), hash_file(file), "IVF8,SQ8", "built")})
    query = Query(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1), {1: rng.normal(size=WIDTH)})
    weightings = Weightings.pack([Weighting(), Weighting()])
    (exact,) = search_many([segment], [query], weightings, 100)
    (found,) = search_many([near], [query], weightings, 100, effort=kind)
    assert found.numbers.tolist() == exact.numbers.tolist()


KIND = st.builds(
    DenseKind,
    name=st.sampled_from(("exact", "hnsw", "ivf", "pq")),
    ef=st.integers(1, 500),
    probes=st.integers(1, 500),
    lists=st.integers(0, 500),
    store=st.sampled_from(("float32", "float16", "sq8")),
    oversample=st.integers(0, 9),
    codes=st.sampled_from(("float32", "float16", "sq8")),
)


@given(KIND)
def test_a_kind_is_printed_as_it_is_read(kind: DenseKind) -> None:
    again = DenseKind.parse(str(kind))
    assert str(again) == str(kind)
    for n in (100, 20_000):
        assert again.structure(n, 384) == kind.structure(n, 384)
    assert again.candidates(10) == kind.candidates(10) or kind.name == "exact"


def test_what_is_no_kind() -> None:
    for text, problem in (
        ("hsnw", "did you mean 'hnsw'"),
        ("hnsw(efs=3)", "no option of hnsw called 'efs'"),
        ("hnsw(ef=many)", "'many' is no whole number for ef"),
        ("hnsw(ef)", "expected name=value"),
        ("ivf(probes=0)", "probes of ivf goes from 1"),
        ("ivf(codes=sq4)", "no codes called 'sq4'"),
        ("hnsw(codes=pq)", "no codes called 'pq'"),
        ("sq8(bits=4)", "sq8 takes no options"),
        ("ivf(store=sq9)", "no form to store vectors in"),
        ("ivf((", "is no kind of dense search"),
        ("ivf(device=tpu)", "no device called 'tpu'"),
    ):
        with pytest.raises(VizslaError, match=problem.replace("(", r"\(")):
            DenseKind.parse(text)
    with pytest.raises(VizslaError, match="cannot be cut into 7 equal parts"):
        DenseKind.parse("pq(parts=7)").check_width(16)
    own = DenseKind.parse("ivf(lists=10)")
    for text, problem in (
        ("hnsw(ef=3)", "cannot be searched by hnsw"),
        ("lists=20", "lists is a matter of how the index is built"),
        ("ef=20", "no option of ivf called 'ef'"),
    ):
        with pytest.raises(VizslaError, match=problem):
            own.asked(text)
    assert own.asked("ivf(lists=10, probes=3)").probes == 3
    assert not own.asked("exact").built
    assert own.structure(389, 8) is None
    assert own.structure(20_000, 8) == "IVF10,SQ8"
    assert DenseKind.parse("pq(least=1)").structure(9983, 8) is None


def documents_of(numbers: Sequence[int], turn: int = 0) -> list[dict[str, Any]]:
    """Documents of two words of their own; document 0 is empty."""
    return [{"id": str(i), "text": f"w{i % 97} v{i}x{turn}" if i else " ", "year": 1900 + i % 100} for i in numbers]


def exhaustive(documents: dict[str, dict[str, Any]], query: str, form: str = "float32") -> list[tuple[str, float]]:
    """All documents by their scores, computed from their texts."""
    model = Scattered()
    some = {i: d for i, d in documents.items() if d["text"].strip()}
    rows = stored(model.dense_documents([d["text"] for d in some.values()])[0], form)[:].astype(np.float64)
    (vector,) = model.dense_queries([query])
    scores = np.einsum("ij,j->i", rows, vector).astype(np.float32)
    return sorted(zip(some, scores.tolist(), strict=True), key=lambda pair: -pair[1])


def pairs_of(hits: Sequence[Any]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


@pytest.mark.parametrize(
    "kind",
    ["float16", "sq8", "hnsw(least=300)", "hnsw(least=300, store=sq8)", "ivf(least=300, lists=8, probes=8)",
     "pq(least=300, bits=4, oversample=50, store=float16)"],
)  # fmt: skip
def test_the_life_of_an_index(kind: str, tmp_path: Path) -> None:
    parsed = DenseKind.parse(kind)
    living: dict[str, dict[str, Any]] = {}

    def check(index: Index, built: int) -> None:
        expected = {q: exhaustive(living, q, parsed.store) for q in ("w5", "w9 w80", "v500x0")}
        for query, ranking in expected.items():
            scores = dict(ranking)
            assert pairs_of(index.search(query, 20, dense="exact")) == ranking[:20]
            found = pairs_of(index.search(query, 20))
            assert len(found) == 20
            assert all(scores[d] == score for d, score in found)
            assert len(set(found) & set(ranking[:20])) >= (20 if not parsed.built else 14)
            late = pairs_of(index.search(query, 20, "year >= 1950"))
            assert all(living[d]["year"] >= 1950 and scores[d] == score for d, score in late)
            wanted = [(d, score) for d, score in ranking if living[d]["year"] >= 1950][:20]
            assert len(set(late) & set(wanted)) >= (20 if not parsed.built else 14)
            assert index.explain(query, found[0][0]).score == pytest.approx(found[0][1], rel=1e-5)
        facts = index.info()["dense"]
        assert (facts["kind"], facts["built_segments"] if parsed.built else built) == (str(parsed), built)
        assert index.verify() == []

    with Index.create(tmp_path / "i", Scattered(), dense=kind) as index:
        for start in (0, 650):
            new = documents_of(range(start, start + 650))
            index.add(new)
            index.commit()
            living |= {d["id"]: d for d in new}
        check(index, 2)
        index.add(documents_of(range(5, 95, 3), 1))  # replaced, in a segment too small for a structure
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
    code, _, said = cli("compact", folder, "--dense", "hnsw(least=100)")
    assert code == 0, said
    with Index.open(folder) as index:
        assert index.info()["dense"]["built"] == ["HNSW32_SQ8 100"]
        files = set(folder.rglob("*.faiss"))
        index.compact("hnsw(least=100, ef=90)")  # another effort: nothing is built
        assert set(folder.rglob("*.faiss")) == files
        assert len(set(pairs_of(index.search("w5 w7", 30))) & set(exact)) > 25
        index.compact("ivf(least=100, lists=10, store=float16)")
        assert index.info()["dense"]["built"] == ["IVF10,SQ8"]
        assert index.info()["dense"]["vector_bytes"] == plain // 2
        with pytest.raises(VizslaError, match="stored in float16, and what float32 would have is lost"):
            index.compact("exact")
        index.compact("sq8")
        assert not list(folder.rglob("*.faiss"))
        assert index.info()["dense"]["vector_bytes"] == plain // 4 + 4 * 1500
        assert index.verify() == []
    code, out, _ = cli("info", folder)
    assert (code, "sq8, 18.0 kB in sq8" in out) == (0, True), out
    code, _, said = cli("compact", folder, "--dense", "hnws")
    assert (code, "did you mean 'hnsw'?" in said) == (2, True)


def test_small_segments_are_searched_exactly_and_info_says_so(cli: Cli, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", Scattered(), dense="ivf(lists=64)") as index:
        index.add(documents_of(range(200)))
        index.commit()
        ranking = exhaustive({d["id"]: d for d in documents_of(range(200))}, "w5")
        assert pairs_of(index.search("w5", 200)) == ranking
    _, out, _ = cli("info", tmp_path / "i")
    assert "1 segment too small for it, searched exactly" in " ".join(out.split())


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "i", Scattered(), dense="ivf(least=100, lists=16, probes=1)") as index:
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
        assert len(index.search("w5", dense="exact")) == 10
        (problem,) = index.verify()
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
        built.compact("hnsw(least=100)")
        assert len(reader.search("w5")) == 10  # opened only now, though its file is gone
        assert reader.info()["dense"]["kind"].startswith("ivf")


def test_without_faiss(built: Index, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with Index.open(built.path) as index:
        with pytest.raises(VizslaError, match=r"needs faiss, which is not installed; get it with: pip install"):
            index.search("w5")
        assert len(index.search("w5", dense="exact")) == 10
        assert index.info()["dense"]["built_segments"] == 1
    with pytest.raises(VizslaError, match="hnsw needs faiss"):
        Index.create(tmp_path / "n", Scattered(), dense="hnsw")
    assert not (tmp_path / "n").exists()
    with Index.create(tmp_path / "n", Scattered(), dense="sq8") as index:  # needs none
        index.add(documents_of(range(20)))
        index.commit()
        assert len(index.search("w5")) == 10
    assert cli("info", built.path)[0] == 0


def test_what_cannot_be(built: Index, tmp_path: Path) -> None:
    for model, kind, problem in (
        ("bm25", "hnsw", "bm25 has no dense vectors, which hnsw is for"),
        (Scattered(), "pq(parts=3)", "cannot be cut into 3 equal parts"),
    ):
        with pytest.raises(VizslaError, match=problem):
            Index.create(tmp_path / "n", model, dense=kind)
    with Index.create(tmp_path / "n", Scattered()) as index, pytest.raises(VizslaError, match="numbers that are none"):
        index.add([{"id": "1", "text": "nan"}])
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        with pytest.raises(VizslaError, match="needs a GPU and a faiss that is built for it"):
            built.search("w5", dense="device=gpu")
    with pytest.raises(VizslaError, match="no option of ivf called 'ef'"):
        built.search("w5", dense="ef=3")


class OnGpu:
    """Stands for faiss's index on a GPU: it takes no parameters, and finds no more than it can."""

    def __init__(self, index: Any) -> None:
        self._index, self.ntotal, self.nprobe = index, index.ntotal, 1

    def search(self, asked: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        assert count <= 2048
        scores, found = self._index.search(asked, count, params=faiss.SearchParametersIVF(nprobe=self.nprobe))
        return scores, found


def test_the_way_to_a_gpu(built: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is masked falls out of what a GPU finds, which knows no masks; on a device that is not one."""
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda _, __, index: OnGpu(index), raising=False)
    built.delete([str(i) for i in range(100, 200)])
    built.commit()
    for filter in (None, "year >= 1950"):
        exact = pairs_of(built.search("w5 w7", 10, filter, dense="exact"))
        assert pairs_of(built.search("w5 w7", 10, filter, dense="probes=16, oversample=20, device=gpu")) == exact
    monkeypatch.setattr("vizsla.engine.nearest._MOST_ON_GPU", 64)
    with pytest.raises(VizslaError, match="on a GPU 64 candidates can be found, not 200"):
        built.search("w5 w7", 10, dense="oversample=20, device=gpu")
    with pytest.raises(VizslaError, match="no option of hnsw called 'device'"):
        DenseKind.parse("hnsw(device=gpu)")


def test_an_index_of_before_there_were_kinds(tmp_path: Path) -> None:
    with Index.create(tmp_path / "old", Scattered()) as index:
        index.add(documents_of(range(50)))
        index.commit()
        before = pairs_of(index.search("w5"))
    with sqlite3.connect(tmp_path / "old" / "index.db") as db:
        db.execute("DELETE FROM meta WHERE key = 'dense'")
    db.close()
    (tmp_path / "old" / "index.seal").unlink()
    with Index.open(tmp_path / "old") as index:
        assert pairs_of(index.search("w5")) == before
        index.add(documents_of(range(50, 60)))
        index.commit()
        assert index.info()["dense"]["kind"] == "exact"
        assert index.verify() == []


def test_recall_is_printed(built: Index, cli: Cli, tmp_path: Path) -> None:
    queries = tmp_path / "queries.tsv"
    queries.write_text("".join(f"{i}\tw{i} v{i}x0\n" for i in range(30)))
    command = ("recall", built.path, "--queries", queries, "-k", 5)
    code, out, said = cli(*command, "--json", "--dense", "probes=1", "--dense", "probes=16, oversample=300")
    assert code == 0, said
    exact, little, much = json.loads(out)["settings"]
    assert (exact["setting"], exact["recall"], exact["ratio"]) == ("exact", 1.0, 1.0)
    assert little["recall"] < much["recall"] == 1.0
    with Index.open(built.path) as index:
        shares = []
        for i in range(30):
            query = f"w{i} v{i}x0"
            found = {hit.id for hit in index.search(query, 5)}
            shares.append(len(found & {hit.id for hit in index.search(query, 5, dense="exact")}) / 5)
        assert little["recall"] == pytest.approx(np.mean(shares))
    code, out, _ = cli(*command)
    assert (code, "recall@5" in out, "ivf(lists=16, probes=1, least=100)" in out) == (0, True, True)
    with Index.create(tmp_path / "b", "bm25") as index, pytest.raises(VizslaError, match="bm25 has 0"):
        index.recall(["w5"], ["exact"])
