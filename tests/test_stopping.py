"""Searches that are stopped: wherever they look at the flag, soon, and without a trace in later searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vizsla import Index, VizslaError, stopping
from vizsla.engine import PhrasePattern
from vizsla.engine.term_sequences import _are_near
from vizsla.errors import StoppedError
from vizsla.runs import Hits
from vizsla.stopping import Stop, check, current, time_limit

DOCUMENTS = 40_000  # three ranges of the engine
MOST = 254  # looks that a flag counts


@pytest.fixture(scope="module", params=["texts", "positions"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("stopping") / "i"
    with Index.create(folder, "bm25", positions=request.param == "positions") as index:
        index.add(
            {"id": str(i), "text": f"big dog number n{i % 97} bark{'s' * (i % 3)} cat{i % 5}", "year": i % 50}
            for i in range(DOCUMENTS)
        )
        index.commit()
        yield index


SEARCHES: dict[str, tuple[Callable[[Index], Any], int]] = {
    # a search, and how often it looks at the flag at least
    "words": (lambda index: index.search("dog n3 cat1", 20), 3),
    "many": (lambda index: index.search_many(["dog n3", "cat2 n5", "bark"], 20, threads=1), 9),
    "threads": (lambda index: index.search_many(["dog n3", "cat2 n5"] * 70, 20, threads=2, documents=False), 9),
    "all": (lambda index: index.search("+cat1 +n3 number", 20, syntax="lucene"), 3),
    "phrase": (lambda index: index.search('"dog number n3"', 20, syntax="lucene"), 3),
    "slop": (lambda index: index.search('"n3 dog"~4', 20, syntax="lucene"), 3),
    "fuzzy": (lambda index: index.search("brak~2", 20, syntax="lucene"), 1),
    "prefix": (lambda index: index.search("ca*", 20, syntax="lucene"), 3),
    "negative": (lambda index: index.search("dog n3", 20, model="-1 * bm25"), 3),
    "sorted": (lambda index: index.search("dog n3", 20, sort="year"), 3),
    "facets": (lambda index: index.facets(["year"], "dog n3"), 1),
    "run": (lambda index: index.run({"1": "dog n3", "2": "cat1"}, 100), 6),
}


def comparable(found: Any) -> Any:
    if isinstance(found, Hits):
        return found.ids, found.scores
    return [comparable(hits) for hits in found] if isinstance(found, list) else found


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_may_be_stopped_at_every_look(index: Index, name: str) -> None:
    search, least = SEARCHES[name]
    expected = comparable(search(index))
    looks = 0
    for looks in range(1, MOST + 1):
        stop = Stop()
        stop.flag[0] = looks
        with stop.active():
            try:
                found = comparable(search(index))
            except StoppedError:
                continue
        assert found == expected
        break
    assert looks > least
    assert comparable(search(index)) == expected  # memory that was worked in is as good as new


def test_a_filter_is_stopped_and_what_it_has_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vizsla.index.search.columns.BATCH", 100)
    with Index.create(tmp_path / "i") as index:
        index.add({"id": str(i), "text": "dog", "year": i} for i in range(1000))
        index.commit()
        stops = 0
        while True:
            stop = Stop()
            stop.flag[0] = 4  # three looks: fewer than there are batches
            try:
                with stop.active():
                    found = index.search("dog", 5, "year >= 990")
                break
            except StoppedError:
                stops += 1
                assert stops < 20
        assert stops >= 3
        assert [hit.id for hit in found] == ["990", "991", "992", "993", "994"]


def test_time_is_linear_in_the_text() -> None:
    class Text:
        """A text that counts how often it is read."""

        def __init__(self, numbers: list[int]) -> None:
            self.numbers, self.reads = numbers, 0

        def __getitem__(self, place: int) -> int:
            self.reads += 1
            return self.numbers[place]

    words = 64
    equal = PhrasePattern.of([1] * words, range(words), 1000)
    last_differs = PhrasePattern.of([1] * (words - 1) + [2], range(words), 10)
    for pattern, text in ((equal, [1] * (words - 1) + [3]), (last_differs, [1] * (words - 2) + [3, 2])):
        terms, offsets, previous, slop, _ = pattern.arrays
        reads = []
        for times in (20, 40):
            numbers = Text(text * times)
            memory, flag = np.empty(words, np.int64), np.zeros(1, np.uint8)
            _are_near(numbers, 0, len(numbers.numbers), terms, offsets, previous, slop, memory, flag)
            reads.append(numbers.reads)
            assert numbers.reads <= words * 3 * len(numbers.numbers)
        assert reads[1] <= 2.2 * reads[0]


def test_a_time_limit_is_an_option_of_a_search(index: Index) -> None:
    assert [hit.id for hit in index.search("dog n3", 2, timeout=600)] == [hit.id for hit in index.search("dog n3", 2)]
    assert index.with_model(timeout=600).search("dog n3", 1)[0].id == index.search("dog n3", 1)[0].id

    def search_again_and_again() -> None:  # however long the thread that sets the flag takes to begin
        for _ in range(1000):
            index.search_many(["dog n3"] * 50, 100, timeout=1e-9)

    with pytest.raises(StoppedError, match="the search took more than 1e-09 seconds and was stopped"):
        search_again_and_again()
    for wrong in (0, -1, "1", True, float("nan"), float("inf")):
        with pytest.raises(VizslaError, match="timeout is a number of seconds above 0, not"):
            index.search("dog", timeout=wrong)  # type: ignore[arg-type]


def test_a_stop_is_of_one_thread_and_ends_with_its_block() -> None:
    stop = Stop()
    with stop.active():
        assert current() is stop
        stop.set("because")
        with pytest.raises(StoppedError, match="because"):
            check()
    check()
    with time_limit(None):
        assert current() is not stop
    with time_limit(600):
        outer = current()
        with time_limit(600):
            assert current() is outer
    seen: list[Stop] = []
    with stop.active():
        import threading

        threads = [threading.Thread(target=lambda: seen.append(current()))]
        threads.append(threading.Thread(target=stopping.carried(lambda: seen.append(current()))))
        for thread in threads:
            thread.start()
            thread.join()
    assert seen[0] is not stop
    assert seen[1] is stop


def test_phrases_and_filters_have_limits(index: Index) -> None:
    with pytest.raises(VizslaError, match="a phrase has at most 256 words, and this one has 300"):
        index.search('"' + "dog " * 300 + '"', syntax="lucene")
    with pytest.raises(VizslaError, match="a phrase has at most 1,000 steps"):
        index.search('"big dog"~1001', syntax="lucene")
    with pytest.raises(VizslaError, match="more than 2,000 conditions; many values of a field are one"):
        index.search("dog", filter=" or ".join(f"year = {n}" for n in range(2001)))
