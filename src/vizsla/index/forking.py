"""What a forked child does with the indexes its parent has open.

SQLite's locks belong to a process, and a connection must not be used on the other side of a fork. So nobody is inside
SQLite while a fork goes on, and a child closes what it has inherited and opens it again when it is first used. Only a
connection with changes pending cannot be closed there: that would undo them in memory which is shared with the parent.
The child must not use such an index at all.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import Protocol

from vizsla.errors import CollectionError


class Forked(Protocol):
    """Something with connections: it is held still for a fork, and cleans up in the child."""

    def hold_still(self) -> None: ...

    def go_on(self) -> None: ...

    def clean_up_in_child(self) -> None: ...


_open: weakref.WeakSet[Forked] = weakref.WeakSet()
_held: list[Forked] = []
_forking = threading.Lock()  # one fork at a time
_unusable: set[tuple[int, int]] = set()


def watch(opened: Forked) -> None:
    """Call it for everything that has connections."""
    _open.add(opened)


def check(path: Path) -> None:
    """Refuse a folder whose parent process had changes pending when this one was forked from it."""
    if _unusable and _identity(path) in _unusable:
        raise CollectionError(
            f"{path}: this process was forked while changes to the index were pending; commit before forking, "
            "or start processes with 'spawn'"
        )


def leave_alone(path: Path, connection: sqlite3.Connection) -> None:
    """Never close a connection with changes pending, not even at exit, and use its folder no more."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _unusable.add(_identity(path))


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _before() -> None:
    _forking.acquire()
    for opened in list(_open):
        opened.hold_still()
        _held.append(opened)


def _in_parent() -> None:
    while _held:
        _held.pop().go_on()
    _forking.release()


def _in_child() -> None:
    while _held:
        _held.pop().clean_up_in_child()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
