"""Haystack: any Retriever as a component of pipelines, any Collection as a document store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from vizsla.adapters.common import Searched, in_thread, needed, opened, text_and_fields
from vizsla.adapters.filters import haystack_condition
from vizsla.adapters.store import Store, Stored, record
from vizsla.errors import CollectionError, UnsupportedError, VizslaError, kind_of
from vizsla.index import Collection
from vizsla.models import Model
from vizsla.runs import Document as StoredDocument
from vizsla.runs import FilterLike, Retriever

with needed("Haystack", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError

_REST = "_haystack"
"""The field for what a document of Haystack has beside its id, content and meta: a blob, embeddings, a score."""


class VizslaDocumentStore:
    """A collection as Haystack's document store: documents are written, deleted, filtered and counted.

    The model of the collection reads texts. Embeddings and blobs are kept with the documents, and not searched. Each
    change is committed when its method returns. All methods may be called from any thread; each has an asynchronous
    one, as `write_documents_async`, which does not block the event loop.

    `collection`: a location that `vizsla.open` opens, `:memory:` for an index in memory, or a Collection (but then a
    pipeline cannot be saved). `model`: if the folder does not exist yet, it becomes an index for this model, as in
    `bm25`. `text_field`: the field that is `content`. `collection.close()` frees files and locks.

        store = VizslaDocumentStore("my.index", model="bm25")
        store.write_documents([Document(content="Dogs bark.", meta={"year": 1999})])
        VizslaRetriever(store).run(query="barking dogs")["documents"]
    """

    def __init__(self, collection: Stored, model: Model | str | None = None, text_field: str = "text") -> None:
        location = fspath(collection) if isinstance(collection, PathLike) else collection
        self._given: dict[str, Any] = {"collection": location, "model": model, "text_field": text_field}
        self._store = Store(collection, model)
        self.text_field = text_field

    @property
    def collection(self) -> Collection:
        """The collection that has the documents."""
        return self._store.collection

    def to_dict(self) -> dict[str, Any]:
        """The store as plain data, for pipelines that are saved."""
        for name in ("collection", "model"):
            if not isinstance(self._given[name], str | None):
                raise VizslaError(f"a {name} that was given as an object cannot be saved with a pipeline; give a text")
        return dict(default_to_dict(self, **self._given))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VizslaDocumentStore:
        """The store from plain data."""
        made: VizslaDocumentStore = default_from_dict(cls, data)
        return made

    def search(self, query: str, top_k: int, filters: Any = None) -> list[Document]:
        """The best documents for a query with their scores; the component `VizslaRetriever` does this."""
        hits = self._store.search(query, top_k, _condition(filters))
        return [_document(hit.document, self.text_field, score=hit.score) for hit in hits]

    def count_documents(self) -> int:
        """How many documents there are."""
        return len(self._store)

    def filter_documents(self, filters: Any = None) -> list[Document]:
        """The documents that pass Haystack's filters, or a condition such as `year >= 1999`; all without any."""
        with _filter_errors():
            return [_document(each, self.text_field) for each in self._store.documents(_condition(filters))]

    def write_documents(self, documents: Sequence[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Add documents; how many were written. `NONE` is `FAIL`: a document with an id that is taken is an error."""
        if not isinstance(documents, Sequence) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("write_documents() takes a list of Haystack's documents")
        with self._store.turns:
            if policy is DuplicatePolicy.OVERWRITE:
                self._store.add([self._record(each) for each in documents])
                return len(documents)
            new: dict[str, Document] = {}
            taken = {each.id for each in self._store.get(each.id for each in documents)}
            for each in documents:
                if each.id not in taken and each.id not in new:
                    new[each.id] = each
                elif policy is not DuplicatePolicy.SKIP:
                    where = "in the store already" if each.id in taken else "among these twice"
                    raise DuplicateDocumentError(f"a document with the id {each.id!r} is {where}; choose a policy")
            self._store.add([self._record(each) for each in new.values()])
            return len(new)

    def _record(self, document: Document) -> StoredDocument:
        data = document.to_dict(flatten=False)
        del data["id"], data["meta"]
        content = data.pop("content")
        rest = {name: value for name, value in data.items() if value is not None}
        rest |= {"content": None} if content is None else {}
        made = record(document.id, content or "", document.meta, self.text_field)
        return replace(made, content={**made.content, _REST: rest}) if rest else made

    def delete_documents(self, document_ids: Sequence[str]) -> None:
        """Delete the documents with these ids that are there."""
        self._store.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._store.delete_matching(None)

    def delete_by_filter(self, filters: Any) -> int:
        """Delete the documents that pass filters; how many there were."""
        with _filter_errors():
            return self._store.delete_matching(_needed(filters))

    def count_documents_by_filter(self, filters: Any) -> int:
        """How many documents pass filters."""
        with _filter_errors():
            return self._store.count(_needed(filters))

    def update_by_filter(self, filters: Any, meta: dict[str, Any]) -> int:
        """Add these meta fields to the documents that pass filters, or replace them; how many there were."""
        if not self.collection.info()["stored"]:
            raise UnsupportedError("the texts are not stored, so documents cannot be updated; write them again")
        with self._store.turns:
            with _filter_errors():
                found = self._store.documents(_needed(filters))
            self._store.add([record(each.id, *self._updated(each, meta), self.text_field) for each in found])
        return len(found)

    def _updated(self, document: StoredDocument, meta: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        text, fields = text_and_fields(document, self.text_field)
        return text, {**fields, **meta}

    count_documents_async = in_thread(count_documents)
    filter_documents_async = in_thread(filter_documents)
    write_documents_async = in_thread(write_documents)
    delete_documents_async = in_thread(delete_documents)
    delete_all_documents_async = in_thread(delete_all_documents)
    delete_by_filter_async = in_thread(delete_by_filter)
    count_documents_by_filter_async = in_thread(count_documents_by_filter)
    update_by_filter_async = in_thread(update_by_filter)


@component
class VizslaRetriever:
    """The best documents for a query, as Haystack's documents.

    `retriever`: a location that `vizsla.open` opens, a `VizslaDocumentStore`, or a Retriever (but then a pipeline
    cannot be saved). `filters`: Haystack's, or a condition as in `year >= 1999`. `text_field`: the field that becomes
    `content`; the others become `meta`. A store has its own.

        VizslaRetriever("my.index", top_k=5).run(query="barking dogs")["documents"]
    """

    def __init__(
        self,
        retriever: Searched | VizslaDocumentStore,
        top_k: int = 10,
        filters: Any = None,
        text_field: str = "text",
    ) -> None:
        self.retriever = fspath(retriever) if isinstance(retriever, PathLike) else retriever
        self.top_k, self.filters, self.text_field = top_k, filters, text_field
        self._opened: Retriever | None = None

    def warm_up(self) -> Retriever | VizslaDocumentStore:
        """Open the location; it happens once."""
        if isinstance(self.retriever, VizslaDocumentStore):
            return self.retriever
        self._opened = self._opened or opened(self.retriever)
        return self._opened

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: Any = None, top_k: int | None = None) -> dict[str, list[Document]]:
        """The documents; `filters` and `top_k` override those of the component."""
        chosen, k = self.filters if filters is None else filters, self.top_k if top_k is None else top_k
        searched = self.warm_up()
        if isinstance(searched, VizslaDocumentStore):
            return {"documents": searched.search(query, k, chosen)}
        hits = searched.search_many([query], k, _condition(chosen))[0]
        return {"documents": [_document(hit.document, self.text_field, score=hit.score) for hit in hits]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: Any = None, top_k: int | None = None) -> dict[str, list[Document]]:
        """The same without blocking the event loop."""
        found: dict[str, list[Document]] = await in_thread(VizslaRetriever.run)(self, query, filters, top_k)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The component as plain data, for pipelines that are saved."""
        if not isinstance(self.retriever, str | VizslaDocumentStore):
            raise VizslaError(f"{self.retriever.name} cannot be saved with a pipeline; give its location instead")
        about = {"top_k": self.top_k, "filters": self.filters, "text_field": self.text_field}
        return dict(default_to_dict(self, retriever=self.retriever, **about))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VizslaRetriever:
        """The component from plain data."""
        made: VizslaRetriever = default_from_dict(cls, data)
        return made


def _document(document: StoredDocument, text_field: str, **found: float) -> Document:
    text, meta = text_and_fields(document, text_field)
    rest = meta.pop(_REST, None) or {}
    return Document.from_dict({"content": text, **rest, "id": document.id, "meta": meta, **found})


def _condition(filters: Any) -> FilterLike:
    return haystack_condition(filters) if isinstance(filters, dict) and filters else filters or None


def _needed(filters: Any) -> FilterLike:
    condition = _condition(filters)
    if condition is None:
        raise FilterError(f"give filters, not {kind_of(filters)}; for all documents there are other methods")
    return condition


@contextmanager
def _filter_errors() -> Iterator[None]:
    """A context in which a filter that is refused is an error of Haystack."""
    try:
        yield
    except (CollectionError, UnsupportedError):
        raise
    except VizslaError as e:
        raise FilterError(str(e)) from None
