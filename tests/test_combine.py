"""The parts of a sum as one ranking: by the exact sum, by the union of their best, by fusion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from scattered import Scattered
from vizsla import BM25, Index, Run, Splitter, VizslaError, fuse
from vizsla.index.search.combining import Combination

WORDS = [f"word{i}" for i in range(40)]
SUM = BM25() + 0.3 * Scattered()


def documents(seed: int, count: int, length: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"id": str(i), "text": " ".join(rng.choice(WORDS, rng.integers(0, length))), "year": 1900 + i % 50}
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Index]]:
    """Three of the same sum: several segments with deletions, passages, and approximate vectors."""
    folder = tmp_path_factory.mktemp("sums")
    options: list[dict[str, Any]] = [
        {},
        {"passages": Splitter(6, 2)},
        {"vector_index": "ivf(min_documents=50, nlist=4, nprobe=4)"},
    ]
    made = []
    for i, some in enumerate(options):
        index = Index.create(folder / str(i), SUM, **some)
        for start in (0, 200):
            index.add(documents(i, 400, 20)[start : start + 200])
            index.commit()
        index.delete([str(d) for d in range(20, 60)])
        index.commit()
        made.append(index)
    yield made
    for index in made:
        index.close()


QUERIES = st.lists(st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=4).map(" ".join), min_size=1, max_size=4)


def same(one: Run, other: Run) -> None:
    assert {q: list(one[q]) for q in one} == {q: list(other[q]) for q in other}


@given(
    which=st.integers(0, 2),
    texts=QUERIES,
    k=st.sampled_from((1, 10, 150)),
    how=st.sampled_from(("rrf", "rrf(k=3)", "linear(normalise=zscore)", "mnz", "interleave")),
    depth=st.sampled_from((1, 100, 300)),
    filter=st.sampled_from((None, "year < 1910")),
)
def test_a_fusion_is_that_of_the_runs_of_its_parts(
    indexes: list[Index], which: int, texts: list[str], k: int, how: str, depth: int, filter: str | None
) -> None:
    index, asked = indexes[which], {str(i): text for i, text in enumerate(texts)}
    runs = [index.run(asked, max(k, depth), filter, model=model) for model in (BM25(), Scattered())]
    name, bracket, options = how.partition("(")
    combine = f"{name}(depth={depth}, {options}" if bracket else f"{name}(depth={depth})"
    fused = index.run(asked, k, filter, combine=combine)
    same(fused, fuse(runs, how, depth=k))
    worded = {q: text for q, text in asked.items() if text.strip()}
    for q, hits in zip(worded, index.search_many(list(worded.values()), k, filter, combine=combine), strict=True):
        assert [(h.id, h.score) for h in hits] == list(fused[q])
        assert [h.rank for h in hits] == list(range(1, len(hits) + 1))
        assert all("year" in h.document.content for h in hits)


@given(
    which=st.sampled_from((0, 2)),
    texts=QUERIES,
    k=st.sampled_from((1, 10, 150)),
    depth=st.sampled_from((1, 20)),
    filter=st.sampled_from((None, "year < 1910")),
)
def test_a_union_is_the_best_of_its_parts_by_the_sum(
    indexes: list[Index], which: int, texts: list[str], k: int, depth: int, filter: str | None
) -> None:
    index, asked = indexes[which], {str(i): text for i, text in enumerate(texts)}
    everything = index.run(asked, 1000, filter)
    parts = [index.run(asked, max(k, depth), filter, model=model) for model in (BM25(), Scattered())]
    found = index.run(asked, k, filter, combine=f"union(depth={depth})")
    for q in asked:
        chosen = {d for run in parts for d in run[q].documents}
        expected = [(d, score) for d, score in everything[q] if d in chosen][:k]
        assert list(found[q]) == expected


def test_a_union_of_everything_is_the_sum(indexes: list[Index]) -> None:
    asked = {str(i): f"{a} {b}" for i, (a, b) in enumerate(zip(WORDS, WORDS[7:], strict=False))}
    for index in indexes:
        same(index.run(asked, 30, combine="union(depth=2000)"), index.run(asked, 30))
        same(index.run(asked, 30, combine="sum"), index.run(asked, 30))


def test_a_view_combines_in_its_own_way(indexes: list[Index]) -> None:
    index = indexes[0]
    fused = [(h.id, h.score) for h in index.search("word3 word5", combine="rrf")]
    view = index.with_model(combine="rrf")
    assert [(h.id, h.score) for h in view.search("word3 word5")] == fused
    assert [(h.id, h.score) for h in index.search("word3 word5", combine="sum")] != fused
    assert [(h.id, h.score) for h in index.search("word3 word5")] != fused


def test_what_cannot_be_combined(indexes: list[Index]) -> None:
    index, approximate = indexes[0], indexes[2]
    for way, problem in (
        ("rff", "did you mean 'rrf'"),
        ("union(k=3)", "has an option that union does not take"),
        ("sum(depth=3)", "has an option that sum does not take"),
        ("rrf(depth=0)", "1 document or more"),
        ("rrf(b=2)", "rrf does not take the option b"),
        ("rrf(depth=many)", "not a whole number for depth"),
        ("!", "is not a way to combine"),
    ):
        with pytest.raises(VizslaError, match=problem):
            index.search("word1", combine=way)
    with pytest.raises(VizslaError, match="combines the parts of a sum"):
        index.search("word1", model=BM25(), combine="rrf")
    with pytest.raises(VizslaError, match="a sum is searched exactly"):
        approximate.search("word1", search_params="nprobe=2")
    assert approximate.search("word1", search_params="nprobe=2", combine="rrf")
    assert approximate.search("word1", search_params="exact")
    assert str(Combination.parse("linear( depth = 7 )")) == "linear(normalise=minmax, missing=zero, depth=7)"


def test_combining_by_the_command_line(cli: Cli, indexes: list[Index], dataset: Path, tmp_path: Path) -> None:
    index = indexes[0]
    code, out, said = cli("search", index.path, "word3 word5", "--combine", "rrf", "--json")
    assert code == 0, said
    expected = [h.id for h in index.search("word3 word5", combine="rrf")]
    assert [hit["id"] for hit in json.loads(out)["results"]] == expected
    (tmp_path / "q.tsv").write_text("1\tword3 word5\n")
    run = tmp_path / "run.trec"
    code, _, said = cli("search", index.path, "--queries", tmp_path / "q.tsv", "--output", run, "--combine", "union")
    assert code == 0, said
    assert Run.read(run)["1"].documents == index.run({"1": "word3 word5"}, combine="union")["1"].documents
    code, _, said = cli("search", index.path, "word3", "--combine", "best")
    assert (code, "unknown way to combine 'best'" in said) == (2, True)
    two = "bm25 + bm25(fields=title, namespace=title)"
    figures = {}
    for way in ("sum", "rrf", "union"):
        code, out, said = cli("eval", dataset, "-m", two, "--combine", way, "--json")
        assert code == 0, said
        figures[way] = json.loads(out)["measures"]["nDCG@10"]
        assert json.loads(out)["model"] == f"{two}, combine {way}"
    assert figures["sum"] == figures["union"] > 0
    assert figures["rrf"] > 0
