"""Documents searched with their own model, with another one, or in another way: what all collections share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Unpack

from vizsla.index.search.highlight import Highlighter
from vizsla.index.search.plan import (
    ONE_TEXT,
    OtherOptions,
    SearchKeywords,
    SearchOptions,
    SearchWay,
    check_options,
)
from vizsla.models import Model, check_model, parse_model
from vizsla.runs import Document, Explanation, FilterLike, Hits, PageOptions, Retriever, Run
from vizsla.runs.retriever import query_with_words


class SearchableCollection(Retriever):
    """Documents that are searched with a model: an `Index`, or a collection in a cluster.

    A collection defines how it is searched with some options (`_search_with`, `_run_with`), and which it refuses
    (`_check_options`).
    """

    def __init__(self) -> None:
        self._parse_model = lru_cache(maxsize=8)(parse_model)  # opening a network takes far longer than a search

    @property
    @abstractmethod
    def model(self) -> Model:
        """The model the collection was built with."""

    @abstractmethod
    def _check_options(self, options: SearchOptions) -> None:
        """Refuse options that the collection cannot be searched with."""

    @abstractmethod
    def _search_with(
        self, options: SearchOptions, queries: Sequence[str], k: int, filter: FilterLike, documents: bool
    ) -> list[Hits]: ...

    def _search_one(self, options: SearchOptions, query: str, k: int, filter: FilterLike) -> Hits:
        """The hits of a query with words."""
        return self._search_with(options, [query], k, filter, True)[0]

    @abstractmethod
    def _run_with(self, options: SearchOptions, queries: Mapping[str, str], k: int, filter: FilterLike) -> Run: ...

    @abstractmethod
    def explain(
        self,
        query: str,
        doc_id: str | int,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
    ) -> Explanation:
        """Why a document has its score for a query: the share of each term, adding up to the score."""

    @abstractmethod
    def highlighter(
        self, query: str, filter: FilterLike = None, *, model: str | Model | None = None, syntax: str | None = None
    ) -> Highlighter:
        """Shows where documents match a query: `index.highlighter(query).snippet(document)`."""

    def _model_of(self, model: str | Model | None) -> Model | None:
        if isinstance(model, str):
            return self._parse_model(model)
        return None if model is None else check_model(model)

    def _options(self, options: SearchKeywords | SearchWay, threads: int | None = None) -> SearchOptions:
        told: dict[str, Any] = {"threads": threads, **options}
        check_options(told)
        model = told.pop("model", None)
        return SearchOptions(None if model is None else self._model_of(model), **told)

    def with_model(self, model: str | Model | None = None, **options: Unpack[OtherOptions]) -> IndexView:
        """The same documents, searched with another model or in another way; see `search_many`.

        `options`: combine, search_params, approximate, threads, syntax, timeout. A model that the collection has no
        data for is refused here.
        """
        check_options(options)
        chosen = SearchOptions(self._model_of(model), **options)
        self._check_options(chosen)
        return IndexView(self, chosen)

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **options: Unpack[SearchKeywords]) -> Hits:
        """The k best documents, best first; equal scores in order of insertion. An empty query is refused.

        `filter`: a condition on the documents, as in `year >= 1999 and lang = "en"`. It is applied before the best are
        taken, so k come back whenever there are k. A mapping, as in `{"year": 1999, "lang": ["en", "de"]}`, names
        fields and the value of each, or a list of values of which one must match.
        `options`: see `search_many`.
        """
        if not isinstance(query, str) or not query.strip():
            query_with_words(query)  # says what is wrong
        chosen = self._options(options, threads=1) if options else ONE_TEXT
        return self._search_one(chosen, query, k, filter)

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        *,
        documents: bool = True,
        **options: Unpack[SearchKeywords],
    ) -> list[Hits]:
        """The hits of many queries. An empty query finds nothing.

        `model`: search with another model than the collection's own, one that reads the same postings: other k1, b,
        variant or weights, or only some parts of a sum. Nothing is indexed again.
        `combine`: how the parts of a sum become one ranking. `sum` is exact; `union` and `rrf` look at the best of each
        part alone, see `Combination`.
        `search_params`: how dense vectors are searched if the index has a vector index: `exact`, or other parameters
        than its own, as in `ef_search=200` or `nprobe=64`. A sum is searched exactly.
        `approximate`: a number from 0 to 1 makes the search faster and may miss documents: common words are estimated
        to add at most this share of what they could. Scores stay exact. Without it the search is exact.
        `threads`: as many as there are processors by default.
        `documents`: without them a hit's document has an id and nothing else, which is faster.
        `syntax`: `lucene` reads queries as Lucene's query language, as in `+dogs "big cats"~2 -title:fish`.
        `timeout`: after so many seconds the search is stopped, and `StoppedError` is raised.
        `offset`: how many of the first results are left out. `min_score`: only results with this score or a higher one.
        `sort`: a field to sort all results by, as in `year` or, the greatest first, `-year`.
        `collapse`: a field of which each value comes once, with its best result.

        A collection in a cluster refuses what it cannot do of these, and needs no threads.
        """
        return self._search_with(self._options(options), queries, k, filter, documents)

    def run(
        self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None, **options: Unpack[SearchWay]
    ) -> Run:
        """The rankings of many queries, by query id; see `search_many`. An empty query finds nothing."""
        return self._run_with(self._options(options), queries, k, filter)


@dataclass(frozen=True)
class IndexView(Retriever):
    """What `Index.with_model` gives: the documents of an index, searched with a model and options of its own.

    It shares the files of its index and sees what the index sees; close the index, not the view.
    """

    index: SearchableCollection
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
    ) -> list[Hits]:
        """The k best documents for each query, best first; without `documents` hits have ids and scores only.

        `page`: offset, sort, collapse and min_score, as in `Index.search_many`.
        """
        return self.index._search_with(self.options._replace(**page), queries, k, filter, documents)

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **page: Unpack[PageOptions]) -> Hits:
        """The k best documents for a query; see `search_many`."""
        return self.search_many([query_with_words(query)], k, filter, **page)[0]

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
