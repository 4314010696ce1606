"""The documents of an index: their ids, and what is stored of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from vizsla.datasets import Splitter, document_of
from vizsla.datasets.passages import MARK
from vizsla.errors import CollectionError
from vizsla.index.reading.connection import ReadConnection
from vizsla.index.storage import database
from vizsla.runs import Document

MAX_CACHED_IDS = 500_000
_MAX_SQL_VALUES = 30_000
_BATCH = 1000  # documents that are read at once
_LIVING = "NOT EXISTS (SELECT 1 FROM deletions WHERE number = documents.number AND generation <= ?)"


_decode = json.JSONDecoder().raw_decode  # fewer calls than json.loads


class DocumentStore:
    """Documents by insertion number or by id. In an index of passages the numbers are those of passages."""

    def __init__(self, connection: ReadConnection, meta: Mapping[str, Any], splitter: Splitter | None) -> None:
        self._connection = connection
        self._generation: int = meta["generation"]
        self._splitter = splitter
        self.has_texts: bool = meta["stored"]
        """Whether the index keeps the texts that the model reads."""
        self._ids: dict[int, str] = {}

    @property
    def cached_ids(self) -> int:
        """How many ids are kept in memory."""
        return len(self._ids)

    def count(self, stored: int) -> int:
        """How many documents there are, given how many rows are stored; a document in passages counts once."""
        return stored if self._splitter is None else self._count_of_passage_0

    @cached_property
    def _count_of_passage_0(self) -> int:
        return int(self._of_first_passages("count(*)"))

    def first_passages(self) -> list[int]:
        """The insertion numbers of the first passages of all documents."""
        numbers: list[int] = json.loads(self._of_first_passages("json_group_array(number)"))
        return numbers

    def _of_first_passages(self, what: str) -> Any:
        first = f"{MARK}0".encode()  # bytes, since substr of SQLite stops a text at a NUL
        find = f"SELECT {what} FROM documents WHERE generation <= ? AND substr(CAST(id AS BLOB), ?) = ?"
        ((found,),) = self._connection.rows(find, (self._generation, -len(first), first))
        return found

    def ids(self, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of documents by number; what was looked up is kept, as rankings share documents."""
        wanted = set(numbers)
        known = self._ids
        if missing := sorted(wanted.difference(known)):  # in the order they lie on the disk
            found = self._find_ids(missing)
            if len(known) + len(found) > MAX_CACHED_IDS:
                known = self._ids = {n: known[n] for n in wanted if n in known}
            known.update(found)
        return {n: known[n] for n in wanted}

    def _find_ids(self, numbers: list[int]) -> dict[int, str]:
        """All in one row: with many rows the GIL would be given up and waited for at each of them."""
        find = "SELECT json_group_object(number, id) FROM documents WHERE number IN (SELECT value FROM json_each(?))"
        ((found,),) = self._connection.rows(find, (json.dumps(numbers),))
        ids = {int(number): doc_id for number, doc_id in json.loads(found).items()}
        if len(ids) < len(numbers):
            raise self._not_stored()
        return ids

    def metadata(self, numbers: Iterable[int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Id and metadata of rows, in the order of their numbers."""
        find = "SELECT number, id, NULL, metadata FROM documents WHERE number IN (SELECT value FROM json_each(?))"
        rows = self._connection.rows(f"{find} ORDER BY number", (json.dumps(sorted(numbers)),))
        yield from ((document.id, document.content) for document in self._documents(rows).values())

    def by_number(self, numbers: Iterable[int]) -> dict[int, Document]:
        """Stored documents by number."""
        wanted = sorted(numbers)  # as they lie on the disk
        columns, table = "number, id, NULL, metadata", "documents"
        if self.has_texts:
            columns, table = "number, id, fields, metadata", "documents JOIN contents USING (number)"
        rows: list[Any] = []
        for a in range(0, len(wanted), _MAX_SQL_VALUES):
            part = wanted[a : a + _MAX_SQL_VALUES]
            marks = ",".join("?" * len(part))
            select = f"SELECT {columns} FROM {table} WHERE number IN ({marks})"
            rows += self._connection.rows(select, part)
        if len(rows) < len(wanted):
            raise self._not_stored()
        return self._documents(rows)

    def _documents(self, rows: Sequence[tuple[int, str, str | None, str | None]]) -> dict[int, Document]:
        """Documents from their rows."""
        documents = {}
        try:
            for number, doc_id, fields, metadata in rows:
                content, end = ({}, 0) if fields is None else _decode(fields)
                if metadata is not None:
                    more, metadata_end = _decode(metadata)
                    content = {**content, **more}
                    end += metadata_end
                if end != len(fields or "") + len(metadata or "") or type(content) is not dict:
                    raise ValueError
                documents[number] = Document(doc_id, content)
        except (ValueError, TypeError, RecursionError):
            raise database.damaged(self._connection.path, "what is stored of a document is not a JSON object") from None
        return documents

    def by_id(self, ids: Iterable[str]) -> dict[str, Document]:
        """Stored documents by id, without those that are not there; passages are joined to whole documents."""
        numbers = {doc_id: self.numbers_of(doc_id) for doc_id in ids}
        stored = self.by_number({n for some in numbers.values() for n in some})
        return {doc_id: self._whole([stored[n] for n in some]) for doc_id, some in numbers.items() if some}

    def all(self, numbers: Sequence[int]) -> Iterator[Document]:
        """The documents with these numbers, in their order; passages are joined to whole documents."""
        batches = (numbers[a : a + _BATCH] for a in range(0, len(numbers), _BATCH))
        rows = (document for batch in batches for _, document in sorted(self.by_number(batch).items()))
        if self._splitter is None:
            yield from rows
        else:  # the passages of a document follow one another
            yield from (self._whole(list(passages)) for _, passages in groupby(rows, lambda p: document_of(p.id)))

    def numbers_of(self, doc_id: str) -> list[int]:
        """The insertion numbers of the living document with an id: one, or one for each of its passages."""
        single = self._splitter is None
        first, last = (doc_id, doc_id) if single else (doc_id + MARK, doc_id + chr(ord(MARK) + 1))
        find = f"SELECT number, id FROM documents WHERE id BETWEEN ? AND ? AND generation <= ? AND {_LIVING}"
        rows = self._connection.rows(f"{find} ORDER BY number", (first, last, self._generation, self._generation))
        return [number for number, found in rows if single or document_of(found) == doc_id]

    def _whole(self, rows: Sequence[Document]) -> Document:
        return rows[0] if self._splitter is None else self._splitter.whole(rows)

    def _not_stored(self) -> CollectionError:
        path = self._connection.path
        return CollectionError(f"{path}: documents that are indexed are not stored; run 'vizsla verify'")
