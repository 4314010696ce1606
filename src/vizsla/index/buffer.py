"""What a writer holds in memory: rows of postings, until they are enough for a segment."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vizsla.engine import Segment, build_segment
from vizsla.index import database
from vizsla.models import Component, Model, Stored

BYTES_PER_TERM = 250  # what a reader remembers of a term: its forms, its text, its number


class Buffer:
    """The rows of documents that are not yet in a segment, namespace by namespace."""

    def __init__(self, model: Model, db: sqlite3.Connection) -> None:
        terms = TermNumbers(db)
        self._namespaces = [_Rows(p.component, terms) for p in model.parts]
        self._first = 0
        self._count = 0

    def start(self, first: int) -> None:
        """The number of the document that comes next."""
        self._first = first

    @property
    def bytes(self) -> int:
        """About how much memory the rows take."""
        return sum(n.bytes for n in self._namespaces)

    def analyse(self, contents: Sequence[Mapping[str, Any]]) -> list[Stored]:
        """What is to be stored of documents, namespace by namespace; touches nothing else, so a thread may do it."""
        return [n.analyse(contents) for n in self._namespaces]

    def take_in(self, analysed: list[Stored]) -> np.ndarray:
        """Take in what was analysed; gives how many terms each document has over all namespaces."""
        self._count += len(analysed[0].vectors)
        counts = [n.take_in(stored) for n, stored in zip(self._namespaces, analysed, strict=True)]
        total: np.ndarray = np.sum(counts, axis=0)
        return total

    def forget_terms(self, most_bytes: int) -> None:
        """Let readers start anew that remember more terms than fit."""
        for n in self._namespaces:
            n.forget_terms(most_bytes // len(self._namespaces))

    def take(self) -> Segment | None:
        """The rows as a segment, None if there are none; the buffer is empty then."""
        if self._count == 0:
            return None
        numbers = np.arange(self._first, self._first + self._count)
        blocks = [n.take() for n in self._namespaces]
        segment = build_segment(
            numbers,
            np.array([codes for codes, *_ in blocks]),
            np.array([sizes for _, sizes, *_ in blocks]),
            np.concatenate([[0], np.cumsum(np.concatenate([counts for _, _, counts, *_ in blocks]))]),
            np.concatenate([indices for *_, indices, _ in blocks]),
            np.concatenate([values for *_, values in blocks]),
        )
        self._first += self._count
        self._count = 0
        return segment


class TermNumbers:
    """Numbers for terms; those the index has of old keep theirs."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._next: int = database.get_meta(db, "next_term")

    def has(self, namespace: str) -> bool:
        """Whether the index has any terms of a namespace."""
        return self._db.execute("SELECT 1 FROM terms WHERE namespace = ? LIMIT 1", (namespace,)).fetchone() is not None

    def of(self, namespace: str, terms: Sequence[str], *, all_new: bool) -> np.ndarray:
        """The numbers of terms, new ones for those the index does not have."""
        numbers = np.full(len(terms), -1, np.int64)
        if not all_new:
            find = "SELECT number FROM terms WHERE namespace = ? AND term = ?"
            for i, term in enumerate(terms):
                row = self._db.execute(find, (namespace, term)).fetchone()
                if row is not None:
                    numbers[i] = row[0]
        new = np.flatnonzero(numbers < 0).tolist()
        numbers[new] = np.arange(self._next, self._next + len(new))
        rows = zip([terms[i] for i in new], numbers[new].tolist(), strict=True)
        self._db.executemany("INSERT INTO terms VALUES (?, ?, ?)", ((namespace, t, n) for t, n in rows))
        self._next += len(new)
        database.set_meta(self._db, "next_term", self._next)
        return numbers


class _Rows:
    """One namespace's rows: per batch the row lengths, the term numbers, the values and the documents' sizes."""

    def __init__(self, component: Component, terms: TermNumbers) -> None:
        self._component = component
        self._terms = terms
        self._reader = component.reader()
        self._numbers = np.zeros(0, np.uint32)
        self._fresh = not terms.has(component.namespace)  # every term the reader meets for the first time is new
        self._pending: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.bytes = 0

    def analyse(self, contents: Sequence[Mapping[str, Any]]) -> Stored:
        return self._reader.read(contents)

    def take_in(self, stored: Stored) -> np.ndarray:
        vectors, sizes = stored
        ((_, terms),) = vectors.vocabulary.parts
        new = terms[len(self._numbers) : len(vectors.vocabulary)]
        if new:
            numbers = self._terms.of(self._component.namespace, new, all_new=self._fresh).astype(np.uint32)
            self._numbers = np.concatenate([self._numbers, numbers])
        entry = (
            np.diff(vectors.pointers),
            self._numbers[vectors.indices],
            vectors.values.astype(np.float32 if vectors.values.dtype.kind == "f" else np.uint32, copy=False),
            sizes.astype(np.uint32, copy=False),
        )
        self._pending.append(entry)
        self.bytes += sum(array.nbytes for array in entry)
        return np.diff(vectors.pointers)

    def forget_terms(self, most_bytes: int) -> None:
        if len(self._numbers) * BYTES_PER_TERM > most_bytes:
            self._reader = self._component.reader()
            self._numbers = np.zeros(0, np.uint32)
            self._fresh = False

    def take(self) -> tuple[np.ndarray, ...]:
        """Length codes, sizes, row lengths, term numbers and values of all rows."""
        pending, self._pending, self.bytes = self._pending, [], 0
        counts, indices, values, sizes = (np.concatenate(column) for column in zip(*pending, strict=True))
        return self._component.length_codes(sizes), sizes, counts, indices, values
