"""Searches that arrive together are searched together: one call of the engine for many queries costs less."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
MAX_BATCH = 32
"""Queries of one call: more would make the first of them wait for the last."""

Search = Callable[[Sequence[str]], list[T]]


class _Waiting(NamedTuple, Generic[T]):
    """A query that waits, and where its answer goes."""

    query: str
    future: asyncio.Future[T]


class _Group(NamedTuple, Generic[T]):
    """Queries that can go to one call."""

    search: Search[T]
    waiting: list[_Waiting[T]]


class Batcher(Generic[T]):
    """Searches in threads of its own. Queries with the same options that come while all threads are busy are gathered;
    when a thread is idle, a query does not wait.

    Use it from one event loop. `observe` is called with the size of each batch.
    """

    def __init__(self, threads: int = 1, observe: Callable[[int], None] | None = None) -> None:
        self._observe = observe
        self._lock = threading.Lock()
        self._groups: dict[Hashable, _Group[T]] = {}
        self._tokens: SimpleQueue[bool] = SimpleQueue()  # one for each query that came; False ends a thread
        self._threads = [threading.Thread(target=self._work, name=f"search-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, query: str, search: Search[T]) -> asyncio.Future[T]:
        """What a search gives for a query; queries with an equal `key` may go to one call of `search`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(search, [])
            group.waiting.append(_Waiting(query, future))
        self._tokens.put(True)
        return future

    def close(self) -> None:
        """End the threads, after the calls that are going on."""
        for _ in self._threads:
            self._tokens.put(False)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while self._tokens.get():
            taken = self._take()
            if taken is not None:
                search, batch = taken
                answers = _answers(search, [waiting.query for waiting in batch])
                _tell(batch, answers)
                if self._observe is not None:
                    self._observe(len(batch))

    def _take(self) -> tuple[Search[T], list[_Waiting[T]]] | None:
        """The queries of the group that came first; None if another thread has taken all there were."""
        with self._lock:
            if not self._groups:
                return None
            key, group = next(iter(self._groups.items()))
            del self._groups[key]
            batch, rest = group.waiting[:MAX_BATCH], group.waiting[MAX_BATCH:]
            if rest:  # behind the other groups
                self._groups[key] = _Group(group.search, rest)
        wanted = [waiting for waiting in batch if not waiting.future.done()]  # clients may have gone
        return (group.search, wanted) if wanted else None


def _tell(batch: list[_Waiting[T]], answers: list[Any]) -> None:
    """Give the answers to those who wait for them, on their event loop."""

    def deliver() -> None:
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.future.done():
                continue
            if isinstance(answer, Exception):
                waiting.future.set_exception(answer)
            else:
                waiting.future.set_result(answer)

    loop = batch[0].future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(deliver)


def _answers(search: Search[T], queries: list[str]) -> list[Any]:
    """What a search gives for each query, or its error. One bad query does not spoil the others."""
    try:
        return search(queries)
    except Exception as e:
        if len(queries) == 1:
            return [e]
    return [answer for query in queries for answer in _answers(search, [query])]
