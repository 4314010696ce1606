"""The terms of an index: their numbers, and in how many live documents they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import DamagedSegmentError, Segment
from vizsla.index.reading.connection import ReadConnection
from vizsla.index.storage import database
from vizsla.index.storage.live_documents import LiveDocuments
from vizsla.index.storage.terms import Term, TermBlocks, find_terms, reading_terms, some_terms, stored_terms

MAX_CACHED = 100_000


class CachedTerms(ABC):
    """Looks up terms; what was looked up is kept, since queries share their words."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, tuple[int, int]]] = {}

    @property
    def cached_terms(self) -> int:
        """How many terms are kept in memory."""
        return sum(map(len, self._known.values()))

    def lookup(self, space: int, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and document frequencies of terms; an unknown term has the number -1 and the frequency 0."""
        known = self._known.setdefault(space, {})
        missing = [term for term in dict.fromkeys(terms) if term not in known]
        if missing:
            if len(known) > MAX_CACHED:
                known = self._known[space] = {}
                missing = list(dict.fromkeys(terms))
            known.update(zip(missing, self._find(space, missing), strict=True))
        pairs = np.array([known[term] for term in terms], np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @abstractmethod
    def _find(self, space: int, terms: Sequence[str]) -> list[tuple[int, int]]:
        """The number and the document frequency of each term, from where they are stored."""


class TermTable(CachedTerms):
    """The terms of an index in a folder."""

    def __init__(
        self, connection: ReadConnection, segments: Sequence[Segment], living: Sequence[LiveDocuments]
    ) -> None:
        super().__init__()
        self._connection = connection
        self._segments = segments
        self._living = living
        self._blocks = TermBlocks()

    def _find(self, space: int, terms: Sequence[str]) -> list[tuple[int, int]]:
        path = self._connection.path
        with self._connection.lock, database.using_sqlite(path):
            valid = [term.encode("utf-8", "replace").decode() for term in terms]
            found = find_terms(self._connection.db, path, space, valid, self._blocks)
            numbers = np.array(found, np.int64)
        return list(zip(numbers.tolist(), self._frequencies_of(numbers).tolist(), strict=True))

    def frequencies(self, space: int, terms: Sequence[str]) -> list[int]:
        """In how many live documents terms are that are not worth keeping, since nobody has searched for them."""
        return [frequency for _, frequency in self._find(space, terms)]

    def sample(self, space: int) -> list[str]:
        """Terms from all over a namespace."""
        with self._connection.lock, database.using_sqlite(self._connection.path):
            return some_terms(self._connection.db, self._connection.path, space, self._blocks)

    def _frequencies_of(self, numbers: np.ndarray) -> np.ndarray:
        frequencies = np.zeros(len(numbers), np.int64)
        try:
            for segment, living in zip(self._segments, self._living, strict=True):
                frequencies += living.frequencies(segment, numbers)
        except IndexError:
            raise DamagedSegmentError from None
        return frequencies

    def beginning_with(self, space: int, beginning: str) -> tuple[list[str], np.ndarray]:
        """The terms with a prefix, in alphabetical order, and their document frequencies."""
        rows = self._rows(space, beginning, _after(beginning))
        return [row.term for row in rows], self._frequencies_of(np.array([row.number for row in rows], np.int64))

    def _rows(self, space: int, beginning: str = "", end: str | None = None) -> list[Term]:
        """The terms of a namespace, none of them with a number that no term can have."""
        path = self._connection.path
        with self._connection.lock, database.using_sqlite(path), reading_terms(path):
            rows = list(stored_terms(self._connection.db, space, beginning, end))
        if not all(type(row.number) is int and 0 <= row.number < 1 << 32 for row in rows):
            raise database.damaged(path, "a term has an invalid number")
        return rows

    def numbers_of(self, space: int) -> np.ndarray:
        """The numbers of all terms of a namespace."""
        return np.array([row.number for row in self._rows(space)], np.int64)

    def all_of(self, space: int, before: int) -> list[tuple[int, str]]:
        """Number and text of all terms of a namespace with a number below a bound."""
        return [(row.number, row.term) for row in self._rows(space) if row.number < before]


def _after(beginning: str) -> str | None:
    """The first text after all texts with a prefix, in the order of UTF-8 bytes; None if no text comes after them.

    >>> _after("ab"), _after("a\U0010ffff"), _after("\ud7ff") == "\ue000"
    ('ac', 'b', True)
    """
    kept = beginning.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)  # no half of a surrogate pair


@dataclass(frozen=True)
class NamespaceStatistics:
    """The statistics of one namespace over the live documents of a commit."""

    documents: int
    total_length: int
    longest: int
    space: int
    terms: CachedTerms

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return self.terms.lookup(self.space, terms)[1]
