"""An index searched with another model, or in another way, than its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Unpack

from vizsla.index.search.highlight import Highlighter
from vizsla.index.search.plan import SearchOptions
from vizsla.models import Model
from vizsla.runs import Document, Explanation, FilterLike, Hit, Hits, PageOptions, Retriever, Run
from vizsla.runs.retriever import query_with_words


class _Searched(Protocol):
    """What a view needs of its index."""

    @property
    def model(self) -> Model: ...
    def _search_with(
        self, options: SearchOptions, queries: Sequence[str], k: int, filter: FilterLike, documents: bool
    ) -> list[list[Hit]]: ...
    def _run_with(self, options: SearchOptions, queries: Mapping[str, str], k: int, filter: FilterLike) -> Run: ...
    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]: ...
    def explain(
        self, query: str, doc_id: str | int, filter: FilterLike, *, model: Model | None, syntax: str | None
    ) -> Explanation: ...
    def highlighter(
        self, query: str, filter: FilterLike, *, model: Model | None, syntax: str | None
    ) -> Highlighter: ...
    def with_model(self, model: Model | str | None) -> IndexView: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class IndexView(Retriever):
    """What `Index.with_model` gives: the documents of an index, searched with a model and options of its own.

    It shares the files of its index and sees what the index sees; close the index, not the view.
    """

    index: _Searched
    options: SearchOptions

    @property
    def model(self) -> Model:
        """The model that is searched with."""
        return self.options.model or self.index.model

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.model.name

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        *,
        documents: bool = True,
        **page: Unpack[PageOptions],
    ) -> list[list[Hit]]:
        """The k best documents for each query, best first; without `documents` hits have ids and scores only.

        `page`: offset, sort, collapse and min_score, as in `Index.search_many`.
        """
        return self.index._search_with(self.options._replace(**page), queries, k, filter, documents)

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **page: Unpack[PageOptions]) -> Hits:
        """The k best documents for a query; see `search_many`."""
        return Hits(self.search_many([query_with_words(query)], k, filter, **page)[0])

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        return self.index._run_with(self.options, queries, k, filter)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id, without those that are not there."""
        return self.index.get_many(ids)

    def __len__(self) -> int:
        return len(self.index)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """Why a document has its score for a query."""
        return self.index.explain(query, doc_id, filter, model=self.options.model, syntax=self.options.syntax)

    def highlighter(self, query: str, filter: FilterLike = None) -> Highlighter:
        """Shows where documents match a query."""
        return self.index.highlighter(query, filter, model=self.options.model, syntax=self.options.syntax)

    def with_model(self, model: Model | str) -> IndexView:
        """The same view with another model."""
        return replace(self, options=self.options._replace(model=self.index.with_model(model).model))
