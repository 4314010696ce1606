"""LlamaIndex: any Retriever as a `BaseRetriever`, any Collection as a vector store, for query engines and agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vizsla.adapters.common import Searched, in_thread, needed, opened, text_and_fields
from vizsla.adapters.filters import llama_index_condition
from vizsla.adapters.store import Store, Stored, record
from vizsla.errors import UnsupportedError, VizslaError, kind_of
from vizsla.index import Collection
from vizsla.models import Model
from vizsla.runs import Document, Filter, FilterLike

with needed("LlamaIndex", "llama-index"):
    from llama_index.core import QueryBundle
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

_NODE_ID = "_node_id"
_MODES = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH)


class VizslaRetriever(BaseRetriever):
    """The k best documents for a question, as LlamaIndex's nodes with scores.

    `retriever`: a Retriever, or a location that `vizsla.open` opens. `filter`: a condition on fields, as in
    `year >= 1999`, or LlamaIndex's filters. `text_field`: the field that becomes the node's text; the others become its
    metadata. What a `VizslaVectorStore` has written comes back as the node that it was.

        VizslaRetriever("my.index", k=5).retrieve("barking dogs")
    """

    def __init__(
        self,
        retriever: Searched,
        k: int = 10,
        filter: FilterLike | MetadataFilters = None,
        text_field: str = "text",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.retriever = opened(retriever)
        self.k, self.filter, self.text_field = k, filter, text_field

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self.retriever.search_many([query_bundle.query_str], self.k, _condition(self.filter))[0]
        return [NodeWithScore(node=_node(hit.document, self.text_field), score=hit.score) for hit in hits]

    _aretrieve = in_thread(_retrieve)


class VizslaVectorStore(BasePydanticVectorStore):
    """A collection as LlamaIndex's vector store: nodes are added, deleted, and found by texts and metadata filters.

    The model of the collection reads texts. Embeddings of nodes are not stored, and a query needs its text, so an
    index over this store does well with `embed_model=MockEmbedding(1)`. Each change is committed when its method
    returns. All methods may be called from any thread, and the asynchronous ones do not block the event loop.

    `collection`: a Collection, a location that `vizsla.open` opens, or `:memory:` for an index in memory. `model`: if
    the folder does not exist yet, it becomes an index for this model, as in `bm25`. `client.close()` frees files and
    locks.

        store = VizslaVectorStore("my.index", model="bm25")
        VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(1)).insert_nodes(nodes)
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    text_field: str = "text"
    _store: Store = PrivateAttr()

    def __init__(self, collection: Stored, model: Model | str | None = None, text_field: str = "text") -> None:
        super().__init__(text_field=text_field)
        self._store = Store(collection, model)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.client, None, self.text_field)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows the class."""
        return "VizslaVectorStore"

    @property
    def client(self) -> Collection:
        """The collection that has the nodes."""
        return self._store.collection

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes; one with the id of another replaces it. Gives the ids."""
        documents = []
        for node in nodes:
            if not isinstance(node, BaseNode):
                raise VizslaError(f"a store takes nodes of LlamaIndex, not {kind_of(node)}")
            fields = {**node_to_metadata_dict(node, remove_text=True), _NODE_ID: node.node_id}
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            documents.append(record(node.node_id, text, fields, self.text_field))
        self._store.add(documents)
        return [document.id for document in documents]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a source document."""
        self._store.delete_matching(_of_documents([ref_doc_id]))

    def delete_nodes(
        self, node_ids: Sequence[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Delete the nodes with these ids, those that pass the filters, or those for which both holds."""
        if node_ids is None and filters is None:
            raise VizslaError("give the ids of the nodes to delete, filters, or both; clear() deletes all nodes")
        if filters is None:
            self._store.delete(node_ids or ())
        elif node_ids is None or node_ids:
            self._store.delete_matching(Filter.all_of([_condition(filters), _of_nodes(node_ids)]))

    def clear(self) -> None:
        """Delete all nodes."""
        self._store.delete_matching(None)

    def get_nodes(
        self, node_ids: Sequence[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes with these ids, those that pass the filters, those for which both holds, or all."""
        if node_ids is not None and (filters is None or not node_ids):
            documents = self._store.get(node_ids)
        else:
            documents = self._store.documents(Filter.all_of([_condition(filters), _of_nodes(node_ids)]))
        return [_node(document, self.text_field) for document in documents]

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The best nodes for the text of a query, with their scores; higher is better."""
        if query.mode not in _MODES:
            mode = getattr(query.mode, "value", query.mode)
            raise UnsupportedError(f"the query mode {mode!r} is not supported; the model of the index ranks nodes")
        if query.query_str is None:
            raise UnsupportedError("a collection is searched by a text, not by an embedding; give query_str")
        within = _of_documents(query.doc_ids), _of_nodes(query.node_ids or None)
        condition = Filter.all_of([_condition(query.filters), *within])
        hits = self._store.search(query.query_str, query.similarity_top_k, condition)
        nodes = [_node(hit.document, self.text_field) for hit in hits]
        return VectorStoreQueryResult(nodes=nodes, similarities=[hit.score for hit in hits], ids=hits.ids)

    async_add = in_thread(add)
    adelete = in_thread(delete)
    adelete_nodes = in_thread(delete_nodes)
    aclear = in_thread(clear)
    aget_nodes = in_thread(get_nodes)
    aquery = in_thread(query)


def _node(document: Document, text_field: str) -> BaseNode:
    """The node that a document was, or a new one."""
    text, fields = text_and_fields(document, text_field)
    if not isinstance(fields.get("_node_content"), str):
        return TextNode(id_=document.id, text=text, metadata=fields)
    try:
        return metadata_dict_to_node(fields, text)
    except (ValueError, TypeError, AttributeError):
        raise VizslaError(f"the document {document.id!r} has a field '_node_content' that is no node") from None


def _condition(filters: Any) -> FilterLike:
    return llama_index_condition(filters.model_dump()) if isinstance(filters, MetadataFilters) else filters


def _of_documents(ids: Sequence[str] | None) -> FilterLike:
    return None if ids is None else _one_of("ref_doc_id", ids)


def _of_nodes(ids: Sequence[str] | None) -> FilterLike:
    return None if ids is None else _one_of(_NODE_ID, ids)


def _one_of(field: str, values: Sequence[str]) -> str:
    return f"exists({field}) and {Filter.of({field: list(values)})}"
