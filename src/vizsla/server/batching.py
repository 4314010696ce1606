"""Batch the searches of a worker: queries that arrive together are searched together, without starving others.

One call of the engine for many queries costs less than many calls. But a query may be slow, and a request may contain
a thousand queries. Therefore there are two lanes, each with its own threads:

- The quick lane is for small requests. A call that takes longer than a time slice is stopped. Its queries are then
  searched one by one, so that an expensive one does not delay the others; a query that alone takes longer than a slice
  moves to the bulk lane.
- The bulk lane is for all others, in small batches. While there are quick queries, it pauses nine times as long as it
  has worked, so that they get nine tenths of the time.

A search is stopped when its result is no longer wanted: its request timed out, or its client has disconnected.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from vizsla.errors import StoppedError
from vizsla.stopping import Stop

T = TypeVar("T")
MAX_BATCH = 32
"""The most queries per call: with more, the first would wait too long for the last."""
BULK_RESULTS = 1000
"""A request for more results than this, over all its queries, goes to the bulk lane."""
SLICE = 0.2
"""The time slice of the quick lane: seconds of CPU time per call."""
_PAUSE, _LONGEST_PAUSE = 9, 10.0  # the bulk lane's pause, relative to the time it worked, and the maximum in seconds
_TICK = 0.05  # seconds between two checks of running calls
_JOIN = 3.0  # seconds that a stopped call has to end

Search = Callable[[Sequence[str]], list[T]]


def thread_clock() -> Callable[[], float]:
    """A clock of this thread's CPU time from now on, readable by any thread; wall time on systems without one."""
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        started = time.clock_gettime(clock)
        return lambda: time.clock_gettime(clock) - started
    began = time.monotonic()
    return lambda: time.monotonic() - began


class Waiting(NamedTuple, Generic[T]):
    """A waiting query and the future of its answer."""

    query: str
    future: asyncio.Future[T]


@dataclass
class _Group(Generic[T]):
    """Queries that can go to one call."""

    search: Search[T]
    waiting: list[Waiting[T]]
    batch_size: int
    has_slice: bool = True
    since: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Call(Generic[T]):
    """A call that is going on."""

    batch: list[Waiting[T]]
    stop: Stop
    has_slice: bool
    used: Callable[[], float] = field(default_factory=lambda: thread_clock())

    def is_over(self) -> bool:
        """Whether none of the answers is wanted any more."""
        return all(waiting.future.done() for waiting in self.batch)


