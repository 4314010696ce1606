"""LangChain: any Retriever as a `BaseRetriever`, to be used in chains and agents."""

from __future__ import annotations

from typing import Any

from vizsla.adapters.common import Searched, needed, opened, text_and_metadata
from vizsla.runs import FilterLike

with needed("LangChain", "langchain"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import field_validator


class VizslaRetriever(BaseRetriever):
    """The k best documents for a question, as LangChain's documents.

    `retriever`: a Retriever, or a location that `vizsla.open` opens. `filter`: a condition on fields, as in
    `year >= 1999`. `text_field`: the field that becomes `page_content`; the others become metadata, with id, score and
    rank.

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

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager
        condition: FilterLike = self.filter
        documents = []
        for hit in self.retriever.search_many([query], self.k, condition)[0]:
            text, metadata = text_and_metadata(hit, self.text_field)
            documents.append(Document(page_content=text, metadata=metadata, id=hit.id))
        return documents
