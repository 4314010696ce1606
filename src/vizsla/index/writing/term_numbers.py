"""The numbers of terms as a transaction of a writer gives them; new terms stay in memory until somebody needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.storage import database, term_blocks, term_table
from vizsla.index.storage.checksums import Checksums

MAX_TERMS = (1 << 32) - 1  # the number of a term has 32 bits
_MOST_PENDING = 1_000_000


class TermNumbers:
    """Gives numbers to terms; a term of the index keeps its number."""

    def __init__(self, path: Path, db: sqlite3.Connection, checksums: Checksums) -> None:
        self._path = path
        self._db = db
        self._checksums = checksums
        self._next: int = database.get_meta(db, "next_term")
        self._pending: dict[int, tuple[list[str], list[int]]] = {}
        self._pending_count = 0

    def has(self, namespace: int) -> bool:
        """Whether the last commit has any terms of a namespace."""
        return term_blocks.has_terms(self._db, namespace)

    def of(self, namespace: int, terms: Sequence[str], *, all_new: bool) -> np.ndarray:
        """The numbers of terms; terms that the index does not have get new ones."""
        if all_new:
            new_terms, numbers = terms, np.arange(self._next, self._next + len(terms))
        else:
            self.store()
            numbers = np.array(
                term_table.find_terms(self._db, self._path, namespace, terms, term_table.open_blocks(self._db)),
                np.int64,
            )
            new = np.flatnonzero(numbers < 0)
            numbers[new] = np.arange(self._next, self._next + len(new))
            new_terms = [terms[i] for i in new.tolist()]
        if self._next + len(new_terms) > MAX_TERMS:
            raise VizslaError(f"the index would have more than {MAX_TERMS:,} different terms, which is the maximum")
        self._add(namespace, new_terms)
        return numbers

    def _add(self, namespace: int, terms: Sequence[str]) -> None:
        """Give the next numbers to terms."""
        first, self._next = self._next, self._next + len(terms)
        pending, numbers = self._pending.setdefault(namespace, ([], []))
        pending += terms
        numbers += range(first, self._next)
        self._checksums.add_terms(namespace, terms, first)
        database.set_meta(self._db, "next_term", self._next)
        self._pending_count += len(terms)
        if self._pending_count > _MOST_PENDING:
            self.store()

    def store(self) -> None:
        """Write the terms in memory to the database."""
        term_blocks.insert_terms(self._db, self._take_pending())

    def fold(self, *, whole: bool) -> None:
        """Write the terms in memory, and move all terms to blocks if they are many, or if `whole`; part of a commit."""
        term_table.fold_terms(self._db, self._path, self._take_pending(), whole=whole)

    def _take_pending(self) -> Iterator[tuple[int, str, int]]:
        """The terms in memory in order, which is also how they are inserted fastest."""
        pending, self._pending, self._pending_count = sorted(self._pending.items()), {}, 0
        for namespace, (terms, numbers) in pending:
            order = sorted(range(len(terms)), key=terms.__getitem__)
            yield from zip(
                repeat(namespace), map(terms.__getitem__, order), map(numbers.__getitem__, order), strict=False
            )
