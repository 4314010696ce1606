"""The writer of a collection: documents in, segments and rows out, one atomic commit at the end."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import Document
from vizsla.datasets.document import refusal
from vizsla.engine import build_segment
from vizsla.errors import VizslaError
from vizsla.index import database, files
from vizsla.models import Component, Model
from vizsla.vectors import SparseVectors

BATCH_DOCUMENTS = 2000
BUFFER_BYTES = 256 << 20
BYTES_PER_POSTING = 8


@dataclass
class Added:
    """What `add` did: how many documents, and which of them have no text to be found by."""

    documents: int = 0
    empty: list[Document] = field(default_factory=list)


class Writer:
    """Holds the writer's lock from its first document to the commit.

    Postings gather in memory up to a bound and then go to disk as a segment of the coming generation, together
    with the documents' rows; only the commit makes that generation the current one.
    """

    def __init__(self, path: Path, model: Model, wait: float = 5.0) -> None:
        self._path = path
        self._lock = database.WriterLock(path, wait)
        try:
            self._db = database.connect(path, write=True)
            with database.told_plainly(path):
                self._db.execute("PRAGMA synchronous=FULL")
                database.sweep(self._db)
                self._generation = database.get_meta(self._db, "generation") + 1
                self._next_number: int = database.get_meta(self._db, "next_number")
                live = {name for (name,) in self._db.execute("SELECT id FROM segments")}
                files.sweep_segments(path, live)
                self._has_documents = self._next_number > 0
                self._db.execute("BEGIN IMMEDIATE")
                terms = _Terms(self._db)
                self._namespaces = [_Namespace(p.component, terms) for p in model.parts]
        except BaseException:
            self._lock.release()
            raise
        self._fields = list(dict.fromkeys(f for p in model.parts for f in p.component.fields))
        self._first_number = self._next_number

    def add(self, documents: Iterable[Document]) -> Added:
        """Take documents in; they can be found after the commit."""
        added = Added()
        stream = iter(documents)
        while batch := list(islice(stream, BATCH_DOCUMENTS)):
            self._add_batch(batch, added)
            if sum(n.buffered for n in self._namespaces) * BYTES_PER_POSTING > BUFFER_BYTES:
                self._flush()
        return added

    def _add_batch(self, batch: list[Document], added: Added) -> None:
        texts = [document.texts(self._fields) for document in batch]
        with database.told_plainly(self._path):
            self._insert(batch)
            lengths = [n.read(texts) for n in self._namespaces]
        self._next_number += len(batch)
        added.documents += len(batch)
        added.empty.extend(d for d, n in zip(batch, np.sum(lengths, axis=0), strict=True) if n == 0)

    def _insert(self, batch: list[Document]) -> None:
        if self._has_documents:
            for document in batch:
                known = "SELECT 1 FROM documents WHERE id = ? AND generation < ?"
                if self._db.execute(known, (document.id, self._generation)).fetchone():
                    raise refusal(f"the id {document.id!r} is in the collection already", document.origin)
        rows = [(self._next_number + i, d.id, self._generation, _as_json(d)) for i, d in enumerate(batch)]
        insert = "INSERT INTO documents VALUES (?, ?, ?, ?)"
        try:
            self._db.executemany(insert, rows)
        except sqlite3.IntegrityError:
            raise self._repeated_id(batch) from None

    def _repeated_id(self, batch: list[Document]) -> VizslaError:
        """Find the document whose id came before: in this batch, or in one before it."""
        self._db.execute("DELETE FROM documents WHERE number >= ?", (self._next_number,))
        seen: set[str] = set()
        for d in batch:
            known = "SELECT 1 FROM documents WHERE id = ? AND generation = ?"
            if d.id in seen or self._db.execute(known, (d.id, self._generation)).fetchone():
                return refusal(f"the id {d.id!r} appears a second time; every document needs its own", d.origin)
            seen.add(d.id)
        raise AssertionError("an id clashed, but none is there twice")

    def _flush(self) -> None:
        """Write what is buffered as a segment of the coming generation."""
        count = self._next_number - self._first_number
        if count == 0:
            return
        statistics = {n.name: n.statistics() for n in self._namespaces}
        blocks = [n.take() for n in self._namespaces]
        numbers = np.arange(self._first_number, self._next_number)
        pointers = _joined_pointers([b.pointers for b in blocks])
        segment = build_segment(
            numbers,
            np.array([b.length_codes for b in blocks]),
            pointers,
            np.concatenate([b.indices for b in blocks]),
            np.concatenate([b.values for b in blocks]),
        )
        name = secrets.token_hex(6)
        written = files.write_segment(self._path, name, segment)
        with database.told_plainly(self._path):
            row = (name, self._generation, count, json.dumps(statistics), json.dumps(written))
            self._db.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
            self._db.execute("COMMIT")
            self._db.execute("BEGIN IMMEDIATE")
        self._first_number = self._next_number

    def commit(self) -> None:
        """Make everything added visible, all at once; all that is left to do then is to close."""
        self._flush()
        with database.told_plainly(self._path):
            database.set_meta(self._db, "generation", self._generation)
            database.set_meta(self._db, "next_number", self._next_number)
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Give up what is not committed and free the lock."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._db.close()
        self._lock.release()


@dataclass
class _Block:
    """The rows of one namespace between two flushes."""

    pointers: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    length_codes: np.ndarray


class _Terms:
    """Numbers for terms; those the index has of old keep theirs."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._next: int = database.get_meta(db, "next_term")
        self._fresh = self._next == 0

    def number(self, namespace: str, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms this writer has not met before."""
        numbers = np.full(len(terms), -1, np.int64)
        if not self._fresh:
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


class _Namespace:
    """One namespace's side of the writer: its reader, its terms' numbers, its rows not yet flushed."""

    def __init__(self, component: Component, terms: _Terms) -> None:
        self.name = component.namespace
        self.buffered = 0
        self._component = component
        self._reader = component.reader()
        self._terms = terms
        self._numbers = np.zeros(0, np.int64)
        self._pending: list[tuple[SparseVectors, np.ndarray, np.ndarray]] = []

    def read(self, texts: list[dict[str, str]]) -> np.ndarray:
        """Read documents into the buffer; gives their lengths."""
        vectors, lengths = self._reader.read(texts)
        ((_, terms),) = vectors.vocabulary.parts
        new = terms[len(self._numbers) : len(vectors.vocabulary)]
        if new:
            self._numbers = np.concatenate([self._numbers, self._terms.number(self.name, new)])
        self._pending.append((vectors, self._numbers[vectors.indices], lengths))
        self.buffered += len(vectors.indices)
        return lengths

    def statistics(self) -> dict[str, int]:
        """The statistics of what is buffered."""
        lengths = np.concatenate([lengths for _, _, lengths in self._pending])
        return {
            "documents": int(np.count_nonzero(lengths)),
            "total_length": int(lengths.sum()),
            "longest": int(lengths.max()),
        }

    def take(self) -> _Block:
        """What is buffered, as one block; the buffer is empty then."""
        pending, self._pending, self.buffered = self._pending, [], 0
        return _Block(
            _joined_pointers([v.pointers for v, _, _ in pending]),
            np.concatenate([numbers for _, numbers, _ in pending]),
            np.concatenate([v.values for v, _, _ in pending]),
            self._component.length_codes(np.concatenate([lengths for _, _, lengths in pending])),
        )


def _joined_pointers(pointers: list[np.ndarray]) -> np.ndarray:
    """The row pointers of blocks laid end to end."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(p) for p in pointers]))])


def _as_json(document: Document) -> str:
    """The content as stored; half a surrogate pair is a ValueError here, too."""
    try:
        text = json.dumps(document.content, ensure_ascii=False, allow_nan=False)
        (document.id + text).encode("utf-8")
    except (TypeError, ValueError) as e:
        raise refusal(f"the document {document.id!r} cannot be stored as JSON ({e})", document.origin) from None
    return text
