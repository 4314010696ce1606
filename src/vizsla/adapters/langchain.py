"""LangChain: any Retriever as a `BaseRetriever`, any Collection as a `VectorStore`, for chains and agents."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vizsla.adapters.common import Searched, needed, opened, text_and_fields, text_and_metadata
from vizsla.adapters.store import Store, Stored, record
from vizsla.errors import UnsupportedError, VizslaError, VizslaWarning
from vizsla.index import Collection
from vizsla.models import Model
from vizsla.runs import FilterLike
from vizsla.runs.retriever import document_ids

with needed("LangChain", "langchain"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from pydantic import field_validator


class VizslaRetriever(BaseRetriever):
    """The k best documents for a question, as LangChain's documents.

    `retriever`: a Retriever, or a location that `vizsla.open` opens. `filter`: a condition on fields, as in
    `year >= 1999`. `text_field`: the field that becomes `page_content`; the others become metadata, with id, score and
    rank. `invoke` takes another `k` and `filter`.

        VizslaRetriever(retriever="my.index", k=5).invoke("barking dogs")
    """

    retriever: Any
    k: int = 10
    filter: Any = None
    text_field: str = "text"

    @field_validator("retriever", mode="before")
    @classmethod
    def _open(cls, retriever: Searched) -> Any:
        return opened(retriever)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: FilterLike = None,
    ) -> list[Document]:
        del run_manager
        condition: FilterLike = self.filter if filter is None else filter
        documents = []
        for hit in self.retriever.search_many([query], self.k if k is None else k, condition)[0]:
            text, metadata = text_and_metadata(hit, self.text_field)
            documents.append(Document(page_content=text, metadata=metadata, id=hit.id))
        return documents


class VizslaVectorStore(VectorStore):
    """A collection as LangChain's vector store: documents are added, deleted and searched.

    The model of the collection reads texts, so no embedding is needed. Each change is committed when its method
    returns. All methods may be called from any thread, and the asynchronous ones do not block the event loop.

    `collection`: a Collection, a location that `vizsla.open` opens, or `:memory:` for an index in memory. `model`: if
    the folder does not exist yet, it becomes an index for this model, as in `bm25`. `text_field`: the field that is
    `page_content`; metadata are the other fields. `collection.close()` frees files and locks.

        store = VizslaVectorStore("my.index", model="bm25")
        store.add_documents([Document(page_content="Dogs bark.", metadata={"year": 1999})])
        store.similarity_search("barking dogs", k=5, filter="year < 2000")
    """

    def __init__(self, collection: Stored, model: Model | str | None = None, *, text_field: str = "text") -> None:
        self._store = Store(collection, model)
        self.text_field = text_field

    @property
    def collection(self) -> Collection:
        """The collection that has the documents."""
        return self._store.collection

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Any = None,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        collection: Stored = ":memory:",
        model: Model | str | None = None,
        text_field: str = "text",
    ) -> VizslaVectorStore:
        """A store with these texts. A folder that does not exist yet becomes an index for the model, or for BM25.

        An `embedding` is not used, which a warning says; give None.
        """
        store = cls(Store(collection, model, create=True).collection, text_field=text_field)
        if embedding is not None:
            message = f"the embedding is not used: {store.collection.name}, the model of the index, reads texts"
            warnings.warn(message, VizslaWarning, stacklevel=2)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add texts; one with the id of another replaces it, and one without an id gets a random one. Gives the ids."""
        given = [texts] if isinstance(texts, str) else list(texts)
        fields = [{}] * len(given) if metadatas is None else list(metadatas)
        wanted = [None] * len(given) if ids is None else list(ids)
        if not len(given) == len(fields) == len(wanted):
            counts = f"{len(given)} texts, {len(fields)} metadatas and {len(wanted)} ids"
            raise VizslaError(f"there are {counts}; give one of each for each text")
        named = document_ids(str(uuid.uuid4()) if each is None else each for each in wanted)
        self._store.add([record(*row, self.text_field) for row in zip(named, given, fields, strict=True)])
        return named

    def delete(self, ids: Sequence[str] | None = None, *, filter: FilterLike = None, **_: Any) -> bool:
        """Delete documents by id, or all that pass a filter. Ids that are not there are left out; None is refused."""
        if (ids is None) == (filter is None):
            raise VizslaError("give either the ids of the documents to delete or a filter")
        self._store.delete_matching(filter) if ids is None else self._store.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids that are there, in this order."""
        return [self._document(each.id, *text_and_fields(each, self.text_field)) for each in self._store.get(ids)]

    def similarity_search(self, query: str, k: int = 4, filter: FilterLike = None, **options: Any) -> list[Document]:
        """The k best documents; see `similarity_search_with_score`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **options)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: FilterLike = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """The k best documents with their scores; higher is better.

        `filter`: a condition, as in `year >= 1999`, or a mapping of fields to values. `options`: those of
        `Collection.search_many`, as in `syntax="lucene"`.
        """
        hits = self._store.search(query, k, filter, **options)
        return [(self._document(hit.id, *text_and_fields(hit.document, self.text_field)), hit.score) for hit in hits]

    @staticmethod
    def _document(doc_id: str, text: str, fields: dict[str, Any]) -> Document:
        return Document(page_content=text, metadata=fields, id=doc_id)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        raise UnsupportedError("scores have no scale from 0 to 1; use similarity_search_with_score, or min_score=")

    def similarity_search_by_vector(self, *_: Any, **__: Any) -> list[Document]:
        """Not supported: the model of the collection reads texts."""
        raise UnsupportedError("a collection is searched by a text, not by an embedding; use similarity_search")

    def max_marginal_relevance_search(self, *_: Any, **__: Any) -> list[Document]:
        """Not supported: it needs embeddings."""
        raise UnsupportedError("max marginal relevance needs embeddings, which are not used; use similarity_search")

    max_marginal_relevance_search_by_vector = similarity_search_by_vector
