"""The numbers of terms as a transaction of a writer gives them; new terms stay in memory until somebody needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.storage import database, term_blocks, term_table
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.term_blocks import Block, Row
from vizsla.index.writing.known_terms import KnownTerms

MAX_TERMS = (1 << 32) - 1  # the number of a term has 32 bits
_MOST_PENDING = 1_000_000


class TermNumbers:
    """Gives numbers to terms; a term of the index keeps its number."""

    def __init__(self, path: Path, db: sqlite3.Connection, checksums: Checksums, known: KnownTerms) -> None:
        self._path = path
        self._db = db
        self._checksums = checksums
        self._known = known
        self._next: int = database.get_meta(db, "next_term")
        self._pending: dict[int, tuple[list[str], list[int]]] = {}
        self._pending_count = 0
        self._packing: Future[list[Block]] | None = None

    def has(self, namespace: int) -> bool:
        """Whether the last commit has any terms of a namespace."""
        return term_blocks.has_terms(self._db, namespace)

    def of(self, namespace: int, terms: Sequence[str], *, all_new: bool) -> np.ndarray:
        """The numbers of terms; terms that the index does not have get new ones."""
        if all_new:
            new_terms, numbers = terms, np.arange(self._next, self._next + len(terms))
        else:
            self.store()
            numbers = np.array(self._known.find(self._db, self._path, namespace, terms), np.int64)
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

    def begin_fold(self) -> None:
        """Have a thread begin with `fold` if all terms are in memory, and they are many; add no terms from then on."""
        if self._pending_count == self._next and term_blocks.is_foldable(self._next, 0):
            executor = ThreadPoolExecutor(1)
            self._packing = executor.submit(lambda rows: [*term_blocks.pack_terms(rows)], self._in_order(self._pending))
            executor.shutdown(wait=False)

    def fold(self, *, whole: bool) -> None:
        """Write the terms in memory, and move all terms to blocks if they are many, or if `whole`; part of a commit."""
        packed = None if self._packing is None else self._packing.result()
        term_table.fold_terms(self._db, self._path, self._take_pending(), packed, whole=whole)

    def _take_pending(self) -> Iterator[Row]:
        pending, self._pending, self._pending_count = self._pending, {}, 0
        return self._in_order(pending)

    @staticmethod
    def _in_order(pending: dict[int, tuple[list[str], list[int]]]) -> Iterator[Row]:
        """Terms in memory in the order of blocks, which is also how they are inserted fastest."""
        for namespace, (terms, numbers) in sorted(pending.items()):
            order = sorted(range(len(terms)), key=terms.__getitem__)
            yield from zip(
                repeat(namespace), map(terms.__getitem__, order), map(numbers.__getitem__, order), strict=False
            )
