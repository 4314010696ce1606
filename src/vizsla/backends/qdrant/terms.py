"""The terms of a collection: their numbers and their document frequencies among live documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, Json, bodies, upsert
from vizsla.backends.qdrant.layout import NUMBER, term_id, terms_of
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.reading.terms import CachedTerms
from vizsla.index.writing.term_numbers import MAX_TERMS

BATCH = 2000
"""Terms that are read or written at once."""
NAMESPACE, TERM, FREQUENCY, OCCURRENCES = "namespace", "term", "documents", "occurrences"
"""Keys of a term's payload, beside its number."""


@dataclass
class TermEntry:
    """A term: its number, its document frequency among live documents, and the sum of its counts or weights."""

    namespace: str
    term: str
    number: int
    documents: int = 0
    occurrences: float = 0.0

    @classmethod
    def of(cls, payload: Mapping[str, Any] | None) -> TermEntry:
        """The term that a point's payload describes."""
        try:
            assert payload is not None
            number, documents = int(payload[NUMBER]), int(payload[FREQUENCY])
            if not 0 <= number < MAX_TERMS or documents < 0:
                raise ValueError
            return cls(str(payload[NAMESPACE]), str(payload[TERM]), number, documents, float(payload[OCCURRENCES]))
        except (AssertionError, KeyError, TypeError, ValueError):
            raise CollectionError("a point among the terms of a collection describes no term; build it again") from None

    def point(self) -> Json:
        """The term as a point, as requests have it."""
        payload = {
            NAMESPACE: self.namespace,
            TERM: self.term,
            NUMBER: self.number,
            FREQUENCY: self.documents,
            OCCURRENCES: self.occurrences,
        }
        return {"id": term_id(self.namespace, self.term), "vector": {}, "payload": payload}


class TermTable(CachedTerms):
    """The terms of a collection, looked up for searches."""

    def __init__(self, connection: Connection, base: str, namespaces: Sequence[str]) -> None:
        super().__init__()
        self._connection = connection
        self._base = base
        self._namespaces = namespaces

    def _find(self, space: int, terms: Sequence[str]) -> list[tuple[int, int]]:
        found = self.entries(space, terms)
        return [(e.number, e.documents) if (e := found.get(term)) else (-1, 0) for term in terms]

    def entries(self, space: int, terms: Sequence[str]) -> dict[str, TermEntry]:
        """The current entries of those terms that the collection has."""
        return find_terms(self._connection, self._base, self._namespaces[space], terms)


def find_terms(connection: Connection, base: str, namespace: str, terms: Sequence[str]) -> dict[str, TermEntry]:
    """The terms of a namespace that the collection has, by their texts."""
    found: dict[str, TermEntry] = {}
    for some in _chunks(terms, BATCH):
        by_id = {term_id(namespace, term): term for term in some}
        records = connection.call(QdrantClient.retrieve, terms_of(base), list(by_id))
        found.update({by_id[str(record.id)]: TermEntry.of(record.payload) for record in records})
    return found


def find_numbers(connection: Connection, base: str, numbers: Sequence[int]) -> dict[int, TermEntry]:
    """Terms by their numbers."""
    found: dict[int, TermEntry] = {}
    for some in _chunks(numbers, BATCH):
        among = models.Filter(must=[models.FieldCondition(key=NUMBER, match=models.MatchAny(any=some))])
        records, _ = connection.call(QdrantClient.scroll, terms_of(base), among, limit=BATCH)
        found.update({entry.number: entry for entry in (TermEntry.of(record.payload) for record in records)})
    return found


def all_terms(connection: Connection, base: str) -> Iterator[TermEntry]:
    """All terms of a collection, in any order."""
    only_terms = models.Filter(must=[models.FieldCondition(key=NUMBER, range=models.Range(gte=0))])
    offset = None
    while True:
        records, offset = connection.call(QdrantClient.scroll, terms_of(base), only_terms, BATCH, offset=offset)
        yield from (TermEntry.of(record.payload) for record in records)
        if offset is None:
            return


def store_terms(connection: Connection, base: str, entries: Iterable[TermEntry]) -> None:
    """Write terms, new ones or those that are there already."""
    connection.send(upsert, terms_of(base), bodies((entry.point() for entry in entries), count=BATCH))


