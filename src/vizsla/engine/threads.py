"""Kernels over ranges in several threads; they run without the GIL."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from vizsla.stopping import carried

T = TypeVar("T")
Item = TypeVar("Item")


def in_threads(call: Callable[[int, int], T], count: int, threads: int, least: int) -> list[T]:
    """Split range(count) into ranges [a, z) of at least `least`, and return the results of `call(a, z)` for each.

    After an error in one range, or an interruption (Ctrl-C), the others end before it is raised.
    """
    parts = max(min(threads, count // least), 1)
    if parts == 1:
        return [call(0, count)]
    ends = list(pairwise(count * i // parts for i in range(parts + 1)))
    shared = carried(call)
    rest: list[Future[T]] = []
    try:
        rest.extend(submit(pool(threads), shared, a, z) for a, z in ends[1:])
        first = call(*ends[0])
        return [first, *(future.result() for future in rest)]
    finally:
        finish_all(rest)


def in_threads_by_size(
    call: Callable[[int, int], T], bounds: np.ndarray, least: int, threads: int | None = None
) -> list[T]:
    """As `in_threads`, for items of different sizes: each range has about the same size, `least` in all at least.

    `bounds`: [n + 1] where each item begins, and where the last ends. `threads`: by default one for each processor.
    """
    first, total = int(bounds[0]), int(bounds[-1] - bounds[0])
    if total < 2 * least:
        return [call(0, len(bounds) - 1)]

    def call_items(a: int, z: int) -> T:
        begin, end = np.searchsorted(bounds, [first + a, first + z]).tolist()
        return call(begin if a else 0, end if z < total else len(bounds) - 1)

    return in_threads(call_items, total, threads or processors(), least)


def in_turns(call: Callable[[Item], T], items: Sequence[Item], threads: int) -> list[T]:
    """The results of `call` for each item, in order; a thread that has finished an item takes the next one.

    After an error no other item is begun. Items may use `in_threads` themselves.

    >>> in_turns(abs, [-1, 2, -3], 2)
    [1, 2, 3]
    """
    if threads == 1 or len(items) < 2:
        return [call(item) for item in items]
    found: dict[int, T] = {}
    turns = iter(enumerate(items))

    def work() -> None:
        try:
            for i, item in turns:
                found[i] = call(item)
        except BaseException:
            list(turns)  # nothing is left for the others
            raise

    others: list[Future[None]] = []
    try:
        executor, shared = pool(threads, "vizsla-queries"), carried(work)
        others.extend(submit(executor, shared) for _ in range(min(threads, len(items)) - 1))
        work()
    finally:
        finish_all(others)  # those that wait for a thread have nothing left to do
    for other in others:
        if not other.cancelled():
            other.result()
    return [found[i] for i in range(len(items))]


def in_order(call: Callable[[Item], T], items: Iterable[Item], threads: int) -> Iterator[T]:
    """The results of `call` for each item, in order; `threads` items are worked on while one result is used.

    >>> list(in_order(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    if threads == 1:
        yield from map(call, items)
        return
    shared = carried(call)
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(submit(pool(threads), shared, item))
            if len(waiting) > threads:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)
    finally:
        finish_all(waiting)


def _first(waiting: deque[Future[T]]) -> T:
    """The result of the first future, which is removed when it has ended."""
    result = waiting[0].result()
    waiting.popleft()
    return result


def finish_all(futures: Collection[Future[T]]) -> None:
    """Cancel what has not begun and wait for the rest, whatever interrupts it: nobody may work on what is given up."""
    try:
        for future in futures:
            future.cancel()
        wait(futures)
    except BaseException:
        finish_all(futures)
        raise


def submit(executor: Executor, call: Callable[..., T], *arguments: Any) -> Future[T]:
    """A call in a thread of an executor; in this thread when the main thread has ended and Python starts no others.

    >>> submit(pool(1), abs, -2).result()
    2
    """
    try:
        return executor.submit(call, *arguments)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
    here: Future[T] = Future()
    try:
        here.set_result(call(*arguments))
    except Exception as e:
        here.set_exception(e)
    return here


@cache
def pool(threads: int, name: str = "vizsla-search") -> ThreadPoolExecutor:
    """A pool of threads that is kept for later searches."""
    return ThreadPoolExecutor(threads, name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child process has no threads but its own


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
