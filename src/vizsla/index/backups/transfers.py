"""Many small transfers at once: an object store takes as long for a small file as for a larger one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vizsla import stopping

_AT_ONCE = 8
T = TypeVar("T")
R = TypeVar("R")


def in_order(call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What a function gives for each item, in their order; a few calls run ahead in threads.

    >>> list(in_order(str.upper, ["a", "b", "c"]))
    ['A', 'B', 'C']
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, "vizsla-transfer") as pool:
        try:
            for item in items:
                stopping.check()
                waiting.append(pool.submit(call, item))
                if len(waiting) > _AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
