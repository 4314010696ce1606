"""Documents and their rows in index.db, as a transaction of a writer changes them."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from vizsla.datasets.passages import Splitter
from vizsla.index.storage import database
from vizsla.index.storage.checksums import Checksums
from vizsla.index.storage.id_files import find_passages
from vizsla.index.writing.document_ids import DocumentIds

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
    ) -> None:
        """`generation`: the number of the next commit."""
        self._path = path
        self._db = db
        self._checksums = checksums
        self._generation = generation
        self._splitter = splitter
        self._ids = ids
        self._store_texts: bool = database.get_meta(db, "stored")
        self._deleted = array("q")

    @property
    def store_texts(self) -> bool:
        """Whether the index keeps the texts that the model reads."""
        return self._store_texts

    @property
    def deleted(self) -> np.ndarray:
        """The insertion numbers of the documents that the next commit deletes, ascending."""
        return np.sort(np.array(self._deleted, np.int64))

    def find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Ids and insertion numbers of living documents, or of all their passages."""
        return self._ids.find(ids) if self._splitter is None else find_passages(self._ids.find, ids)

    def insert(self, first: int, stored: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Add rows with ids, metadata and fields; their insertion numbers begin with `first`."""
        self._ids.add([doc_id for doc_id, _, _ in stored])
        metadata = [(number, row[1]) for number, row in enumerate(stored, first) if row[1] is not None]
        self._db.executemany("INSERT INTO documents VALUES (?, ?)", metadata)
        self._checksums.add("documents", ((number, text, None) for number, text in metadata))
        if self._store_texts:
            fields = [(number, row[2]) for number, row in enumerate(stored, first)]
            self._db.executemany("INSERT INTO contents VALUES (?, ?)", fields)
            self._checksums.add("documents", ((number, None, text) for number, text in fields))

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
        restored = [(number, self._generation) for number in replaced]
        self._db.executemany("DELETE FROM deletions WHERE number = ? AND generation = ?", restored)
        self._checksums.remove("deletions", restored)
        self._deleted = array("q", sorted(set(self._deleted).difference(replaced)))
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
