"""Collections that are searched in this process, with their own model, with another one, or in another way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Unpack

from vizsla.errors import VizslaError
from vizsla.index.collection import Collection, CollectionView, ids_or_filter
from vizsla.index.search.facets import Facets, facets_of_hits
from vizsla.index.search.highlight import Highlighter
from vizsla.index.search.plan import (
    ONE_TEXT,
    ModelFreeOptions,
    SearchKeywords,
    SearchOptions,
    SearchSettings,
    check_options,
)
from vizsla.index.search.suggestions import Suggestion
from vizsla.index.search.term_statistics import TermStatistics
from vizsla.models import Model, check_model, in_language, parse_model
from vizsla.runs import Document, Explanation, FilterLike, Hits, PageOptions, Run
from vizsla.runs.retriever import check_count, query_with_words


class SearchableCollection(Collection):
    """A collection that this process searches with a model: an `Index`, or a collection in a cluster.

    A server serves any of them. A collection defines how it is searched and counted with some options (`_search_with`,
    `_run_with`, `_facets_with`), which it refuses (`_check_options`) and how it is written to (`writer`). Methods
    without a docstring do what `Collection` says of them.
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
    def _facets_with(
        self, options: SearchOptions, fields: Sequence[str], query: str | None, filter: FilterLike, size: int
    ) -> Facets:
        """The values of fields over all documents that match."""

    @abstractmethod
    def writer(self, *, timeout: float | None = ...) -> Any:
        """A writer of this collection; `timeout`: how many seconds it waits for other writers."""

    @abstractmethod
    def highlighter(
        self,
        query: str,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Highlighter:
        """Shows where documents match a query: `index.highlighter(query).snippet(document)`."""

    @abstractmethod
    def similar_query(self, doc_id: str | int, *, model: str | Model | None = None) -> str:
        """The query that finds documents like a document; see `similar`. A document without words has an empty one."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """All documents, in order of insertion."""

    @abstractmethod
    def matching_ids(self, filter: FilterLike) -> list[str]:
        """The ids of all documents that pass a filter, in the order of insertion."""

    def is_outdated(self) -> bool:
        """Whether `refresh` would find something newer; False for a collection that looks for it by itself."""
        return False

    @property
    def has_words(self) -> bool:
        """Whether half-typed words can be found and misspelt ones corrected: the index holds whole words."""
        return False

    def facet_fields(self) -> list[str]:
        """The fields worth counting, where that can be told by looking at some documents; at most a dozen."""
        return []

    def sort_fields(self) -> list[str]:
        """The fields worth sorting by, where that can be told by looking at some documents; at most a dozen."""
        return []

    def cache_sizes(self) -> dict[str, int]:
        """How much of what is kept in memory for the next searches there is, by what it is."""
        return {}

    def _model_of(self, model: str | Model | None) -> Model | None:
        if isinstance(model, str):
            return self._parse_model(model)
        return None if model is None else check_model(model)

    def _options(self, options: SearchKeywords | SearchSettings, threads: int | None = None) -> SearchOptions:
        values: dict[str, Any] = {"threads": threads, **options}
        check_options(values)
        model = values.pop("model", None)
        return SearchOptions(None if model is None else self._model_of(model), **values)

    def with_model(self, model: str | Model | None = None, **options: Unpack[ModelFreeOptions]) -> IndexView:
        check_options(options)
        chosen = SearchOptions(self._model_of(model), **options)
        self._check_options(chosen)
        return IndexView(self, chosen, model if isinstance(model, str) else None)

    def search(self, query: str, k: int = 10, filter: FilterLike = None, **options: Unpack[SearchKeywords]) -> Hits:
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
        return self._search_with(self._options(options), queries, k, filter, documents)

    def run(
        self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None, **options: Unpack[SearchSettings]
    ) -> Run:
        return self._run_with(self._options(options), queries, k, filter)

    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Facets:
        if over == "all":
            options = SearchOptions(self._model_of(model), syntax=syntax, language=language)
            return self._facets_with(options, fields, query, filter, size)
        best = check_count(over, "over, how many of the best documents are counted,")
        found = self.search(query or "", best, filter, model=model, syntax=syntax, language=language)
        return facets_of_hits(found, fields, size)

    def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> int:
        ids_or_filter(ids, filter)
        return self._delete(self.matching_ids(filter) if ids is None else ids)

    @abstractmethod
    def _delete(self, ids: str | int | Iterable[str | int]) -> int: ...


@dataclass(frozen=True)
class IndexView(CollectionView):
    """What `Index.with_model` gives: the documents of an index, searched with a model and options of its own.

    It can be pickled if its model was given as a text; each copy has an index of its own, to be closed.
    """

    index: SearchableCollection
    options: SearchOptions
    named: str | None = None
    """The model as a text, if it was given so."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self.options.model is not None and self.named is None:
            raise VizslaError("a view can be pickled if its model is given as a text, as in with_model('bm25(k1=1.2)')")
        return _view_again, (self.index, self.named, self.options._replace(model=None))

    @property
    def model(self) -> Model:
        """The model that is searched with."""
        model = self.options.model or self.index.model
        return model if self.options.language is None else in_language(model, self.options.language)

    @property
    def _way(self) -> dict[str, Any]:
        """The options that decide which documents match, and their scores."""
        return {"model": self.options.model, "syntax": self.options.syntax, "language": self.options.language}

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
        return self.index._search_with(self.options._replace(**page), queries, k, filter, documents)

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        return self.index._run_with(self.options, queries, k, filter)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        return self.index.get_many(ids)

    def __len__(self) -> int:
        return len(self.index)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        return self.index.explain(query, doc_id, filter, **self._way)

    def highlighter(self, query: str, filter: FilterLike = None) -> Highlighter:
        """Shows where documents match a query."""
        return self.index.highlighter(query, filter, **self._way)

    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
    ) -> Facets:
        return self.index.facets(fields, query, filter, over=over, size=size, **self._way)

    def count(self, query: str | None = None, filter: FilterLike = None) -> int:
        return self.index.count(query, filter, **self._way)

    def similar(self, doc_id: str | int, k: int = 10, filter: FilterLike = None) -> Hits:
        return self.index.similar(doc_id, k, filter, model=self.options.model)

    def similar_query(self, doc_id: str | int) -> str:
        """The query that finds documents like a document."""
        return self.index.similar_query(doc_id, model=self.options.model)

    def suggest(self, prefix: str, size: int = 8, *, language: str | None = None) -> list[Suggestion]:
        return self.index.suggest(prefix, size, language=language or self.options.language)

    def term_statistics(self, text: str) -> list[TermStatistics]:
        return self.index.term_statistics(text)

    def info(self) -> dict[str, Any]:
        return self.index.info()

    def with_model(self, model: Model | str | None = None) -> IndexView:
        """The same view with another model."""
        chosen = self.options._replace(model=self.index.with_model(model).options.model)
        return replace(self, options=chosen, named=model if isinstance(model, str) else None)


def _view_again(index: SearchableCollection, named: str | None, options: SearchOptions) -> IndexView:
    """A view that was pickled."""
    return IndexView(index, options._replace(model=index._model_of(named)), named)
