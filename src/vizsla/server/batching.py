"""Searches that arrive together are searched together: one call of the engine for many queries costs less."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

T = TypeVar("T")
MAX_BATCH = 32
"""Queries of one call: more would make the first of them wait for the last."""

Search = Callable[[Sequence[str]], list[T]]


class _Group(Generic[T]):
    """Queries that wait for one call."""

    def __init__(self, search: Search[T]) -> None:
        self.search = search
        self.waiting: list[tuple[str, asyncio.Future[T]]] = []


class Batcher(Generic[T]):
    """Gathers queries with the same options while the engine is busy; when it is idle, a query does not wait.

    At most `threads` calls run at a time, in threads of `executor`. Use it from one event loop.
    """

    def __init__(self, executor: Executor, threads: int = 1, observe: Callable[[int], None] | None = None) -> None:
        self._executor = executor
        self._free = threads
        self._observe = observe
        self._groups: dict[Hashable, _Group[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, key: Hashable, query: str, search: Search[T]) -> T:
        """What a search gives for a query; queries with an equal `key` may go to one call of `search`."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(search)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        group.waiting.append((query, future))
        self._start()
        return await future

    def _start(self) -> None:
        """Begin calls while there are threads for them; the group that came first goes first."""
        while self._free and self._groups:
            key, group = next(iter(self._groups.items()))
            batch, group.waiting = group.waiting[:MAX_BATCH], group.waiting[MAX_BATCH:]
            del self._groups[key]
            if group.waiting:  # behind the other groups
                self._groups[key] = group
            batch = [(query, future) for query, future in batch if not future.done()]  # clients may have gone
            if batch:
                self._free -= 1
                task = asyncio.get_running_loop().create_task(self._run(group.search, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, search: Search[T], batch: list[tuple[str, asyncio.Future[T]]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._executor, _answers, search, [query for query, _ in batch])
        except BaseException as e:
            answers = [e] * len(batch)
            if not isinstance(e, Exception):
                raise
        finally:
            self._free += 1
            self._start()
        if self._observe is not None:
            self._observe(len(batch))
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _answers(search: Search[T], queries: list[str]) -> list[Any]:
    """What a search gives for each query, or its error. One bad query does not spoil the others."""
    try:
        return search(queries)
    except Exception as e:
        if len(queries) == 1:
            return [e]
    return [answer for query in queries for answer in _answers(search, [query])]
