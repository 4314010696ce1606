"""Checksums of the rows of index.db, stored in the same transaction as the rows.

SQLite has no checksums of its own. Here every row has one, and a table has the sum of the checksums of its rows, which
can be updated without reading other rows. A commit stores the sums; `verify` reads all rows and computes them again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any

import numpy as np

from vizsla.engine import pool, processors, submit
from vizsla.index.storage.packed_terms import PackedTerms

KEY = "checksums"
"""The key of the sums in the table `meta`."""

TABLES = ("documents", "terms", "deletions", "meta", "segments")
_MODULUS = 1 << 64
_AT_ONCE = 1024  # rows that are counted together
_DOCUMENTS = (
    "SELECT number, metadata, NULL FROM documents WHERE {0} "
    "UNION ALL SELECT number, NULL, fields FROM contents WHERE {0}"
)


def row_sum(rows: Iterable[tuple[Any, ...]]) -> int:
    """The sum of the checksums of rows, which does not depend on their order.

    >>> row_sum([(1, "a"), (2, None)]) == row_sum([(2, None), (1, "a")]) != row_sum([(2, "a"), (1, None)])
    True
    """
    return _sum("\0".join(map(str, row)) for row in rows)


def _sum(texts: Iterable[str]) -> int:
    """The sum of the first 8 bytes of the hash of each text."""
    total, left, sha256 = 0, iter(texts), hashlib.sha256
    while digests := [sha256(text.encode()).digest() for text in islice(left, _AT_ONCE)]:
        total += int(np.frombuffer(b"".join(digests), "<u8")[::4].sum(dtype=np.uint64))
    return total % _MODULUS


class Checksums:
    """The checksums of the next commit: those of the last commit, changed row by row."""

    def __init__(self, stored: Mapping[str, str] | None = None) -> None:
        """`stored`: those that `store` has stored with the last commit; None if there was none."""
        before = stored or {}
        self._sums = {name: int(before.get(name, "0"), 16) for name in ("documents", "terms", "deletions")}
        self._counting: list[Future[int]] = []

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count added rows of `documents` (number, metadata and fields), `terms` or `deletions`."""
        self._sums[table] += row_sum(rows)

    def add_terms(self, terms: PackedTerms) -> None:
        """Count added rows of `terms`; many are counted by another thread until `store`."""
        if len(terms) < _AT_ONCE:
            self._sums["terms"] += terms.checksum()
        else:
            self._counting.append(submit(pool(processors()), terms.checksum))

    def remove(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count removed rows."""
        self._sums[table] -= row_sum(rows)

    def remove_documents(self, db: sqlite3.Connection, condition: str, values: tuple[int, ...]) -> None:
        """Count documents that are about to be removed, given a condition on their numbers."""
        self.remove("documents", db.execute(_DOCUMENTS.format(condition), (*values, *values)))

    @property
    def of_terms(self) -> str:
        """The sum of the checksums of all terms, as it is stored."""
        return _written(self._sums["terms"])

    def store(self, db: sqlite3.Connection, generation: int, next_term: int) -> None:
        """Store the sums, at the end of the transaction of the commit."""
        while self._counting:
            self._sums["terms"] += self._counting.pop().result()
        sums = {name: _written(total) for name, total in self._sums.items()}
        stored = {**sums, **_small_tables(db, generation), "next_term": next_term, "generation": generation}
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (KEY, json.dumps(stored)))


def _written(total: int) -> str:
    return f"{total % _MODULUS:016x}"


def compute_checksums(
    db: sqlite3.Connection, generation: int, terms: Iterable[tuple[int, str, int]], next_term: int
) -> dict[str, Any]:
    """The checksums of a commit, from all its rows; `terms`: all that are stored, see `terms.stored_terms`.

    Terms from the number `next_term` on do not belong to the commit.
    """
    ((next_number,),) = db.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'next_number'").fetchall()
    documents = db.execute(_DOCUMENTS.format("number < ?"), (next_number, next_number))
    own = (term for term in terms if type(term[2]) is int and term[2] < next_term)
    deletions = db.execute("SELECT number, generation FROM deletions WHERE generation <= ?", (generation,))
    tables = {"documents": documents, "terms": own, "deletions": deletions}
    sums = {name: f"{row_sum(rows):016x}" for name, rows in tables.items()}
    return {**sums, **_small_tables(db, generation), "next_term": next_term, "generation": generation}


def are_checksums(value: Any) -> bool:
    """Whether a value has the form that `Checksums.store` writes."""
    if not isinstance(value, dict) or any(type(value.get(key)) is not int for key in ("next_term", "generation")):
        return False
    return all(re.fullmatch("[0-9a-f]{16}", str(value.get(table))) for table in TABLES)


def wrong_table(db: sqlite3.Connection, meta: Mapping[str, Any]) -> str | None:
    """The name of the first small table whose checksum is wrong; None if all are right. `meta`: all of that table."""
    stored, generation = meta[KEY], meta["generation"]
    if meta["next_term"] < stored["next_term"] or stored["generation"] != generation:
        return "meta"
    return next((name for name, total in _small_tables(db, generation).items() if stored[name] != total), None)


def _small_tables(db: sqlite3.Connection, generation: int) -> dict[str, str]:
    """The checksums of the small tables, which are always read completely."""
    rows = {
        "meta": db.execute("SELECT key, value FROM meta WHERE key NOT IN (?, 'next_term')", (KEY,)),
        "segments": db.execute("SELECT * FROM segments WHERE generation <= ?", (generation,)),
    }
    return {name: f"{row_sum(table):016x}" for name, table in rows.items()}
