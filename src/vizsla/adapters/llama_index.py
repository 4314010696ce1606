"""LlamaIndex: any Retriever as a `BaseRetriever`, to be used in query engines and agents."""

from __future__ import annotations

from typing import Any

from vizsla.adapters.common import Searched, needed, opened, text_and_metadata
from vizsla.runs import FilterLike

with needed("LlamaIndex", "llama-index"):
    from llama_index.core import QueryBundle
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode


class VizslaRetriever(BaseRetriever):
    """The k best documents for a question, as LlamaIndex's nodes with scores.

    `retriever`: a Retriever, or a location that `vizsla.open` opens. `filter`: a condition on fields, as in
    `year >= 1999`. `text_field`: the field that becomes the node's text; the others become its metadata.

        VizslaRetriever("my.index", k=5).retrieve("barking dogs")
    """

    def __init__(
        self,
        retriever: Searched,
        k: int = 10,
        filter: FilterLike = None,
        text_field: str = "text",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.retriever = opened(retriever)
        self.k, self.filter, self.text_field = k, filter, text_field

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = []
        for hit in self.retriever.search_many([query_bundle.query_str], self.k, self.filter)[0]:
            text, metadata = text_and_metadata(hit, self.text_field)
            nodes.append(NodeWithScore(node=TextNode(id_=hit.id, text=text, metadata=metadata), score=hit.score))
        return nodes
