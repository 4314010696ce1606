"""A reader's connection to index.db: one read transaction, shared by threads."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vizsla.index.storage import database, forking


class ReadConnection:
    """Sees index.db as it was at its first read, whatever writers do later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # garbage that is collected while it is held may want it, too
        self.db = database.connect(path, write=False)
        self.close = database.close_with(self, self.db)

    @property
    def is_unlocked(self) -> bool:
        """Whether the database is read without locks, because its folder cannot be written to."""
        return isinstance(self.db, database.Unlocked)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement gives."""
        try:
            with self.lock, forking.gate:
                return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as e:
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