class TermLedger:
    """The terms that a writer needs: numbers for new ones, and the changes of document frequencies.

    New terms are stored before a point that has them (`store_new`), the frequencies at the end (`store`).
    """

    def __init__(self, connection: Connection, base: str, next_number: int) -> None:
        self.next_number = next_number
        self._is_new = next_number == 0  # all terms that the collection has are known here
        self._connection = connection
        self._base = base
        self._by_term: dict[tuple[str, str], TermEntry] = {}
        self._by_number: dict[int, TermEntry] = {}
        self._new: list[TermEntry] = []
        self._changed: set[int] = set()

    def numbers(self, namespace: str, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms; those that the collection does not have get new ones."""
        unknown = [term for term in dict.fromkeys(terms) if (namespace, term) not in self._by_term]
        found = {}
        if unknown and not self._is_new:
            found = find_terms(self._connection, self._base, namespace, unknown)
        for term in unknown:
            entry = found.get(term)
            if entry is None:
                if self.next_number >= MAX_TERMS:
                    raise VizslaError(f"the collection would have more than {MAX_TERMS:,} terms, which is the maximum")
                entry = TermEntry(namespace, term, self.next_number)
                self.next_number += 1
                self._new.append(entry)
            self._keep(entry, (namespace, term))
        return np.array([self._by_term[namespace, term].number for term in terms], np.int64)

    def spaces(self, numbers: Sequence[int]) -> dict[int, str]:
        """The namespaces of terms by their numbers."""
        unknown = [number for number in dict.fromkeys(numbers) if number not in self._by_number]
        for entry in find_numbers(self._connection, self._base, unknown).values() if unknown else ():
            self._keep(entry, (entry.namespace, entry.term))
        missing = next((number for number in numbers if number not in self._by_number), None)
        if missing is not None:
            raise CollectionError(
                f"a document of {self._base!r} has a term that the collection does not; build it again"
            )
        return {number: self._by_number[number].namespace for number in numbers}

    def change(self, numbers: np.ndarray, values: np.ndarray, sign: int) -> None:
        """Count the terms of added (1) or deleted (-1) documents; `values`: how often each occurs in a document."""
        terms, places = np.unique(numbers, return_inverse=True)
        counts, sums = np.bincount(places), np.bincount(places, values)
        for number, documents, occurrences in zip(terms.tolist(), counts.tolist(), sums.tolist(), strict=True):
            entry = self._by_number[number]
            entry.documents += sign * documents
            entry.occurrences += sign * occurrences
        self._changed.update(terms.tolist())

    def store_new(self) -> None:
        """Write new terms with their current counts, before the documents that contain them."""
        new, self._new = self._new, []
        store_terms(self._connection, self._base, new)
        self._changed.difference_update(entry.number for entry in new)

    def store(self) -> None:
        """Write all terms whose frequencies have changed."""
        changed, self._changed = self._changed, set()
        store_terms(self._connection, self._base, [self._by_number[number] for number in sorted(changed)])

    def _keep(self, entry: TermEntry, key: tuple[str, str]) -> None:
        self._by_term[key] = entry
        self._by_number[entry.number] = entry


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    stream = iter(items)
    while some := list(islice(stream, size)):
        yield some


_CHUNK = 100_000  # terms that are held as texts at once


class TermNumbers:
    """Finds the positions of terms in an Arrow array by their hashes, and compares the texts.

    >>> import pyarrow
    >>> TermNumbers(pyarrow.array(["bark", "cat", "dog"])).of(["dog", "bird", "bark"]).tolist()
    [2, -1, 0]
    """

    def __init__(self, terms: Any, hashed: Callable[[str], int] = hash) -> None:
        """`terms`: all different. `hashed`: gives a number of 64 bits for a text."""
        self._terms = terms
        self._hashed = hashed
        hashes = np.zeros(len(terms), np.int64)
        for first in range(0, len(terms), _CHUNK):
            some = terms.slice(first, _CHUNK).to_pylist()
            hashes[first : first + len(some)] = [hashed(term) for term in some]
        self._places = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._places]
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        alike = np.unique(self._places[np.concatenate([equal, equal + 1])]).tolist()
        self._alike: dict[str, int] = {terms[place].as_py(): place for place in alike}

    def of(self, terms: Sequence[str]) -> np.ndarray:
        """The position of each term; -1 for unknown terms."""
        found = np.full(len(terms), -1, np.int64)
        if len(self._hashes) == 0 or not terms:
            return found
        hashes = np.array([self._hashed(term) for term in terms], np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        known = np.flatnonzero(self._hashes[at] == hashes)
        places = self._places[at[known]]
        for row, place, text in zip(known.tolist(), places.tolist(), self._terms.take(places).to_pylist(), strict=True):
            if text == terms[row]:
                found[row] = place
            elif terms[row] in self._alike:
                found[row] = self._alike[terms[row]]
        return found