class Lane(Generic[T]):
    """Groups of queries in the order they came, and the threads that search them."""

    def __init__(self, name: str, threads: int, work: Callable[[_Group[T], list[Waiting[T]]], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._groups: dict[Hashable, _Group[T]] = {}
        self._closing = False
        self.submitted = 0
        """How many queries have come."""
        self.threads = [threading.Thread(target=self._run, name=f"{name}-{n}", daemon=True) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def put(self, key: Hashable, waiting: Sequence[Waiting[T]], group: _Group[T]) -> None:
        """Queue queries, grouped by key; `group`: the group to start if there is none with this key."""
        with self._changed:
            self.submitted += len(waiting)
            self._groups.setdefault(key, group).waiting.extend(waiting)
            self._changed.notify(min(len(waiting), len(self.threads)))

    def close(self) -> None:
        """Start no further calls."""
        with self._changed:
            self._closing = True
            self._groups.clear()
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the lane is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def longest_wait(self) -> float:
        """For how many seconds the query that came first has been waiting for its turn."""
        with self._changed:
            first = next(iter(self._groups.values()), None)
            return 0.0 if first is None else time.monotonic() - first.since

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._groups)
                if self._closing:
                    return
                group, batch = self._take()
            if batch:
                self._work(group, batch)

    def _take(self) -> tuple[_Group[T], list[Waiting[T]]]:
        """The first queries of the oldest group; the rest of it is queued after the other groups."""
        key, group = next(iter(self._groups.items()))
        del self._groups[key]
        batch, rest = group.waiting[: group.batch_size], group.waiting[group.batch_size :]
        if rest:
            self._groups[key] = _Group(group.search, rest, group.batch_size, group.has_slice)
            self._changed.notify()
        return group, [waiting for waiting in batch if not waiting.future.done()]  # clients may have gone


class Batcher(Generic[T]):
    """Searches in threads of its own, in two lanes. When a thread is idle, a query does not wait.

    Use it from one event loop. `observe` is called with the size of each batch.
    """

    def __init__(
        self, threads: int = 1, observe: Callable[[int], None] | None = None, slice_seconds: float = SLICE
    ) -> None:
        self._observe = observe
        self._slice = slice_seconds
        self._calls: dict[_Call[T], None] = {}
        self._closing = threading.Event()
        self._quick: Lane[T] = Lane("search", threads, self._search_quickly)
        self._bulk: Lane[T] = Lane("bulk", threads, self._search_bulk)
        self._watcher = threading.Thread(target=self._watch, name="search-watch", daemon=True)
        self._watcher.start()

    def submit(
        self, key: Hashable, queries: Sequence[str], search: Search[T], results: int = 10, *, is_slow: bool = False
    ) -> list[asyncio.Future[T]]:
        """The result of a search for each query; queries with an equal `key` may share one call of `search`.

        `results`: how many results a query wants. `is_slow`: a call may take long, and is not stopped after a slice.
        """
        loop = asyncio.get_running_loop()
        waiting = [Waiting(query, loop.create_future()) for query in queries]
        if len(queries) * results > BULK_RESULTS and len(queries) > 1:
            size = max(min(BULK_RESULTS // max(results, 1), MAX_BATCH), 1)
            own = object()  # a group of its own: requests take turns
            self._bulk.put(own, waiting, _Group(search, [], size))
        else:
            self._quick.put(key, waiting, _Group(search, [], MAX_BATCH, has_slice=not is_slow))
        return [w.future for w in waiting]

    @property
    def longest_wait(self) -> float:
        """For how many seconds a query of the quick lane has been waiting for its turn."""
        return self._quick.longest_wait()

    def close(self) -> None:
        """Stop the running calls and end the threads; a thread that does not stop in time is abandoned."""
        self._closing.set()
        for lane in (self._quick, self._bulk):
            lane.close()
        self._watcher.join(_JOIN)
        deadline = time.monotonic() + _JOIN
        for thread in (*self._quick.threads, *self._bulk.threads):
            thread.join(max(deadline - time.monotonic(), 0))

    def _watch(self) -> None:
        """Stop calls whose answers are not wanted and calls that have used up their slice; at the end stop all."""
        while not self._closing.wait(_TICK):
            for call in list(self._calls):
                if call.is_over():
                    call.stop.set("nobody waits for this search any more")
                elif call.has_slice and call.used() > self._slice:
                    call.stop.set("this search takes longer than others")
        for call in list(self._calls):
            call.stop.set("the server ends")

    def _search_quickly(self, group: _Group[T], batch: list[Waiting[T]]) -> None:
        unfinished = self._call(group.search, batch, has_slice=group.has_slice)
        if len(batch) > 1:
            for waiting in unfinished:
                self._quick.put(object(), [waiting], _Group(group.search, [], 1, group.has_slice))
        elif unfinished:
            self._bulk.put(object(), unfinished, _Group(group.search, [], 1))

    def _search_bulk(self, group: _Group[T], batch: list[Waiting[T]]) -> None:
        used, before = thread_clock(), self._quick.submitted
        self._call(group.search, batch, has_slice=False)
        if self._quick.submitted > before:
            self._bulk.pause(min(_PAUSE * len(self._bulk.threads) * used(), _LONGEST_PAUSE))

    def _call(self, search: Search[T], batch: list[Waiting[T]], *, has_slice: bool) -> list[Waiting[T]]:
        """Search and deliver the answers; returns the queries that were stopped but are still wanted."""
        call = _Call(batch, Stop(), has_slice)
        self._calls[call] = None
        if self._closing.is_set():  # the watcher may have ended
            call.stop.set("the server ends")
        try:
            with call.stop.active():
                answers = _answers(search, [waiting.query for waiting in batch])
        except StoppedError:
            return [waiting for waiting in batch if not waiting.future.done() and not self._closing.is_set()]
        finally:
            del self._calls[call]
        _tell(batch, answers)
        if self._observe is not None:
            self._observe(len(batch))
        return []


def _tell(batch: list[Waiting[T]], answers: list[Any]) -> None:
    """Deliver the answers on the event loop of their requests."""

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
    """The result of a search for each query, or its error. One bad query does not affect the others."""
    try:
        return search(queries)
    except StoppedError:
        raise
    except Exception as e:
        if len(queries) == 1:
            return [e]
    return [answer for query in queries for answer in _answers(search, [query])]
