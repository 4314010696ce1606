"""The numbers of terms that a writer has looked up, kept from commit to commit: documents share most of their words."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from vizsla.index.storage import checksums, database, term_blocks, term_table
from vizsla.index.storage.term_blocks import TermBlocks

_MOST = 200_000  # terms of a namespace
_BLOCKS = 4096  # decompressed blocks, of 2 kB each


class KnownTerms:
    """Finds the numbers of terms. What it keeps holds as long as the index has the terms of the commit it knows.

    The checksum of all terms tells: another writer, or an index that was put in place of this one, changes it. Terms
    of a transaction are not kept before its commit.
    """

    def __init__(self) -> None:
        self._sum: str | None = None
        self._folded: int | None = None
        self._before = 0
        self._numbers: dict[int, dict[str, int]] = {}
        self._blocks: TermBlocks | None = None

    def begin(self, db: sqlite3.Connection) -> None:
        """Begin a transaction, in which nothing has been changed yet."""
        total = str(checksums.read_checksums(db)["terms"])
        folded = database.get_meta(db, term_blocks.FOLDED)
        if total != self._sum:
            self.forget()
        if folded != self._folded:  # terms have been moved to other blocks
            self._blocks = None
        self._sum, self._folded, self._before = total, folded, database.get_meta(db, "next_term")

    def committed(self, total: str) -> None:
        """Note the checksum of all terms after a commit."""
        self._sum = total

    def forget(self) -> None:
        """Keep nothing."""
        self._sum, self._numbers, self._blocks = None, {}, None

    def find(self, db: sqlite3.Connection, path: Path, namespace: int, terms: Sequence[str]) -> list[int]:
        """The numbers of terms; -1 for one that the index does not have."""
        if self._blocks is None:
            self._blocks = TermBlocks(_BLOCKS)
        known = self._numbers.get(namespace, {})
        missing = [term for term in terms if term not in known]
        found = dict(zip(missing, term_table.find_terms(db, path, namespace, missing, self._blocks), strict=True))
        numbers = [known[term] if term in known else found[term] for term in terms]
        lasting = {term: number for term, number in found.items() if 0 <= number < self._before}
        if len(known) + len(lasting) > _MOST:
            known = {}
        if len(lasting) <= _MOST:
            known.update(lasting)
            self._numbers[namespace] = known
        return numbers
