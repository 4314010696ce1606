"""A collection that a framework writes to: each change is one commit, and threads take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from vizsla.adapters.filters import ALL
from vizsla.errors import UnsupportedError, VizslaError, kind_of
from vizsla.index import Collection, Index
from vizsla.index.searchable import SearchableCollection
from vizsla.index.storage import forking
from vizsla.index.storage.in_memory import NAME as IN_MEMORY
from vizsla.models import Model, parse_model
from vizsla.retrievers import open
from vizsla.retrievers.locations import folder_of
from vizsla.runs import Document, Filter, FilterLike, Hits
from vizsla.runs.retriever import document_ids

Stored = Collection | str | PathLike[str]
"""A collection, or the location of one."""


class Store:
    """A collection behind a framework's own store.

    `collection`: a Collection, a location that `vizsla.open` opens, or `:memory:` for an index in memory. `model`: if
    the folder does not exist yet, it becomes an index with this model; with `create` it does so for BM25 as well.
    A filter finds nothing as long as there are no documents, whose fields it could name.

    >>> store = Store(":memory:")
    >>> store.add([record("1", "Dogs bark.", {"lang": "en"}), record("2", "Katzen.", {"lang": "de"})])
    >>> store.search("dogs", 10).ids, [document.id for document in store.documents('lang = "de"')]
    (['1'], ['2'])
    >>> store.delete(["2", "3"])
    1
    """

    def __init__(self, collection: Stored, model: Model | str | None = None, *, create: bool = False) -> None:
        self.collection = _opened(collection, model, create=create)
        self._begin_turns()
        forking.watch(self, lambda store, _: store._begin_turns())

    def _begin_turns(self) -> None:
        self.turns = threading.RLock()
        """Held by a thread that changes the collection, and by one that looks before it does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.collection,)

    def __len__(self) -> int:
        return len(self.collection)

    @contextmanager
    def _change(self) -> Iterator[Collection]:
        """A context for a change, which is committed at the end, or discarded if it fails."""
        with self.turns:
            try:
                yield self.collection
                self.collection.commit()
            except BaseException:
                if isinstance(self.collection, SearchableCollection):  # a server has changes of others, too
                    self.collection.rollback()
                raise

    def add(self, documents: Sequence[Document]) -> None:
        """Add documents; each replaces the one with its id."""
        if documents:
            with self._change() as collection:
                collection.add(documents)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete the documents with these ids that are there; how many there were."""
        wanted = document_ids(ids)
        if not wanted:
            return 0
        with self._change() as collection:
            return collection.delete(wanted)

    def delete_matching(self, condition: FilterLike) -> int:
        """Delete the documents that pass a filter, or all; how many there were."""
        chosen = Filter.of(condition) or Filter.parse(ALL)
        if not len(self):
            return 0
        with self._change() as collection:
            return collection.delete(filter=chosen)

    def search(self, query: str, k: int, condition: FilterLike = None, **options: Any) -> Hits:
        """The k best documents; `options` are those of `Collection.search_many`. An empty query finds nothing."""
        chosen = Filter.of(condition)
        if chosen is not None and not len(self):
            chosen = None
        return self.collection.search_many([query], k, chosen, **options)[0]

    def count(self, condition: FilterLike) -> int:
        """How many documents pass a filter."""
        chosen = Filter.of(condition)
        return self.collection.count(filter=chosen) if len(self) else 0

    def get(self, ids: Iterable[str]) -> list[Document]:
        """The documents with these ids that are there, in this order."""
        wanted = list(dict.fromkeys(document_ids(ids)))
        known = self.collection.get_many(wanted)
        return [known[each] for each in wanted if each in known]

    def documents(self, condition: FilterLike = None) -> list[Document]:
        """The documents that pass a filter, or all, in the order of insertion."""
        chosen, collection = Filter.of(condition), self.collection
        if not isinstance(collection, SearchableCollection):
            raise UnsupportedError("an index of a server cannot list its documents; search it, or get them by id")
        if chosen is None:
            return list(collection.documents())
        return self.get(collection.matching_ids(chosen)) if len(self) else []


def record(doc_id: str, text: str, fields: Mapping[str, Any], text_field: str = "text") -> Document:
    """A document of a framework as Vizsla's: the text in its field, beside the others."""
    if not isinstance(fields, Mapping):
        raise VizslaError(f"the document {doc_id!r}: metadata are an object, not {kind_of(fields)}")
    if text_field in fields:
        raise VizslaError(
            f"the document {doc_id!r} has metadata under {text_field!r}, the field of its text; give them another name"
        )
    return Document(doc_id, {text_field: text, **fields})


def _opened(collection: object, model: Model | str | None, *, create: bool) -> Collection:
    if isinstance(collection, str) and collection == IN_MEMORY:
        return Index.create(IN_MEMORY, model)
    given = collection
    if isinstance(collection, str | PathLike):
        folder = folder_of(collection)
        if folder and (create or model is not None) and not Path(folder).exists():
            return Index.create(folder, model)
        given = open(collection)
    if not isinstance(given, Collection):
        raise VizslaError(f"expected a Collection, as vizsla.open(location) gives it, not {kind_of(given)}")
    if model is not None:
        _check_model(given, parse_model(model) if isinstance(model, str) else model)
    return given


def _check_model(collection: Collection, model: Model) -> None:
    if collection.name != model.name and not model.needs_fit:
        raise VizslaError(f"the index has the model {collection.name}, not {model.name}; leave the model out")
