"""What a writer holds in memory: rows of postings, until they are enough for a segment."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vizsla.engine import Segment, build_segment, convert_rows, fits_a_segment
from vizsla.errors import VizslaError
from vizsla.index import database
from vizsla.index.analysis import Prepared, Rows
from vizsla.index.checksums import Checksums
from vizsla.models import Component, Model

MOST_TERMS = (1 << 32) - 1  # a term's number has 32 bits


class Buffer:
    """The rows of documents that are not yet in a segment, namespace by namespace."""

    def __init__(
        self, path: Path, model: Model, db: sqlite3.Connection, checksums: Checksums, form: str = "float32"
    ) -> None:
        """`form`: what dense vectors are stored in."""
        terms = TermNumbers(path, db, checksums)
        self._form = form
        self._namespaces = [_Namespace(i, p.component, terms) for i, p in enumerate(model.parts)]
        self._first = 0
        self._count = 0

    def start(self, first: int) -> None:
        """The number of the document that comes next."""
        self._first = first

    @property
    def bytes(self) -> int:
        """How much memory the rows take."""
        return sum(n.bytes for n in self._namespaces)

    def check(self, prepared: Prepared) -> None:
        """Refuse a batch that cannot be stored, before anything of it is."""
        postings = sum(len(rows.indices) for rows in prepared.rows)
        if not fits_a_segment(postings, len(prepared.stored)):
            raise VizslaError(f"{len(prepared.stored):,} documents have {postings:,} terms; add fewer at once")
        for namespace, rows in zip(self._namespaces, prepared.rows, strict=True):
            if rows.dense is not None and not np.isfinite(rows.dense).all():
                raise VizslaError(f"{namespace.model_name} makes vectors with numbers that are NaN or infinite")

    def has_room_for(self, prepared: Prepared) -> bool:
        """Whether a batch fits into the same segment as what is here."""
        postings = sum(n.postings for n in self._namespaces) + sum(len(rows.indices) for rows in prepared.rows)
        return fits_a_segment(postings, self._count + len(prepared.stored))

    def take_in(self, prepared: Prepared) -> np.ndarray:
        """Take in a batch; gives how many terms each of its documents has over all namespaces."""
        self._count += len(prepared.stored)
        for namespace, rows in zip(self._namespaces, prepared.rows, strict=True):
            namespace.take_in(prepared.analyst, prepared.fresh, rows)
        total: np.ndarray = np.sum([rows.found_by for rows in prepared.rows], axis=0)
        return total

    def take(self) -> Segment | None:
        """The rows as a segment, None if there are none; the buffer is empty then."""
        if self._count == 0:
            return None
        numbers = np.arange(self._first, self._first + self._count)
        taken = {i: rows for i, n in enumerate(self._namespaces) if (rows := n.take_dense()) is not None}
        dense = {i: convert_rows(rows, self._form) for i, rows in taken.items()}
        blocks = [n.take() for n in self._namespaces]
        segment = build_segment(
            numbers,
            np.array([codes for codes, *_ in blocks]),
            np.array([sizes for _, sizes, *_ in blocks]),
            np.concatenate([[0], np.cumsum(np.concatenate([counts for _, _, counts, *_ in blocks]))]),
            np.concatenate([indices for *_, indices, _ in blocks]),
            np.concatenate([values for *_, values in blocks]),
            dense,
        )
        self._first += self._count
        self._count = 0
        return segment


class TermNumbers:
    """Numbers for terms; those the index has of old keep theirs."""

    def __init__(self, path: Path, db: sqlite3.Connection, checksums: Checksums) -> None:
        self._path = path
        self._db = db
        self._checksums = checksums
        self._next: int = database.get_meta(db, "next_term")

    def has(self, namespace: int) -> bool:
        """Whether the index has any terms of a namespace."""
        return self._db.execute("SELECT 1 FROM terms WHERE namespace = ? LIMIT 1", (namespace,)).fetchone() is not None

    def of(self, namespace: int, terms: Sequence[str], *, all_new: bool) -> np.ndarray:
        """The numbers of terms, new ones for those the index does not have."""
        numbers = np.full(len(terms), -1, np.int64)
        if not all_new:
            find = "SELECT number FROM terms WHERE namespace = ? AND term = ?"
            for i, term in enumerate(terms):
                numbers[i] = database.term_number(self._db.execute(find, (namespace, term)).fetchone(), self._path)
        new = np.flatnonzero(numbers < 0).tolist()
        if self._next + len(new) > MOST_TERMS:
            raise VizslaError(f"the index would have more than {MOST_TERMS:,} different terms, the most it can have")
        numbers[new] = np.arange(self._next, self._next + len(new))
        rows = [(namespace, terms[i], number) for number, i in enumerate(new, self._next)]
        self._db.executemany("INSERT INTO terms VALUES (?, ?, ?)", rows)
        self._checksums.add("terms", rows)
        self._next += len(new)
        database.set_meta(self._db, "next_term", self._next)
        return numbers


class _Namespace:
    """One namespace's rows, and for each analyst the index's numbers of the terms it has said."""

    def __init__(self, place: int, component: Component, terms: TermNumbers) -> None:
        self._place = place
        self._component = component
        self.model_name = component.name
        self._terms = terms
        self._numbers: dict[int, np.ndarray] = {}
        self._empty = not terms.has(place)
        self._pending: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._dense: list[np.ndarray] = []
        self.bytes = 0
        self.postings = 0

    def take_in(self, analyst: int, fresh: bool, rows: Rows) -> None:
        # What an analyst says first is new to an empty index, until another analyst, or the same anew, says terms.
        only = self._empty and (not self._numbers or (not fresh and list(self._numbers) == [analyst]))
        self._empty = only
        known = np.zeros(0, np.uint32) if fresh else self._numbers[analyst]
        if rows.terms:
            numbers = self._terms.of(self._place, rows.terms, all_new=only).astype(np.uint32)
            known = np.concatenate([known, numbers])
        self._numbers[analyst] = known
        entry = (rows.counts, known[rows.indices], rows.values, rows.sizes)
        self._pending.append(entry)
        self.bytes += sum(array.nbytes for array in entry)
        self.postings += len(rows.indices)
        if rows.dense is not None:
            self._dense.append(rows.dense)
            self.bytes += rows.dense.nbytes

    def take_dense(self) -> np.ndarray | None:
        """The dense vectors of all rows, None where the namespace has none."""
        pending, self._dense = self._dense, []
        return np.concatenate(pending) if pending else None

    def take(self) -> tuple[np.ndarray, ...]:
        """Length codes, sizes, row lengths, term numbers and values of all rows."""
        pending, self._pending, self.bytes, self.postings = self._pending, [], 0, 0
        counts, indices, values, sizes = (np.concatenate(column) for column in zip(*pending, strict=True))
        return self._component.length_codes(sizes), sizes, counts, indices, values
