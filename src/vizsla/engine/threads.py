"""Kernels over ranges in several threads; they run without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

from vizsla.stopping import carried

T = TypeVar("T")


def in_threads(call: Callable[[int, int], T], count: int, threads: int, least: int) -> list[T]:
    """Split range(count) into ranges [a, z) of at least `least`, and return the results of `call(a, z)` for each."""
    parts = max(min(threads, count // least), 1)
    if parts == 1:
        return [call(0, count)]
    ends = list(pairwise(count * i // parts for i in range(parts + 1)))
    shared = carried(call)
    rest = [pool(threads).submit(shared, a, z) for a, z in ends[1:]]
    return [call(*ends[0]), *(future.result() for future in rest)]


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """A pool of threads that is kept for later searches."""
    return ThreadPoolExecutor(threads, "vizsla-search")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child process has no threads but its own


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
