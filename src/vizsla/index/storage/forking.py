"""What a forked child does with the indexes that its parent has open.

SQLite's locks belong to a process, and a child must not use a connection of its parent. So a fork waits until no
thread is inside SQLite. The child closes the connections it has inherited, and opens new ones when it needs them.
It cannot close a connection with pending changes, which would undo them in memory that it shares with the parent, nor
any connection if a thread was inside SQLite for too long. The child leaves these connections open and refuses to use
their indexes.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vizsla.errors import CollectionError

T = TypeVar("T")
_MAX_WAIT = 5.0  # seconds a fork waits for threads to leave SQLite


class _Gate:
    """A context for every use of SQLite: it counts the threads inside; a fork waits for them, and lets no other in."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all threads, in a forked child, which has none of them."""
        self._changed = (
            threading.Condition()
        )  # its lock is reentrant, since a garbage collection may enter the gate at any time
        self._inside = 0
        self._forking = False
        self._own = threading.local()

    def __enter__(self) -> None:
        depth = self._own.__dict__.get("depth", 0)
        if depth == 0:
            with self._changed:
                if self._forking:
                    self._changed.wait_for(lambda: not self._forking)
                self._inside += 1
        self._own.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        depth = self._own.__dict__.get("depth", 0) - 1
        if depth < 0:  # entered before a fork, by the parent
            return
        self._own.depth = depth
        if depth == 0:
            with self._changed:
                self._inside -= 1
                if self._forking:
                    self._changed.notify_all()

    def close(self) -> bool:
        """Let no thread in and wait until all have left; returns False if one stays inside too long."""
        own = getattr(self._own, "depth", 0) > 0
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._forking = True
            return self._changed.wait_for(lambda: self._inside == own, _MAX_WAIT) and not own

    def open(self) -> None:
        """Let threads in again."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()


inside_sqlite = _Gate()
"""A context for every use of SQLite: a fork waits until it ends."""
_all_left = True
_open: weakref.WeakKeyDictionary[Any, Callable[[Any, bool], None]] = weakref.WeakKeyDictionary()
_unusable: set[tuple[int, int]] = set()


def watch(owner: T, clean_up_in_child: Callable[[T, bool], None]) -> None:
    """Register an owner of connections for cleanup in forked children.

    `clean_up_in_child` gets the owner, and whether the child may close what it has inherited.
    """
    _open[owner] = clean_up_in_child


def check(path: Path) -> None:
    """Refuse an index with an inherited connection that this forked process could not close."""
    if _unusable and _identity(path) in _unusable:
        raise CollectionError(
            f"{path}: this process was forked while changes to the index were pending; commit before forking, "
            "or start processes with 'spawn'"
        )


def leave_alone(path: Path, connection: sqlite3.Connection) -> None:
    """Never close an inherited connection, not even at exit, and refuse to use its index."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _unusable.add(_identity(path))


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _before() -> None:
    global _all_left
    _all_left = inside_sqlite.close()


def _in_child() -> None:
    inside_sqlite.reset()
    for owner, clean_up_in_child in list(_open.items()):
        clean_up_in_child(owner, _all_left)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=inside_sqlite.open, after_in_child=_in_child)
