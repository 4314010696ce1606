"""What happens before a kernel is compiled: a message to the user, and a hook that compiles all kernels side by side.

This module does not import numba, which takes longer than most commands.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

hook: Callable[[], Callable[[], bool] | None] | None = None
"""Called once, when a kernel is not stored: has other processes compile all kernels. Returns what tells whether they
still do; None if there is nothing to wait for."""

seconds = 0.0
"""How long was waited for kernels; commands that time their work subtract it."""

_running: Callable[[], bool] | None = None
_announced = False
_lock = threading.Lock()
_POLL = 0.01  # seconds


def announce(where: str = "once for each of them; they are stored") -> None:
    """Print once per process that kernels are being compiled, which makes the first run slow."""
    global _announced
    if not _announced:
        _announced = True
        print(f"vizsla: compiling kernels for this machine ({where}) ...", file=sys.stderr, flush=True)


def start() -> None:
    """Have all kernels compiled while this process does something else; the hook is not called a second time."""
    global hook, _running
    with _lock:
        begin, hook = hook, None
        if begin is not None:
            _running = begin()


def find(load: Callable[[], T | None]) -> T | None:
    """A stored kernel: what `load` returns. If it is not there, wait as long as other processes may compile it."""
    global seconds
    found = load()
    if found is not None or (hook is None and _running is None):
        return found
    started = time.perf_counter()
    start()
    while _running is not None and _running() and (found := load()) is None:
        time.sleep(_POLL)
    seconds += time.perf_counter() - started
    return load() if found is None else found
