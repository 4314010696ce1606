"""Checksums of what a commit holds in index.db, kept in the same transaction.

SQLite has no checksums of its own. Here every row has one, and a table has their sum, so that rows can come and go
without anything being read again. The sums are stored at the commit; `verify` reads all rows and adds them up anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import Any

KEY = "checksums"
"""Where in `meta` the sums lie; an index written by an earlier version has none until its next commit."""

TABLES = ("documents", "terms", "deletions", "meta", "segments")
_MODULUS = 1 << 64
_DOCUMENTS = "SELECT number, id, generation, metadata, fields FROM documents LEFT JOIN contents USING (number)"
_TERMS = "SELECT namespace, term, number FROM terms"


def row_sum(rows: Iterable[tuple[Any, ...]]) -> int:
    """The sum of the checksums of rows, the same in any order.

    >>> row_sum([(1, "a"), (2, None)]) == row_sum([(2, None), (1, "a")]) != row_sum([(2, "a"), (1, None)])
    True
    """
    total = 0
    for row in rows:
        text = "\0".join(map(str, row)).encode()
        total += int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
    return total % _MODULUS


class Checksums:
    """The sums of a commit in the making: those of the last commit, changed row by row."""

    def __init__(self, db: sqlite3.Connection, generation: int) -> None:
        """Begin with the last commit's; `generation` is its number. Leftovers of others must have been swept."""
        kept = of_commit(db) or computed(db, generation, None)
        self._sums: dict[str, int] = {name: int(kept[name], 16) for name in ("documents", "terms", "deletions")}

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of `documents` (with their fields), `terms` or `deletions` that have come."""
        self._sums[table] += row_sum(rows)

    def remove(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows that have gone."""
        self._sums[table] -= row_sum(rows)

    def remove_documents(self, db: sqlite3.Connection, condition: str, values: tuple[int, ...]) -> None:
        """Documents that are about to be removed, by a condition on their numbers."""
        self.remove("documents", db.execute(f"{_DOCUMENTS} WHERE {condition}", values))

    def store(self, db: sqlite3.Connection, generation: int, next_term: int) -> None:
        """Write the sums down, last in the transaction of the commit."""
        sums = {name: f"{total % _MODULUS:016x}" for name, total in self._sums.items()}
        kept = {**sums, **_small_tables(db, generation), "next_term": next_term, "generation": generation}
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (KEY, json.dumps(kept)))


def computed(db: sqlite3.Connection, generation: int, next_term: int | None) -> dict[str, Any]:
    """The sums of what a commit holds, from all its rows; `next_term`: terms from that number on are not its."""
    documents = db.execute(f"{_DOCUMENTS} WHERE generation <= ?", (generation,))
    if next_term is None:
        ((next_term,),) = db.execute("SELECT ifnull(max(number), -1) + 1 FROM terms").fetchall()
    terms = db.execute(f"{_TERMS} WHERE number < ?", (next_term,))
    deletions = db.execute("SELECT number, generation FROM deletions WHERE generation <= ?", (generation,))
    tables = {"documents": documents, "terms": terms, "deletions": deletions}
    sums = {name: f"{row_sum(rows):016x}" for name, rows in tables.items()}
    return {**sums, **_small_tables(db, generation), "next_term": next_term, "generation": generation}


def of_commit(db: sqlite3.Connection) -> dict[str, Any] | None:
    """The sums of the last commit; None where it was made by an earlier version, which knows of none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    kept: dict[str, Any] | None = json.loads(row[0]) if row else None
    return kept


def are_sums(found: Any) -> bool:
    """Whether something is what `Checksums.store` writes."""
    if not isinstance(found, dict) or any(type(found.get(key)) is not int for key in ("next_term", "generation")):
        return False
    return all(re.fullmatch("[0-9a-f]{16}", str(found.get(table))) for table in TABLES)


def wrong_table(db: sqlite3.Connection, generation: int) -> str | None:
    """The first of the tables that are quickly read which is not as it was written; None if all are."""
    kept = of_commit(db)
    if kept is None:
        return None
    found = _small_tables(db, generation)
    ((next_term,),) = db.execute("SELECT value FROM meta WHERE key = 'next_term'").fetchall()
    if int(next_term) < kept["next_term"] or kept["generation"] != generation:
        return "meta"
    return next((name for name, total in found.items() if kept[name] != total), None)


def _small_tables(db: sqlite3.Connection, generation: int) -> dict[str, str]:
    """The sums of the tables that are read whole each time."""
    rows = {
        "meta": db.execute("SELECT key, value FROM meta WHERE key NOT IN (?, 'next_term')", (KEY,)),
        "segments": db.execute("SELECT * FROM segments WHERE generation <= ?", (generation,)),
    }
    return {name: f"{row_sum(found):016x}" for name, found in rows.items()}
