"""Work that can be stopped: at a time limit, when a client hangs up, when a server ends.

A `Stop` is a flag of one byte. Long-running code checks it after each block of work: a kernel through an array that it
is given, SQLite through its progress handler, Python loops by `check`. A thread works under at most one stop.

    with time_limit(2.0):
        index.search("dogs")     # raises StoppedError after two seconds
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from vizsla.errors import StoppedError, VizslaError, kind_of

T = TypeVar("T")
_local = threading.local()
_WAIT = 0.05  # seconds that a thread waits for another before it looks at its own flag


class Stop:
    """A flag that ends the work done under it.

    `flag` is one byte: 0 lets work continue, 1 stops it at the next check, and n stops it at the n-th check, which
    tests use to count checks and to stop at each of them.

    >>> stop = Stop()
    >>> with stop.active():
    ...     check()
    ...     stop.set("the search was stopped")
    ...     check()
    Traceback (most recent call last):
    ...
    vizsla.errors.StoppedError: the search was stopped
    """

    def __init__(self) -> None:
        self.flag = np.zeros(1, np.uint8)
        self.reason = "the search was stopped"

    @property
    def is_set(self) -> bool:
        return bool(self.flag[0] == 1)

    def set(self, reason: str) -> None:
        """Stop the work, from any thread; `reason` is the sentence of the error."""
        if not self.is_set:
            self.reason = reason
            self.flag[0] = 1

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let what this thread does be stopped by this flag."""
        before = getattr(_local, "stop", None)
        _local.stop = self
        try:
            yield
        finally:
            _local.stop = before


class _Never(Stop):
    """The stop of work that has no limit; nobody sets it."""

    def set(self, reason: str) -> None:
        raise AssertionError(reason)


_NEVER = _Never()


def current() -> Stop:
    """The stop that this thread works under."""
    stop: Stop | None = getattr(_local, "stop", None)
    return _NEVER if stop is None else stop


def flag() -> np.ndarray:
    """The flag that a kernel called by this thread looks at."""
    return current().flag


def look() -> bool:
    """Whether this thread's work must end, for loops that cannot raise an error; it counts as a check of the flag."""
    value = int(flag()[0])
    if value > 1:
        flag()[0] = value - 1
    return value == 1


def check() -> None:
    """Raise `StoppedError` if this thread's work must end."""
    if flag()[0] and look():
        raise StoppedError(current().reason)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Stop this thread's work after some seconds; None is no limit. A nested time limit stops the outer work as well.

    >>> with time_limit(60):
    ...     check()
    """
    if seconds is None:
        yield
        return
    stop = Stop() if current() is _NEVER else current()
    timer = threading.Timer(seconds, stop.set, [f"the search took more than {seconds:g} seconds and was stopped"])
    timer.daemon = True
    timer.start()
    try:
        with stop.active():
            yield
    finally:
        timer.cancel()


def check_seconds(seconds: object) -> float | None:
    """A time limit in seconds; None is none."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise VizslaError(f"timeout is a number of seconds above 0, not {kind_of(seconds)}")
    return float(seconds)


def carried(call: Callable[..., T]) -> Callable[..., T]:
    """A wrapper of a function that runs it in another thread under this thread's stop."""
    stop = current()
    if stop is _NEVER:
        return call

    def carrying(*arguments: object) -> T:
        with stop.active():
            return call(*arguments)

    return carrying


@contextmanager
def holding(lock: threading.Lock | threading.RLock) -> Iterator[None]:
    """Hold a lock that another thread may hold for long; the wait ends with an error if this thread must stop."""
    while not lock.acquire(timeout=_WAIT):
        check()
    try:
        yield
    finally:
        lock.release()
