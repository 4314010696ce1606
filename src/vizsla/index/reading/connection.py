"""A reader's connection to index.db: one read transaction, shared by threads."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vizsla import stopping
from vizsla.index.storage import database, forking

_STEPS = 20_000  # of SQLite's machine between two looks at the stop flag: about a millisecond


def _stoppable(db: sqlite3.Connection) -> sqlite3.Connection:
    """Let a statement end with an error when the thread that runs it must stop."""
    db.set_progress_handler(stopping.look, _STEPS)
    return db


class ReadConnection:
    """Sees index.db as it was at its first read, whatever writers do later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # garbage that is collected while it is held may want it, too
        self.db = _stoppable(database.connect(path, write=False))
        self.close = database.close_with(self, self.db)

    @property
    def is_unlocked(self) -> bool:
        """Whether the database is read without locks, because its folder cannot be written to."""
        return isinstance(self.db, database.Unlocked)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement gives."""
        try:
            with stopping.holding(self.lock), forking.gate:
                return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as e:
            stopping.check()  # then this is why
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
        """Move a long log of writes into the database, and read from there, so that a writer can begin the log again.

        A second connection does so and takes the place of the first, if it sees the same commit of the same index.
        Returns False if that was not possible, as long as another reader holds an older commit; then try again later.
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
