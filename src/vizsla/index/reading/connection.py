"""A reader's connection to index.db: one read transaction, shared by threads; and what the folder holds now."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from vizsla import stopping
from vizsla.index.storage import database, forking

_STEPS = 20_000  # SQLite instructions between two checks of the stop flag: about a millisecond


def _stoppable(db: sqlite3.Connection) -> sqlite3.Connection:
    """Let a statement end with an error when the thread that runs it must stop."""
    db.set_progress_handler(stopping.look, _STEPS)
    return db


class ReadConnection:
    """Sees index.db as it was at its first read, whatever writers do later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # reentrant, since a garbage collection while it is held may need it
        self.db = _stoppable(database.connect(path, write=False))
        self.close = database.close_with(self, self.db)

    @property
    def is_unlocked(self) -> bool:
        """Whether the database is read without locks, because its folder cannot be written to."""
        return isinstance(self.db, database.Unlocked)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement gives."""
        try:
            with stopping.holding(self.lock), forking.inside_sqlite:
                return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as e:
            stopping.check()  # raises StoppedError if that is the reason
            raise database.plain_error(self.path, e) from e

    def begin(self) -> None:
        """Hold on to the current commit; the log of writes cannot shrink meanwhile."""
        with self.lock, database.using_sqlite(self.path):
            if not self.db.in_transaction:
                self.db.execute("BEGIN")
                database.get_meta(self.db, "generation")

    def end(self) -> None:
        """Let go of the commit."""
        with self.lock, database.using_sqlite(self.path):
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def leave_log(self, uuid: str, generation: int) -> bool:
        """Checkpoint a long write-ahead log and read from the database, so that a writer can restart the log.

        A second connection does this and replaces the first if it sees the same commit of the same index. Returns False
        if that was not possible, because another reader holds an older commit; try again later.
        """
        if self.is_unlocked or not self.db.in_transaction:
            return False
        other = _stoppable(database.connect(self.path, write=False))
        try:
            with database.using_sqlite(self.path):
                if isinstance(other, database.Unlocked) or not database.shorten_log(other, self.path):
                    return False
                other.execute("BEGIN")
                found = [database.get_meta(other, key) for key in ("uuid", "generation")]
            with self.lock:
                if found == [uuid, generation] and self.db.in_transaction:
                    close, self.close = self.close, database.close_with(self, other)
                    self.db, other = other, self.db
                    close.detach()
                    return True
            return False
        finally:
            with database.using_sqlite(self.path):
                other.close()

    def leave_in_child(self) -> None:
        """In a forked child: never close the inherited connection."""
        self.close.detach()
        forking.leave_alone(self.path, self.db)

    def close_in_child(self) -> None:
        """In a forked child that may close what it has inherited."""
        self.close.detach()
        with suppress(sqlite3.Error):
            self.db.close()
        self.lock = threading.RLock()


_TICK = 1_000_000_000
"""Nanoseconds: file systems count time in steps, and a file may be written to twice in one of them."""


class Newest(NamedTuple):
    """The index that a folder holds, and its last commit."""

    identity: tuple[int, int] | None
    uuid: str
    generation: int


class Watch:
    """Watches a folder without opening a snapshot. Threads may share it: what they find is the same.

    As long as index.db and its log have the size and the time that they had, there is nothing new, which takes some
    microseconds to see. Only when they change is the number of the last commit read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[database.Stamp | None, ...], Newest] | None = None

    def newest(self) -> Newest:
        """The index in the folder and its last commit; raises an error if there is no index, or a damaged one."""
        now = time.time_ns()
        stamps = database.stamp(self._path), database.stamp(self._path, database.LOG)
        if self._known is not None and self._known[0] == stamps:
            return self._known[1]
        found = self._read()
        is_settled = all(stamp is None or stamp.time < now - _TICK for stamp in stamps)
        self._known = (stamps, found) if is_settled else None
        return found

    def _read(self) -> Newest:
        identity = database.identity(self._path)
        with database.using_sqlite(self._path), closing(database.connect(self._path, write=False)) as connection:
            meta = database.read_meta(connection, self._path)
        return Newest(identity, meta["uuid"], meta["generation"])
