"""How a server's searches take turns: in batches, in two lanes, and stopped when nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from vizsla import stopping
from vizsla.server.batching import BULK_RESULTS, Batcher, Lane
from waiting import LIMIT


class Searches:
    """A search that answers queries with themselves; `slow` goes on until it is stopped."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.stopped = 0

    def __call__(self, queries: Sequence[str]) -> list[str]:
        self.calls.append(list(queries))
        if "slow" in queries:
            try:
                compute()
            finally:
                self.stopped += 1
        if "bad" in queries:
            raise ValueError("bad")
        return [query.upper() for query in queries]


def compute() -> None:
    """Use the processor, as a time slice counts nothing else, until an error stops it."""
    while True:
        stopping.check()


def run(work: Callable[[Batcher[str], Searches], Coroutine[Any, Any, None]], slice_seconds: float = 0.05) -> Searches:
    searches = Searches()

    async def main() -> None:
        batcher: Batcher[str] = Batcher(1, slice_seconds=slice_seconds)
        try:
            await asyncio.wait_for(work(batcher, searches), LIMIT)
        finally:
            batcher.close()

    asyncio.run(main())
    return searches


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_queries_of_one_key_go_to_one_call_and_errors_to_their_query() -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        futures = batcher.submit("key", ["a", "bad", "b"], searches)
        answers = await asyncio.gather(*futures, return_exceptions=True)
        assert (answers[0], answers[2]) == ("A", "B")
        assert isinstance(answers[1], ValueError)

    searches = run(work)
    assert searches.calls == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]


def test_an_expensive_query_does_not_spoil_the_others_of_its_batch() -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        a, slow, b = batcher.submit("key", ["a", "slow", "b"], searches)
        assert [await a, await b] == ["A", "B"]
        assert (await batcher.submit("key", ["c"], searches)[0]) == "C"  # the lane is free: it goes on in the other
        await until(lambda: searches.calls.count(["slow"]) == 2)  # a second time, in the lane of slow ones
        assert searches.stopped == 2
        assert not slow.done()
        slow.cancel()  # nobody waits for it any more
        await until(lambda: searches.stopped == 3)

    searches = run(work)
    assert searches.calls[0] == ["a", "slow", "b"]
    assert searches.calls.count(["slow"]) == 2


def test_a_call_that_may_take_long_has_no_slice() -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        (slow,) = batcher.submit("key", ["slow"], searches, is_slow=True)
        await until(lambda: len(searches.calls) == 1)
        await asyncio.sleep(0.3)  # many slices
        assert searches.stopped == 0
        slow.cancel()
        await until(lambda: searches.stopped == 1)

    assert run(work).calls == [["slow"]]


def test_a_large_request_is_searched_in_pieces_and_pauses_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(Lane, "pause", lambda _, seconds: pauses.append(seconds))
    first, go_on = threading.Event(), threading.Event()

    async def work(batcher: Batcher[str], searches: Searches) -> None:
        def bulk_search(queries: Sequence[str]) -> list[str]:
            first.set()
            assert go_on.wait(LIMIT)
            return searches(queries)

        bulk = batcher.submit("key", [f"q{i}" for i in range(100)], bulk_search, BULK_RESULTS)
        await asyncio.to_thread(first.wait, LIMIT)
        for i in range(50):  # in the other lane
            assert await batcher.submit("key", [f"quick{i}"], searches)[0] == f"QUICK{i}"
        go_on.set()
        assert await asyncio.gather(*bulk) == [f"Q{i}" for i in range(100)]

    searches = run(work)
    assert searches.calls == [[f"quick{i}"] for i in range(50)] + [[f"q{i}"] for i in range(100)]
    assert len(pauses) == 1  # after the piece beside which others came
    assert pauses[0] > 0


def test_a_large_request_alone_is_answered() -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        assert await asyncio.gather(*batcher.submit("key", ["q"] * 1000, searches, 10)) == ["Q"] * 1000

    assert max(len(call) for call in run(work).calls) == 32


def test_closing_stops_what_is_going_on() -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        batcher.submit("key", ["slow"], searches, is_slow=True)
        batcher.submit("other", ["waits"], searches)
        await until(lambda: len(searches.calls) == 1)
        assert batcher.longest_wait > 0
        await asyncio.to_thread(batcher.close)
        assert not any(t.name.startswith(("search-", "bulk-")) for t in threading.enumerate())

    searches = run(work)
    assert (searches.calls, searches.stopped) == ([["slow"]], 1)


@pytest.mark.parametrize("cancelled", [1, 2])
def test_queries_whose_clients_have_gone_are_not_searched(cancelled: int) -> None:
    async def work(batcher: Batcher[str], searches: Searches) -> None:
        (slow,) = batcher.submit("first", ["slow"], searches, is_slow=True)
        await until(lambda: len(searches.calls) == 1)
        futures = batcher.submit("key", ["a", "b", "c"], searches)
        for future in futures[:cancelled]:
            future.cancel()
        slow.cancel()
        assert await futures[2] == "C"

    assert run(work).calls[1:] == [["a", "b", "c"][cancelled:]]
