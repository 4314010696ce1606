"""Haystack: any Retriever as a component of pipelines."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from vizsla.adapters.common import Searched, needed, opened, text_and_metadata
from vizsla.adapters.haystack_filters import condition_of
from vizsla.errors import VizslaError
from vizsla.runs import Retriever

with needed("Haystack", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict


@component
class VizslaRetriever:
    """The best documents for a query, as Haystack's documents.

    `retriever`: a location that `vizsla.open` opens, or a Retriever (but then a pipeline cannot be saved).
    `filters`: Haystack's, or a condition as in `year >= 1999`. `text_field`: the field that becomes `content`; the
    others become `meta`.

        VizslaRetriever("my.index", top_k=5).run(query="barking dogs")["documents"]
    """

    def __init__(self, retriever: Searched, top_k: int = 10, filters: Any = None, text_field: str = "text") -> None:
        self.retriever = fspath(retriever) if isinstance(retriever, PathLike) else retriever
        self.top_k, self.filters, self.text_field = top_k, filters, text_field
        self._opened: Retriever | None = None

    def warm_up(self) -> Retriever:
        """Open the location; it happens once."""
        self._opened = self._opened or opened(self.retriever)
        return self._opened

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: Any = None, top_k: int | None = None) -> dict[str, list[Document]]:
        """The documents; `filters` and `top_k` override those of the component."""
        chosen = self.filters if filters is None else filters
        condition = condition_of(chosen) if isinstance(chosen, dict) and chosen else chosen or None
        documents = []
        for hit in self.warm_up().search_many([query], top_k or self.top_k, condition)[0]:
            text, meta = text_and_metadata(hit, self.text_field)
            documents.append(Document(id=hit.id, content=text, meta=meta, score=hit.score))
        return {"documents": documents}

    def to_dict(self) -> dict[str, Any]:
        """The component as plain data, for pipelines that are saved."""
        if not isinstance(self.retriever, str):
            raise VizslaError(f"{self.retriever.name} cannot be saved with a pipeline; give its location instead")
        about = {"top_k": self.top_k, "filters": self.filters, "text_field": self.text_field}
        return dict(default_to_dict(self, retriever=self.retriever, **about))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> VizslaRetriever:
        """The component from plain data."""
        made: VizslaRetriever = default_from_dict(cls, data)
        return made
