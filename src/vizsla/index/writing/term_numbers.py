"""The numbers of terms as a writer gives them: those it has looked up are kept from commit to commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import submit
from vizsla.errors import VizslaError
from vizsla.index.storage import checksums, database
from vizsla.index.storage.packed_terms import PackedTerms
from vizsla.index.storage.terms import (
    Block,
    Row,
    TermBlocks,
    find_terms,
    fold_terms,
    has_terms,
    insert_terms,
    is_foldable,
)

_MOST_KNOWN = 200_000  # terms of a namespace
_KEPT_BLOCKS = 4096  # decompressed blocks, of 2 kB each


class KnownTerms:
    """Finds the numbers of terms. Its cache is valid as long as the terms of the index are those of the known commit.

    It compares the checksum of all terms, which changes if another writer adds terms or another index replaces this
    one. Terms of a transaction are cached after its commit.
    """

    def __init__(self) -> None:
        self._sum: str | None = None
        self._folded: int | None = None
        self._before = 0
        self._numbers: dict[int, dict[str, int]] = {}
        self._blocks: TermBlocks | None = None

    def begin(self, meta: Mapping[str, Any]) -> None:
        """Begin a transaction after the commit with these values of the table `meta`."""
        total, folded = meta[checksums.KEY]["terms"], meta.get(database.FOLDED, 0)
        if total != self._sum:
            self.forget()
        if folded != self._folded:  # terms have been moved to other blocks
            self._blocks = None
        self._sum, self._folded, self._before = total, folded, meta["next_term"]

    def committed(self, total: str) -> None:
        """Note the checksum of all terms after a commit."""
        self._sum = total

    def forget(self) -> None:
        """Keep nothing."""
        self._sum, self._numbers, self._blocks = None, {}, None

    def find(self, db: sqlite3.Connection, path: Path, namespace: int, terms: Sequence[str]) -> list[int]:
        """The numbers of terms; -1 for one that the index does not have."""
        if self._blocks is None:
            self._blocks = TermBlocks(_KEPT_BLOCKS)
        known = self._numbers.get(namespace, {})
        missing = [term for term in terms if term not in known]
        found = dict(zip(missing, find_terms(db, path, namespace, missing, self._blocks), strict=True))
        numbers = [known[term] if term in known else found[term] for term in terms]
        lasting = {term: number for term, number in found.items() if 0 <= number < self._before}
        if len(known) + len(lasting) > _MOST_KNOWN:
            known = {}
        if len(lasting) <= _MOST_KNOWN:
            known.update(lasting)
            self._numbers[namespace] = known
        return numbers


MAX_TERMS = (1 << 32) - 1  # the number of a term has 32 bits
_MOST_PENDING = 1_000_000


class TermNumbers:
    """Gives numbers to terms; a term of the index keeps its number."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, meta: Mapping[str, Any], sums: checksums.Checksums, known: KnownTerms
    ) -> None:
        """`meta`: the values of the table `meta` at the last commit; `sums`: those of the next one."""
        self._path = path
        self._db = db
        self._checksums = sums
        self._known = known
        self._next: int = meta["next_term"]
        self._folded: int = meta.get(database.FOLDED, 0)
        self._pending: dict[int, list[PackedTerms]] = {}
        self._pending_count = 0
        self._packing: Future[list[Block]] | None = None

    @property
    def next_number(self) -> int:
        """The number that the next new term gets."""
        return self._next

    def has(self, namespace: int) -> bool:
        """Whether the last commit has any terms of a namespace."""
        return has_terms(self._db, namespace)

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
        if not terms:
            return
        packed = PackedTerms.of(namespace, terms, self._next)
        self._next += len(packed)
        self._pending.setdefault(namespace, []).append(packed)
        self._checksums.add_terms(packed)
        database.set_meta(self._db, "next_term", self._next)
        self._pending_count += len(packed)
        if self._pending_count > _MOST_PENDING:
            self.store()

    def store(self) -> None:
        """Write the terms in memory to the database."""
        insert_terms(self._db, self._take_pending())

    def begin_fold(self) -> None:
        """Start `fold` in a thread if all terms are in memory and they are many; no terms may be added afterwards."""
        if self._pending_count == self._next and is_foldable(self._next, 0):
            executor, pending = ThreadPoolExecutor(1), self._pending
            self._packing = submit(executor, lambda: [b for part in _by_namespace(pending) for b in part.blocks()[0]])
            executor.shutdown(wait=False)

    def fold(self, *, whole: bool) -> None:
        """Write the terms in memory, and move all terms to blocks if they are many, or if `whole`; part of a commit."""
        packed = None if self._packing is None else self._packing.result()
        new = self._take_pending()
        self._folded = fold_terms(self._db, self._path, self._next, self._folded, new, packed, whole=whole)

    def _take_pending(self) -> Iterator[Row]:
        """The terms in memory in the order of blocks, which is also how they are inserted fastest."""
        pending, self._pending, self._pending_count = self._pending, {}, 0
        return chain.from_iterable(map(PackedTerms.rows, _by_namespace(pending)))


def _by_namespace(pending: Mapping[int, Sequence[PackedTerms]]) -> list[PackedTerms]:
    return [PackedTerms.concatenated(pending[namespace]) for namespace in sorted(pending)]
