"""Finalizers that close a resource when its owner is collected, and at exit only if no other thread can use it.

Daemon threads go on while Python exits. A connection of SQLite that is closed while a thread is inside it ends the
process with a segmentation fault, and a lock that is released lets another process remove files that a thread is still
writing. So these are left to the operating system, which closes them all at once when the threads are gone.
"""

from __future__ import annotations

import atexit
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

_exiting = False


def finalize(owner: object, close: Callable[..., object], *arguments: Any) -> weakref.finalize[..., object]:
    """Like `weakref.finalize`, but nothing is closed at exit as long as there are other threads."""
    made = weakref.finalize(owner, _close_unless_used, close, arguments)
    _watch_exit()
    return made


def _close_unless_used(close: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    if not (_exiting and len(sys._current_frames()) > 1):
        close(*arguments)


@functools.cache
def _watch_exit() -> None:
    """Notice the exit before finalizers run: atexit runs the last handler first, and weakref has registered its own."""
    atexit.register(_begin_exit)


def _begin_exit() -> None:
    global _exiting
    _exiting = True
