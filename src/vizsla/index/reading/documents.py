"""The documents of an index: their ids, and what is stored of them."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Splitter, document_of
from vizsla.datasets.passages import MARK
from vizsla.engine.arrays import distinct
from vizsla.errors import CollectionError
from vizsla.index.reading.connection import ReadConnection
from vizsla.index.storage import database
from vizsla.index.storage.database import stored_contents
from vizsla.index.storage.document_ids import SegmentIds, find_in_segments, find_passages
from vizsla.index.storage.stored_ids import DamagedTextsError, IdLists, id_lists, ids_at
from vizsla.lazy import cached_property
from vizsla.runs import Document

_MAX_SQL_VALUES = 30_000
_BATCH = 1000  # documents that are read at once
_FIRST = f"{MARK}0".encode()  # how the id of a first passage ends


class FoundDocuments:
    """Documents that a search has found. They are read lazily: all at once, when the first of them is accessed.

    When the store is closed, it reads the unread documents that are still referenced.
    """

    def __init__(self, store: DocumentStore, numbers: np.ndarray) -> None:
        self._store: DocumentStore | None = store
        self._numbers = numbers
        self._contents: dict[int, Mapping[str, Any]] = {}
        self._problem: CollectionError | None = None

    def document(self, number: int, doc_id: str) -> Document:
        """The document with an insertion number; a passage of a document goes by the id of the document."""
        self.read()
        if self._problem is not None:
            raise self._problem
        return Document(doc_id, self._contents[number])

    def read_before_closing(self) -> None:
        """Read the documents before the index closes. An error is raised later, when a document is looked at."""
        try:
            self.read()
        except CollectionError as e:
            self._problem, self._store = e, None

    def read(self) -> None:
        """Read the documents, unless this has been done."""
        store = self._store
        if store is not None:
            with store.turn:
                if self._store is not None:
                    stored = store.by_number(distinct(self._numbers).tolist())
                    self._contents = {number: document.content for number, document in stored.items()}
                    self._store = None


class FoundWindows(FoundDocuments):
    """Documents of which a search shows several passages that follow one another, by the number of the one it found."""

    def __init__(self, store: DocumentStore, windows: Mapping[int, np.ndarray], splitter: Splitter | None) -> None:
        super().__init__(store, np.concatenate([*windows.values(), np.zeros(0, np.int64)]))
        self._windows = windows
        self._splitter = splitter

    def document(self, number: int, doc_id: str) -> Document:
        """The passages that are shown with the one of a number, as one text."""
        assert self._splitter is not None
        passages = [super(FoundWindows, self).document(row, doc_id) for row in self._windows[number].tolist()]
        return Document(doc_id, self._splitter.joined(passages))


class DocumentStore:
    """Documents by insertion number or by id. In an index of passages the numbers are those of passages."""

    def __init__(
        self,
        connection: ReadConnection,
        meta: Mapping[str, Any],
        splitter: Splitter | None,
        segments: Sequence[SegmentIds] = (),
    ) -> None:
        self._connection = connection
        self._is_unlocked = connection.is_unlocked
        self._segments = segments
        self._found: weakref.WeakSet[FoundDocuments] = weakref.WeakSet()
        self.turn = connection.lock
        """Threads that read the documents of hits wait for each other."""
        self._splitter = splitter
        self.has_texts: bool = meta["stored"]
        """Whether the index keeps the texts that the model reads."""

    def found(self, numbers: np.ndarray, windows: Mapping[int, np.ndarray] | None = None) -> FoundDocuments:
        """Documents that are read when they are accessed, even after this store is closed.

        `numbers`: the insertion numbers of the results of one query or more. `windows`: by the number of each passage,
        those that are shown with it.
        """
        found = FoundDocuments(self, numbers) if windows is None else FoundWindows(self, windows, self._splitter)
        if self._is_unlocked:  # what is read later could be of another commit
            found.read()
        else:
            self._found.add(found)
        return found

    def close(self) -> None:
        """Read the documents of unread results while the index is still open."""
        for found in list(self._found):
            found.read_before_closing()
        self._found.clear()

    def reopen_in_child(self) -> None:
        """In a forked child: read results from before the fork through a new connection, when they are accessed."""
        self._found = weakref.WeakSet()
        self._connection = _ChildConnection(self._connection.path)
        self.turn = self._connection.lock

    def count(self, stored: int) -> int:
        """How many documents there are, given how many rows are stored; a document in passages counts once."""
        return stored if self._splitter is None else self._count_of_passage_0

    @cached_property
    def _count_of_passage_0(self) -> int:
        return len(self.first_passages())

    def first_passages(self) -> np.ndarray:
        """The insertion numbers of the first passages of all documents, ascending."""
        numbers = [segment.ending(_FIRST).astype(np.int64) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.int64), *numbers])

    def ids_of(self, numbers: np.ndarray) -> list[str]:
        """The ids of documents by insertion numbers, in their order."""
        if len(numbers) == 0:
            return []
        try:
            return ids_at([segment.rows_of(numbers) for segment in self._segments])
        except DamagedTextsError:
            raise database.damaged_segment(self._connection.path) from None

    def id_lists(self, numbers: np.ndarray, bounds: np.ndarray) -> Sequence[list[str]]:
        """The ids of several rankings of insertion numbers: the i-th has those from bounds[i] to bounds[i + 1].

        All are read now, and become texts when somebody looks at them.
        """
        if len(numbers) == 0:
            return IdLists([], np.zeros(len(bounds), np.int64))
        try:
            return id_lists([segment.rows_of(numbers) for segment in self._segments], bounds)
        except DamagedTextsError:
            raise database.damaged_segment(self._connection.path) from None

    def ids(self, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of documents by insertion number."""
        wanted = list(numbers)
        return dict(zip(wanted, self.ids_of(np.array(wanted, np.int64)), strict=True))

    def metadata(self, numbers: Iterable[int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Id and metadata of rows, in the order of their numbers."""
        wanted = sorted(numbers)
        find = "SELECT number, NULL, metadata FROM documents WHERE number IN (SELECT value FROM json_each(?))"
        rows = self._connection.rows(find, (json.dumps(wanted),))
        yield from ((d.id, d.content) for d in self._documents(self.ids(wanted), rows).values())

    def contents(self, numbers: np.ndarray, with_texts: bool) -> list[Mapping[str, Any]]:
        """The metadata of some rows by ascending numbers and, if wanted and stored, the texts that the model reads."""
        wanted: list[int] = numbers.tolist()
        if not wanted:
            return []
        columns, table = "number, NULL, metadata", "documents"
        if with_texts and self.has_texts:
            columns, table = "number, fields, metadata", "contents LEFT JOIN documents USING (number)"
        which: tuple[str, list[Any]] = "number IN (SELECT value FROM json_each(?))", [json.dumps(wanted)]
        if wanted[-1] - wanted[0] == len(wanted) - 1:  # all in between
            which = "number BETWEEN ? AND ?", [wanted[0], wanted[-1]]
        rows = self._connection.rows(f"SELECT {columns} FROM {table} WHERE {which[0]}", which[1])
        found = stored_contents(self._connection.path, rows)
        return [found.get(number, {}) for number in wanted]

    def by_number(self, numbers: Iterable[int]) -> dict[int, Document]:
        """Stored documents by number."""
        wanted = sorted(numbers)  # as they lie on the disk
        columns, table = "number, NULL, metadata", "documents"
        if self.has_texts:
            columns, table = "number, fields, metadata", "contents LEFT JOIN documents USING (number)"
        rows: list[Any] = []
        for a in range(0, len(wanted), _MAX_SQL_VALUES):
            part = wanted[a : a + _MAX_SQL_VALUES]
            marks = ",".join("?" * len(part))
            select = f"SELECT {columns} FROM {table} WHERE number IN ({marks})"
            rows += self._connection.rows(select, part)
        if self.has_texts and len(rows) < len(wanted):
            raise self._not_stored()
        return self._documents(self.ids(wanted), rows)

    def read_by_models(self, numbers: Iterable[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of stored documents by number, as models read them; passages with the headings above them."""
        stored = self.by_number(numbers).items()
        headed = None if self._splitter is None else self._splitter.headed
        return {number: d.content if headed is None else headed(d.content) for number, d in stored}

    def _documents(
        self, ids: Mapping[int, str], rows: Sequence[tuple[int, str | None, str | None]]
    ) -> dict[int, Document]:
        """Documents by number from their ids, and from the rows of those that have any."""
        contents = stored_contents(self._connection.path, rows)
        return {number: Document(doc_id, contents.get(number, {})) for number, doc_id in ids.items()}

    def by_id(self, ids: Iterable[str]) -> dict[str, Document]:
        """Stored documents by id, without those that are not there; passages are joined to whole documents."""
        numbers = self.numbers_of_many(ids)
        stored = self.by_number({n for some in numbers.values() for n in some})
        return {doc_id: self._whole([stored[n] for n in some]) for doc_id, some in numbers.items() if some}

    def all(self, numbers: Sequence[int]) -> Iterator[Document]:
        """The documents with these numbers, in their order; passages are joined to whole documents."""
        batches = (numbers[a : a + _BATCH] for a in range(0, len(numbers), _BATCH))  # `rows` can be stopped
        rows = (document for batch in batches for _, document in sorted(self.by_number(batch).items()))
        if self._splitter is None:
            yield from rows
        else:  # the passages of a document follow one another
            yield from (self._whole(list(passages)) for _, passages in groupby(rows, lambda p: document_of(p.id)))

    def numbers_of(self, doc_id: str) -> list[int]:
        """The insertion numbers of the live document with an id: one, or one for each of its passages."""
        return self.numbers_of_many([doc_id])[doc_id]

    def numbers_of_many(self, ids: Iterable[str]) -> dict[str, list[int]]:
        """The insertion numbers of live documents by id; see `numbers_of`."""
        numbers: dict[str, list[int]] = {doc_id: [] for doc_id in ids}
        wanted = list(numbers)
        found = self._find(wanted) if self._splitter is None else find_passages(self._find, wanted)
        for doc_id, number in found:
            numbers[doc_id].append(number)
        return numbers

    def _find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        try:
            return find_in_segments(self._segments, ids)
        except DamagedTextsError:
            raise database.damaged_segment(self._connection.path) from None

    def _whole(self, rows: Sequence[Document]) -> Document:
        return rows[0] if self._splitter is None else self._splitter.whole(rows)

    def _not_stored(self) -> CollectionError:
        path = self._connection.path
        return CollectionError(f"{path}: some indexed documents are missing from the store; run 'vizsla verify'")


class _ChildConnection(ReadConnection):
    """A connection of a forked child, opened at the first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._is_open = False

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.lock:
            if not self._is_open:
                super().__init__(self.path)
                self._is_open = True
            return super().rows(sql, values)
