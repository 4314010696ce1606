"""The terms of a collection: their numbers and their document frequencies among live documents.

Those that an upload has counted lie in blocks, many in one point, which costs a server a tenth of as many points. Those
that later commits bring are points of their own, so that a commit writes what has changed and little more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, Json, bodies, upsert
from vizsla.backends.qdrant.layout import NUMBER, block_id, term_id, terms_of
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.reading.terms import CachedTerms
from vizsla.index.writing.term_numbers import MAX_TERMS

BATCH = 2000
"""Terms that are read or written at once."""
BLOCK = 64
"""How many terms a block has on average."""
BLOCK_BATCH = 250
"""Blocks that are read or written at once."""
NAMESPACE, TERM, FREQUENCY, OCCURRENCES = "namespace", "term", "documents", "occurrences"
"""Keys of a term's payload, beside its number; a block has a list under each."""


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


@dataclass(frozen=True)
class TermBlocks:
    """The blocks of a collection. A term's hash says in which one it lies; no block gets new terms.

    The terms of block b have the numbers b, b + count, b + 2 * count and so on, in the order of their places in it.

    >>> blocks = TermBlocks(count=3, end=9, terms=8)
    >>> blocks.block_of("words", "dog"), blocks.block_of("words", "cat")
    (0, 1)
    """

    count: int = 0
    """How many blocks there are."""
    end: int = 0
    """What the numbers of their terms are below; all others have a point of their own."""
    terms: int = 0
    """How many terms they have."""

    def block_of(self, namespace: str, term: str) -> int:
        """The block that a term lies in, if it is in one."""
        return zlib.crc32(f"{namespace}\0{term}".encode("utf-8", "replace")) % self.count


def numbered(hashes: np.ndarray, count: int) -> np.ndarray:
    """The numbers of terms in so many blocks; `hashes`: the block of each.

    >>> numbered(np.array([1, 0, 1, 1]), 2).tolist()
    [1, 0, 3, 5]
    """
    order = np.argsort(hashes, kind="stable")
    starts = np.searchsorted(hashes[order], np.arange(count))
    numbers = np.empty(len(hashes), np.int64)
    numbers[order] = (np.arange(len(hashes)) - starts[hashes[order]]) * count + hashes[order]
    return numbers


def block_point(block: int, entries: Sequence[TermEntry]) -> Json:
    """A block as a point, as requests have it; `entries`: in the order of their numbers."""
    payload = {
        NUMBER: block,
        NAMESPACE: [entry.namespace for entry in entries],
        TERM: [entry.term for entry in entries],
        FREQUENCY: [entry.documents for entry in entries],
        OCCURRENCES: [entry.occurrences for entry in entries],
    }
    return {"id": block_id(block), "vector": {}, "payload": payload}


