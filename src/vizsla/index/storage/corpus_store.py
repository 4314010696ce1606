"""Documents on disk that are read by their number and found by their id: what a pass over a corpus leaves behind.

Training and fitting go through a corpus several times, and look up documents in between. The store is written once,
while the corpus is read. Documents lie in a temporary file; memory holds where each begins, and the ids as an index
stores them: some twenty bytes a document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from vizsla import scratch
from vizsla.errors import VizslaError
from vizsla.index.storage.stored_ids import StoredIds, StoredTexts
from vizsla.lazy import cached_property
from vizsla.models import field_text
from vizsla.models.components import batches_of
from vizsla.plain_data import parse_json
from vizsla.runs.documents import Document, FieldNames, Origin

_BLOCK = 1024  # documents whose ids are taken at once


class CorpusStore(Sequence[Document]):
    """Documents in the order of their corpus; a document's number is its place in it.

    >>> store = CorpusStore.of([Document("d7", {"text": "Dogs bark."}), Document("cat", {"text": "Cats purr."})])
    >>> len(store), store[1].content, store.numbers(["cat", "dog", "d7"]).tolist()
    (2, {'text': 'Cats purr.'}, [1, -1, 0])
    """

    def __init__(self, lines: Sequence[str], ids: StoredIds) -> None:
        self._lines, self._ids = lines, ids

    @classmethod
    def of(cls, documents: Iterable[Document]) -> CorpusStore:
        """Write documents to a temporary file; a store is given back as it is."""
        if isinstance(documents, CorpusStore):
            return documents
        ids = _IdsOf(documents)
        lines = scratch.StoredTexts.of(map(_line, ids))
        return cls(lines, ids.stored())

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | Sequence[Document]:
        if isinstance(number, slice):
            return ChosenDocuments(self, np.arange(len(self))[number])
        return _document(self._lines[number])

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self._lines)

    def numbers(self, ids: Sequence[str]) -> np.ndarray:
        """[ids] the number of the document with each id; -1 for none. Of equal ids the last one counts."""
        return self._ids.rows_of(StoredTexts.of(ids))

    def chosen(self, numbers: np.ndarray) -> ChosenDocuments:
        """The documents with some numbers, read when they are looked at."""
        return ChosenDocuments(self, numbers)

    def texts(self, fields: Sequence[str]) -> Iterator[str]:
        """The fields of each document, joined, one document at a time."""
        return (field_text(document.content, fields) for document in self)

    @cached_property
    def contents(self) -> Sequence[Mapping[str, Any]]:
        """The fields of the documents, as a model is fitted to them."""
        return Contents(self)


class ChosenDocuments(Sequence[Document]):
    """Some documents of others, given by their numbers there.

    >>> store = CorpusStore.of([Document(name, {}) for name in "abc"])
    >>> [document.id for document in store.chosen(np.array([2, 0]))]
    ['c', 'a']
    """

    def __init__(self, documents: Sequence[Document], numbers: np.ndarray) -> None:
        self._documents, self._numbers = documents, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | Sequence[Document]:
        if isinstance(number, slice):
            return ChosenDocuments(self._documents, self._numbers[number])
        return self._documents[int(self._numbers[number])]


class Contents(Sequence[Mapping[str, Any]]):
    """The fields of documents without their ids, read when they are looked at."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, number: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, number: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(number, slice):
            return Contents(self._documents[number])
        return self._documents[number].content

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (document.content for document in self._documents)


class _IdsOf:
    """Passes documents on and gathers their ids."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents, self._parts = documents, list[StoredTexts]()

    def __iter__(self) -> Iterator[Document]:
        for block in batches_of(self._documents, _BLOCK):
            self._parts.append(StoredTexts.of([document.id for document in block]))
            yield from block

    def stored(self) -> StoredIds:
        """The ids of all documents that were passed on."""
        return StoredIds.of(StoredTexts.concatenated(self._parts))


def _line(document: Document) -> str:
    origin = document.origin
    place = None if origin is None else [origin.file, origin.line]
    names = document.source_names
    keys = None if names is None else [names.id, names.text, names.title]
    try:
        return json.dumps([document.id, dict(document.content), place, keys])
    except (TypeError, ValueError) as e:
        raise VizslaError(f"the document {document.id!r} has a field that is not plain data ({e})") from None


def _document(line: str) -> Document:
    doc_id, content, place, keys = parse_json(line)
    return Document(doc_id, content, place and Origin(*place), keys and FieldNames(*keys))
