"""The documents of an index as a transaction of a writer changes them: their ids, and their rows in index.db."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vizsla.datasets.passages import Splitter
from vizsla.index.storage import database
from vizsla.index.storage.arrays import Facts
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.document_ids import SegmentIds, find_in_segments, find_passages
from vizsla.index.storage.stored_ids import SHORT, DamagedTextsError, StoredIds, StoredTexts
from vizsla.index.writing.segment_state import OpenSegments
from vizsla.runs import Document

_BYTES_PER_ID = 100  # of an entry of a dictionary, beside the text, which is there twice


class DocumentIds:
    """Finds insertion numbers by ids. In an index of passages these are the ids of passages."""

    def __init__(self, path: Path, db: sqlite3.Connection, generation: int, first: int, opened: OpenSegments) -> None:
        """`generation` and `first`: the number of the next commit, and of the next document."""
        self._path = path
        self._db = db
        self._opened = opened
        self._segments = [
            opened.ids(path, name, facts) for name, facts, _ in database.segment_rows(db, path, generation)
        ]
        self._first = self._next = first
        self._texts: list[StoredTexts] = []
        self._pending: dict[str, int] = {}
        self.bytes = 0
        """About how much memory the ids take that are in no segment yet."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no documents."""
        return not self._segments and not self._pending

    def find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Ids and insertion numbers of live documents, in the order of the numbers."""
        found: list[tuple[str, int]] = []
        if not self._pending.keys().isdisjoint(ids):
            found += [(doc_id, self._pending[doc_id]) for doc_id in ids if doc_id in self._pending]
        if self._segments:
            try:
                found += find_in_segments(self._segments, ids)
            except DamagedTextsError:
                raise database.damaged_segment(self._path) from None
        if not found:
            return []
        select = "SELECT number FROM deletions WHERE number IN (SELECT value FROM json_each(?))"
        with database.using_sqlite(self._path):
            deleted = {number for (number,) in self._db.execute(select, (json.dumps([n for _, n in found]),))}
        return sorted((entry for entry in found if entry[1] not in deleted), key=lambda entry: entry[1])

    def add(self, ids: Sequence[str]) -> None:
        """Add the next documents, which are in no segment yet."""
        self._texts.append(StoredTexts.of(ids))
        self._pending.update(zip(ids, range(self._next, self._next + len(ids)), strict=True))
        self._next += len(ids)
        self.bytes += 2 * len(self._texts[-1].data) + len(ids) * _BYTES_PER_ID

    def undo(self, first: int, replaced: Sequence[int]) -> None:
        """Forget documents from a number on, and find again those that they had replaced."""
        self._pending = {doc_id: number for doc_id, number in self._pending.items() if number < first}
        rows = np.array([number - self._first for number in replaced if number >= self._first], np.int64)
        ids = StoredIds(StoredTexts.concatenated(self._texts)).at(rows)
        self._pending.update(zip(ids, (rows + self._first).tolist(), strict=True))

    def take_pending(self, numbers: np.ndarray) -> SegmentIds:
        """The ids of the documents that become a segment now; `numbers`: their insertion numbers."""
        segment = SegmentIds(numbers, StoredIds.of(StoredTexts.concatenated(self._texts)))
        self._first = self._next
        self._texts, self._pending, self.bytes = [], {}, 0
        self._segments.append(segment)
        return segment

    def written(self, name: str, files: Mapping[str, Facts], segment: SegmentIds) -> None:
        """Note the files of a new segment; a short one stays in memory for later transactions as well."""
        if len(segment.ids) <= SHORT:  # others are read again from their files, which take no memory
            self._opened.remember_ids(name, files, segment)


_VALUES_PER_QUERY = 10_000
_TABLES = ("documents", "contents")
T = TypeVar("T")


class DocumentRows:
    """Finds, adds and deletes documents or passages; the checksums of their rows follow."""

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        checksums: Checksums,
        generation: int,
        splitter: Splitter | None,
        ids: DocumentIds,
        store_texts: bool,
    ) -> None:
        """`generation`: the number of the next commit."""
        self._path = path
        self._db = db
        self._checksums = checksums
        self._generation = generation
        self._splitter = splitter
        self._ids = ids
        self.store_texts = store_texts
        """Whether the index keeps the texts that the model reads."""
        self._deleted = array("q")

    @property
    def deleted(self) -> np.ndarray:
        """The insertion numbers of the documents that the next commit deletes, ascending."""
        return np.sort(np.array(self._deleted, np.int64))

    def find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Ids and insertion numbers of live documents, or of all their passages."""
        return self._ids.find(ids) if self._splitter is None else find_passages(self._ids.find, ids)

    def contents(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The stored fields of live documents by id, as the transaction has left them; passages are joined."""
        found = self.find(ids)
        stored: dict[int, Mapping[str, Any]] = {}
        for chunk in _chunks([number for _, number in found]):
            select = "SELECT number, fields, metadata FROM contents LEFT JOIN documents USING (number) WHERE number IN "
            with database.using_sqlite(self._path):
                rows = self._db.execute(f"{select}({','.join('?' * len(chunk))})", chunk).fetchall()
            stored |= database.stored_contents(self._path, rows)
        rows_of: dict[str, list[Mapping[str, Any]]] = {}
        for doc_id, number in found:
            rows_of.setdefault(doc_id, []).append(stored[number])
        if self._splitter is None:
            return {doc_id: content for doc_id, (content,) in rows_of.items()}
        joined = self._splitter.joined
        return {doc_id: joined([Document(doc_id, row) for row in some]) for doc_id, some in rows_of.items()}

    def insert(self, first: int, stored: Sequence[tuple[str, str | None, str | None]]) -> int:
        """Add rows with ids, metadata and fields; their insertion numbers begin with `first`.

        Returns how many characters were stored.
        """
        self._ids.add([doc_id for doc_id, _, _ in stored])
        metadata = [(number, row[1]) for number, row in enumerate(stored, first) if row[1] is not None]
        self._db.executemany("INSERT INTO documents VALUES (?, ?)", metadata)
        self._checksums.add("documents", ((number, text, None) for number, text in metadata))
        texts = [text for _, text in metadata]
        if self.store_texts:
            fields = [(number, row[2]) for number, row in enumerate(stored, first)]
            self._db.executemany("INSERT INTO contents VALUES (?, ?)", fields)
            self._checksums.add("documents", ((number, None, text) for number, text in fields))
            texts += [text for _, text in fields if text is not None]
        return sum(map(len, texts))

    def mark_deleted(self, numbers: Sequence[int]) -> None:
        """Mark documents as deleted. Their rows stay until the commit, since readers or `undo` may need them."""
        rows = [(number, self._generation) for number in numbers]
        self._db.executemany("INSERT INTO deletions VALUES (?, ?)", rows)
        self._checksums.add("deletions", rows)
        self._deleted.extend(numbers)

    def undo(self, first: int, end: int, replaced: Sequence[int]) -> None:
        """Remove the rows from `first` on, mark them as deleted up to `end`, and restore the rows they replaced."""
        self._checksums.remove_documents(self._db, "number >= ?", (first,))
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE number >= ?", (first,))
        own = [number for number in self._deleted if number >= first]  # repeated ids of the same call
        restored = [(number, self._generation) for number in (*replaced, *own)]
        self._db.executemany("DELETE FROM deletions WHERE number = ? AND generation = ?", restored)
        self._checksums.remove("deletions", restored)
        self._deleted = array("q", sorted(set(self._deleted).difference(replaced, own)))
        self._ids.undo(first, replaced)
        self.mark_deleted(range(first, end))

    def drop_deleted(self) -> None:
        """Remove the rows of documents that the next commit deletes."""
        for chunk in _chunks(self.deleted.tolist()):
            chosen = f"number IN ({','.join('?' * len(chunk))})"
            self._checksums.remove_documents(self._db, chosen, tuple(chunk))
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table} WHERE {chosen}", chunk)


def _chunks(values: Sequence[T]) -> list[Sequence[T]]:
    """Values in parts that SQLite takes at once."""
    return [values[a : a + _VALUES_PER_QUERY] for a in range(0, len(values), _VALUES_PER_QUERY)]