class StoredTerms:
    """The terms of a collection, by their texts or by their numbers."""

    def __init__(self, connection: Connection, base: str, blocks: TermBlocks) -> None:
        self._connection = connection
        self._base = base
        self._blocks = blocks

    def find(self, namespace: str, terms: Sequence[str]) -> dict[str, TermEntry]:
        """The current entries of those terms of a namespace that the collection has, by their texts."""
        found: dict[str, TermEntry] = {}
        for some in _chunks(terms, BATCH):
            by_id = {term_id(namespace, term): term for term in some}
            inside = {self._blocks.block_of(namespace, term) for term in some} if self._blocks.count else ()
            wanted = [*by_id, *map(block_id, inside)]
            for record in self._connection.call(QdrantClient.retrieve, terms_of(self._base), wanted):
                for entry in self._entries(record.payload):
                    term = by_id.get(term_id(entry.namespace, entry.term))
                    if term is not None:
                        found[term] = entry
        return found

    def numbered(self, numbers: Sequence[int]) -> dict[int, TermEntry]:
        """Terms by their numbers."""
        wanted = set(numbers)
        entries = (entry for block in self._read(numbers).values() for entry in block)
        found = {entry.number: entry for entry in entries if entry.number in wanted}
        for some in _chunks((n for n in numbers if n >= self._blocks.end), BATCH):
            among = models.Filter(must=[models.FieldCondition(key=NUMBER, match=models.MatchAny(any=some))])
            records, _ = self._connection.call(QdrantClient.scroll, terms_of(self._base), among, limit=BATCH)
            found.update({entry.number: entry for record in records for entry in self._entries(record.payload)})
        return found

    def all(self) -> Iterator[TermEntry]:
        """All terms, in any order."""
        for records in term_points(self._connection, self._base, range(1 << 62)):
            for record in records:
                yield from self._entries(record.payload)

    def store(self, entries: Iterable[TermEntry]) -> None:
        """Write terms: new ones, which no block has, or those that are there already."""
        changed: dict[int, TermEntry] = {}

        def points() -> Iterator[Json]:
            for entry in entries:
                if entry.number < self._blocks.end:
                    changed[entry.number] = entry
                else:
                    yield entry.point()

        self._connection.send(upsert, terms_of(self._base), bodies(points(), count=BATCH))
        by_block: dict[int, list[int]] = {}
        for number in changed:
            by_block.setdefault(number % self._blocks.count, []).append(number)
        for some in _chunks(sorted(by_block), BLOCK_BATCH):
            renewed = (
                block_point(block, [changed.get(entry.number, entry) for entry in old])
                for block, old in self._read(some).items()
            )
            self._connection.send(upsert, terms_of(self._base), bodies(renewed, count=BLOCK_BATCH))

    def _read(self, numbers: Iterable[int]) -> dict[int, list[TermEntry]]:
        """The blocks that have terms of these numbers, by their own."""
        wanted = {number % self._blocks.count for number in numbers if number < self._blocks.end}
        found: dict[int, list[TermEntry]] = {}
        for some in _chunks(sorted(wanted), BLOCK_BATCH):
            ids = [block_id(block) for block in some]
            records = self._connection.call(QdrantClient.retrieve, terms_of(self._base), ids)
            by_id = {str(record.id): record.payload for record in records}
            found.update({block: self._entries(by_id[block_id(block)]) for block in some if block_id(block) in by_id})
        missing = wanted.difference(found)
        if missing:
            raise CollectionError(
                f"the collection {self._base!r} lacks {len(missing):,} blocks of terms; build it again"
            )
        return found

    def _entries(self, payload: Mapping[str, Any] | None) -> list[TermEntry]:
        """The terms of a point: a block's, or a single one."""
        if payload is None or not isinstance(payload.get(TERM), list):
            return [TermEntry.of(payload)]
        try:
            first, columns = payload[NUMBER], [payload[key] for key in (NAMESPACE, TERM, FREQUENCY, OCCURRENCES)]
            rows = list(zip(*columns, strict=True))
            if not 0 <= first < self._blocks.count:
                raise ValueError
            keys = NAMESPACE, TERM, FREQUENCY, OCCURRENCES
            numbers = range(first, first + len(rows) * self._blocks.count, self._blocks.count)
            return [
                TermEntry.of({NUMBER: number, **dict(zip(keys, row, strict=True))})
                for number, row in zip(numbers, rows, strict=True)
            ]
        except (KeyError, TypeError, ValueError):
            raise CollectionError(
                f"a point among the terms of {self._base!r} is no block of terms; build it again"
            ) from None


def term_points(connection: Connection, base: str, numbers: range) -> Iterator[list[models.Record]]:
    """The points of terms, and of blocks by their own numbers, in a range, some at a time, in any order."""
    among = models.Filter(
        must=[models.FieldCondition(key=NUMBER, range=models.Range(gte=numbers.start, lt=numbers.stop))]
    )
    offset = None
    while True:
        records, offset = connection.call(QdrantClient.scroll, terms_of(base), among, BLOCK_BATCH, offset=offset)
        yield records
        if offset is None:
            return


class TermTable(CachedTerms):
    """The terms of a collection, looked up for searches."""

    def __init__(self, stored: StoredTerms, namespaces: Sequence[str]) -> None:
        super().__init__()
        self._stored = stored
        self._namespaces = namespaces

    def _find(self, space: int, terms: Sequence[str]) -> list[tuple[int, int]]:
        found = self.entries(space, terms)
        return [(e.number, e.documents) if (e := found.get(term)) else (-1, 0) for term in terms]

    def entries(self, space: int, terms: Sequence[str]) -> dict[str, TermEntry]:
        """The current entries of those terms that the collection has."""
        return self._stored.find(self._namespaces[space], terms)


class TermLedger:
    """The terms that a writer needs: numbers for new ones, and the changes of document frequencies.

    New terms are stored before a point that has them (`store_new`), the frequencies at the end (`store`).
    """

    def __init__(self, stored: StoredTerms, base: str, next_number: int) -> None:
        self.next_number = next_number
        self._is_new = next_number == 0  # all terms that the collection has are known here
        self._stored = stored
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
            found = self._stored.find(namespace, unknown)
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
        for entry in self._stored.numbered(unknown).values() if unknown else ():
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
        self._stored.store(new)
        self._changed.difference_update(entry.number for entry in new)

    def store(self) -> None:
        """Write all terms whose frequencies have changed."""
        changed, self._changed = self._changed, set()
        self._stored.store(self._by_number[number] for number in sorted(changed))

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
