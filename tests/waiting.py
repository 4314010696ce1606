"""Waiting in tests: for a state, with a limit that no machine needs, however busy it is."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIMIT = 600.0
"""Seconds after which what a test waits for is taken never to happen. Nothing is expected to take a tenth of it."""


def eventually(check: Callable[[], Any], pause: float = 0.02) -> None:
    """Wait until something holds."""
    end = time.monotonic() + LIMIT
    while not check():
        assert time.monotonic() < end, f"this did not happen in {LIMIT:g} seconds"
        time.sleep(pause)


@contextmanager
def unless_it_never_ends(seconds: float = LIMIT) -> Iterator[None]:
    """Fail if a block takes so many seconds of this process's own time, which other processes do not add to."""

    def end(*_: Any) -> None:
        raise AssertionError(f"this did not end within {seconds:g} seconds of computing")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def calls_of(run: Callable[[], Any]) -> int:
    """How many calls of functions it takes, of Python and of C: the same on every machine."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
