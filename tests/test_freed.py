"""What nobody uses any more is freed at once: the garbage collector may come after hundreds of commits."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from soak import Bounds, Sample
from vizsla import Index
from vizsla.index.search.searcher import Searcher
from vizsla.text import Analyzer, Lexicon

DOCUMENTS = [{"id": str(n), "text": f"dog bone{n}", "year": 1990 + n} for n in range(20)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An index, and no garbage collection while a test runs."""
    with Index.create(tmp_path / "dogs.index") as index:
        index.add(DOCUMENTS)
        index.commit()
    gc.collect()
    gc.disable()
    try:
        yield index.path
    finally:
        gc.enable()


def searched(index: Index) -> weakref.ref[Searcher]:
    """The searcher that has answered all kinds of requests."""
    for _ in range(2):
        (hit,) = index.search("dog", 1)
        index.search("dog", 3)
        index.search("bone3", filter="year < 2000", sort="year", total=True, typos="suggest")
        index.search("dgo bone1", syntax="lucene", collapse="year", model="bm25(k1=1.2)")
    index.facets(["year"], "dog")
    index.suggest("bo")
    index.similar("1")
    index.explain("dog", hit.id)
    index.highlighter("dog").snippet(hit.document)
    return weakref.ref(index._searcher)


def test_what_a_refresh_replaces(folder: Path) -> None:
    with Index.open(folder) as index:
        before = searched(index)
        with Index.open(folder) as other:
            other.add([{"id": "new", "text": "dog"}])
            other.commit()
        index.refresh()
        assert before() is None
        now = searched(index)
        assert index.get("new") is not None
    del index
    assert now() is None


@pytest.mark.parametrize("way", ["add", "writer"])
def test_an_index_that_was_written_to(folder: Path, way: str) -> None:
    index = Index.open(folder)
    searcher = searched(index)
    with index.writer() if way == "writer" else index as changed:
        changed.add([{"id": "new", "text": "dog"}])
        changed.update([{"id": "1", "year": 7}])
        changed.delete(filter="year = 1992")
        changed.commit()
    assert searcher() is None
    index.close()
    freed = weakref.ref(index)
    del index, changed
    assert freed() is None


def test_a_lexicon() -> None:
    lexicon = Lexicon(Analyzer.parse("lucene-english"))
    lexicon.encode(["Dogs run", "Ünïcode"])
    freed = weakref.ref(lexicon)
    gc.disable()
    try:
        del lexicon
        assert freed() is None
    finally:
        gc.enable()


def samples(rate: int, leak: int) -> list[Sample]:
    """What is seen every ten seconds of a server that gets `rate` requests a second and loses `leak` bytes with each.

    Its caches have filled after 4,000 requests.
    """
    counts = range(0, 24_000, 10 * rate)
    return [Sample(n, 90 + min(n, 4_000) / 100 + n * leak / 1e6, 150, 30, 200, 8, 20) for n in counts]


@pytest.mark.parametrize("rate", [5, 12, 300])
def test_the_soak_finds_a_leak_at_any_rate_and_nothing_else(rate: int) -> None:
    assert Bounds().growth("worker", samples(rate, 0)) == []
    (found,) = Bounds().growth("worker", samples(rate, 20_000))
    assert found.startswith("worker: own grew from ")
    (found,) = Bounds().growth("worker", samples(rate, 0)[: 100_000 // (10 * rate) // 10])
    assert "too few" in found
