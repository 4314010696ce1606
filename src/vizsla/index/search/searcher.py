"""Searches one snapshot of an index: binds models to it, applies filters, finds the top k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vizsla.engine import (
    CollectionNgrams,
    DamagedSegmentError,
    PhrasePattern,
    Query,
    TopDocuments,
    VectorIndex,
    search_among,
    search_many,
    search_phrase,
    search_rows,
)
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import BoundModel, OneLanguage, SparsePart
from vizsla.index.search.columns import Columns, DocumentRows, document_columns, row_columns
from vizsla.index.search.filtering import passing_rows
from vizsla.index.search.spelling import Speller
from vizsla.index.search.suggestions import Completer
from vizsla.index.search.words import WordPart, parts_with_words
from vizsla.lazy import cached_property
from vizsla.models import LANGUAGE_SAMPLE, Component, ExpandedBM25, Model, Statistics, warn_of_language
from vizsla.runs import Filter

_MAX_CACHED_FILTERS = 64
_MAX_CACHED_MODELS = 64
_MAX_CACHED_LANGUAGES = 16

T = TypeVar("T")


class Searcher:
    """Searches one snapshot; caches bound models and the masks of filters between searches."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._masks: dict[str, list[np.ndarray]] = {}
        self._bound: dict[int, BoundModel] = {}
        self._completers: dict[tuple[int, ...], Completer] = {}
        self._spellers: dict[tuple[int, ...], Speller] = {}
        self._ngrams: dict[int, CollectionNgrams] = {}
        self.plans: dict[int, object] = {}
        """Plain searches by the number of their results, see `Search.prepare`."""
        self.own = self.bind(snapshot.model)
        """The index's own model."""

    def close(self) -> None:
        """Close the snapshot when its last search ends.

        What is in memory for its searches is then freed at once: no plan refers to the searcher any more, so the
        garbage collector, which may come much later, is not needed.
        """
        self.plans.clear()
        self.snapshot.close()

    def bind(self, model: Model) -> BoundModel:
        """A model bound to the index; one that the index has no data for is refused."""
        bound = self._bound.get(id(model))
        if bound is None:
            if len(self._bound) >= _MAX_CACHED_MODELS:
                self._bound = {}
            # The bound model keeps the model alive, so its id() is not reused.
            bound = BoundModel.bind(model, self.snapshot.model, self.snapshot.statistics)
            if model is not self.snapshot.model and any(_adds_a_network(part.component) for part in model.parts):
                self._warn_of_language(model)
            self._bound[id(model)] = bound
        return bound

    def chosen(self, model: Model | None, language: str | None = None) -> BoundModel:
        """A model, or the index's own, bound to the index; of several languages the one that is named."""
        bound = self.own if model is None else self.bind(model)
        return bound if language is None else self.bind(self._one_language.model(bound, language))

    @cached_property
    def _one_language(self) -> OneLanguage:
        return OneLanguage()

    def _warn_of_language(self, model: Model) -> None:
        """Say that the network of a query expander was not made for the language of the documents."""
        snapshot = self.snapshot
        if snapshot.documents.has_texts:
            documents = snapshot.documents.by_number(snapshot.numbers()[:LANGUAGE_SAMPLE].tolist()).values()
            warn_of_language(model, [document.content for document in documents])

    @property
    def cache_sizes(self) -> dict[str, int]:
        """How many filters and models are kept."""
        return {"filters": len(self._masks), "models": len(self._bound)}

    def context(self, condition: Filter | None) -> _Context:
        """What a model may look at while it encodes queries: the documents that pass the filter."""
        return _Context(self, condition)

    def encode(self, texts: Sequence[str], bound: BoundModel, condition: Filter | None = None) -> Sequence[Query]:
        """Queries as numbers for the engine; a query that is expanded from documents uses those that pass a filter."""
        try:
            return bound.encode(texts, _Context(self, condition))
        except DamagedSegmentError:
            raise self.snapshot.damage() from None

    def top_k(
        self,
        queries: Sequence[Query],
        bound: BoundModel,
        k: int,
        condition: Filter | None = None,
        expected: float = 1.0,
        vector_index: VectorIndex | None = None,
        threads: int = 1,
        masks: Sequence[np.ndarray | None] | None = None,
    ) -> Sequence[TopDocuments]:
        """For each query the best k live documents that pass the filter, or that are in `masks` where they are given.

        `expected` below 1, or a `vector_index`: approximately, see `engine.search_many`.
        """
        snapshot = self.snapshot
        if masks is None:
            masks = snapshot.alive if condition is None else self.masks(condition)
        k = min(k, max(snapshot.stored_count, 1))
        try:
            options = {"expected": expected, "search_params": vector_index, "threads": threads}
            return search_many(snapshot.segments, queries, bound.weightings, k, masks, **options)  # type: ignore[arg-type]
        except (DamagedSegmentError, IndexError):
            raise snapshot.damage() from None

    def top_k_among(self, query: Query, bound: BoundModel, numbers: np.ndarray, k: int) -> TopDocuments:
        """The best k of some live documents."""
        with self.snapshot.naming_damage():
            return search_among(self.snapshot.segments, query, bound.weightings, numbers, min(k, max(len(numbers), 1)))

    def top_k_of_rows(
        self,
        query: Query,
        bound: BoundModel,
        rows: Sequence[np.ndarray],
        k: int,
        check: Callable[[int, np.ndarray], np.ndarray] | None = None,
    ) -> TopDocuments:
        """The best k of some rows of each segment that pass a check; one without a term of the query has the score 0.

        `check`: says which rows of a segment, given by its place, may be found; None for all.
        """
        with self.snapshot.naming_damage():
            return search_rows(self.snapshot.segments, query, bound.weightings, rows, k, check)

    def top_k_of_phrase(
        self, query: Query, bound: BoundModel, pattern: PhrasePattern, space: int, k: int, condition: Filter | None
    ) -> TopDocuments | None:
        """The best k live documents that have a phrase and pass a filter; None if this method does not apply.

        `space`: the namespace of the phrase.
        """
        snapshot = self.snapshot
        masks = snapshot.alive if condition is None else self.masks(condition)
        with snapshot.naming_damage():
            return search_phrase(snapshot.segments, query, bound.weightings, pattern, space, k, masks)

    def masks(self, condition: Filter) -> Sequence[np.ndarray]:
        """For each segment which of its documents pass a filter."""
        key = str(condition)
        masks = self._masks.get(key)
        if masks is None:
            masks = self.rows.masks(passing_rows(self._row_columns, condition))
            if len(self._masks) >= _MAX_CACHED_FILTERS:
                self._masks = {}
            self._masks[key] = masks
        return masks

    def field_names(self) -> list[str]:
        """The names of the fields of the first documents, for messages."""
        return self._row_columns.field_names()

    @cached_property
    def rows(self) -> DocumentRows:
        """The live documents and their rows."""
        return DocumentRows(self.snapshot)

    @cached_property
    def columns(self) -> Columns:
        """The values of fields of documents, to count and sort them."""
        return document_columns(self.snapshot, self.rows)

    @cached_property
    def _row_columns(self) -> Columns:
        """The values of fields of rows, to filter them."""
        return row_columns(self.snapshot, self.rows) if self.rows.has_passages else self.columns

    def ngrams(self, space: int) -> CollectionNgrams:
        """The n-grams of a namespace."""
        if space not in self._ngrams:
            snapshot = self.snapshot
            arrays, name = [segment.ngrams[space] for segment in snapshot.segments], snapshot.model.namespaces[space]
            self._ngrams[space] = CollectionNgrams(arrays, snapshot.alive, snapshot.statistics[name].total_length)
        return self._ngrams[space]

    @cached_property
    def words(self) -> list[WordPart]:
        """The namespaces that hold words."""
        return parts_with_words(self.snapshot, self.own.sparse)

    def completer(self, language: str | None = None) -> Completer:
        """Completes words: those of documents in a language, or all."""
        return self._of_words(Completer, self._completers, language)

    def speller(self, language: str | None = None) -> Speller:
        """Corrects words by those of documents in a language, or by all."""
        return self._of_words(Speller, self._spellers, language)

    def _of_words(
        self, make: Callable[[Snapshot, Sequence[SparsePart]], T], known: dict[tuple[int, ...], T], language: str | None
    ) -> T:
        """What looks at the words of the parts for a language, made once for each choice of parts."""
        parts = self.chosen(None, language).sparse
        spaces = tuple(part.space for part in parts)
        found = known.get(spaces)
        if found is None:
            if len(known) >= _MAX_CACHED_LANGUAGES:
                known.clear()
            found = known[spaces] = make(self.snapshot, parts)
        return found

    def passes(self, number: int, condition: Filter) -> bool:
        """Whether the document with an insertion number passes a filter."""
        segment, row = self.snapshot.position(number)
        return bool(self.masks(condition)[segment][row])


def _adds_a_network(component: Component) -> bool:
    return isinstance(component, ExpandedBM25) and bool(component.vocabulary())


class _Context(NamedTuple):
    """The documents that pass a filter, for pseudo-relevance feedback: other documents must not influence a query."""

    searcher: Searcher
    condition: Filter | None

    def top_documents(
        self, component: Component, queries: Sequence[Mapping[str, float]], k: int
    ) -> list[dict[int, float]]:
        bound = self.searcher.bind(component)
        (part,) = bound.parts
        assert isinstance(part, SparsePart)
        found = self.searcher.top_k(part.encode(queries), bound, k, self.condition)
        return [dict(zip(hits.numbers.tolist(), hits.scores.tolist(), strict=True)) for hits in found]

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        return self.searcher.snapshot.documents.read_by_models(numbers)

    def statistics_of(self, component: Component) -> Statistics:
        (part,) = self.searcher.bind(component).parts
        assert isinstance(part, SparsePart)
        return part.statistics

    def ngrams_of(self, component: Component) -> CollectionNgrams:
        (part,) = self.searcher.bind(component).parts
        return self.searcher.ngrams(part.space)
