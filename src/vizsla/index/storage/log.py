"""The write-ahead log of index.db: it takes in commits, and is moved into the database when it is long."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from vizsla.errors import CollectionError
from vizsla.index.storage import database, forking

MAX_BYTES = 4 << 20  # a longer log is moved into the database


def commit(connection: sqlite3.Connection, path: Path) -> None:
    """End a transaction durably. If that fails, nothing of it is there, or the error says that this is not known.

    SQLite writes a transaction to the log and then syncs it. If the sync fails, SQLite calls the transaction failed,
    and yet it is in the log: whoever reads the log anew, as after a crash, would find it. So it is written over.
    """
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as e:
        try:
            overwrite(connection)
        except sqlite3.Error:
            raise CollectionError(
                f"{path}: the disk is full or failing, and it is not known whether the changes are committed; when "
                "there is room, close the index and open it again to see"
            ) from e
        raise


def overwrite(connection: sqlite3.Connection) -> None:
    """Write over what a transaction that failed may have left at the end of the log."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    database.mark_finished(connection, None)
    connection.execute("COMMIT")


def shorten(connection: sqlite3.Connection, path: Path) -> bool:
    """Move the log into the database if it is long; returns whether all of it was moved.

    Then the next writer begins the log again, unless a reader still reads from it. A failure does no harm.
    """
    if not is_long(path):
        return False
    with suppress(sqlite3.Error), forking.inside_sqlite():
        busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return not busy and frames == moved
    return False


def is_long(path: Path) -> bool:
    """Whether it is time to move the log into the database."""
    now = database.stamp(path, database.LOG)
    return now is not None and now.size > MAX_BYTES
