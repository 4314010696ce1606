"""What searches of a collection share while it has one generation: its model, its statistics, the terms met so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.filters import exists, payload_filter
from vizsla.backends.qdrant.layout import DOCUMENT
from vizsla.backends.qdrant.points import StoredPoint, weighting_of
from vizsla.backends.qdrant.scanning import find_points, sparse_components
from vizsla.backends.qdrant.searching import FoundDocuments, PartQuery, TopK, part_queries
from vizsla.backends.qdrant.state import CollectionState
from vizsla.backends.qdrant.terms import TermTable
from vizsla.engine import MatchQuery, Query, TokenRows, Weighting, exact_max_sims
from vizsla.errors import VizslaError
from vizsla.index import TermStatistics
from vizsla.index.reading.terms import NamespaceStatistics
from vizsla.index.search.bound_model import BoundModel, DensePart, MatchPart, SparsePart, TokenPart
from vizsla.index.search.explain import ExplainedDocument, MatchedTokens, explain_document
from vizsla.models import Component, Model, SparseComponent, Statistics, TokenComponent
from vizsla.models.sparse_component import typed_terms
from vizsla.runs import Explanation, Filter
from vizsla.runs.filters import SAMPLE, Condition, field_names, refuse_unknown_fields

_MAX_CACHED_MODELS = 8


class Reader:
    """Searches a collection in one state."""

    def __init__(self, connection: Connection, state: CollectionState, model: Model) -> None:
        self.connection = connection
        self.state = state
        self.model = model
        self.frozen = state.frozen_statistics()
        terms = TermTable(connection, state.base, model.namespaces)
        self._statistics = {
            name: NamespaceStatistics(found.documents, found.total_length, found.longest, space, terms)
            for space, (name, found) in enumerate((n, state.namespaces[n]) for n in model.namespaces)
        }
        self._terms = terms
        self._bound: dict[int, BoundModel] = {}
        self._known_fields: set[tuple[str, ...]] = set()
        self.own = self.bind(model)
        """The collection's own model."""

    def bind(self, model: Model) -> BoundModel:
        """A model bound to the collection; one that it has no data for is refused."""
        bound = self._bound.get(id(model))
        if bound is None:
            try:
                bound = BoundModel.bind(model, self.model, self._statistics)
            except VizslaError:
                raise VizslaError(
                    f"the collection {self.state.base!r} was built with {self.model.name} and has nothing that "
                    f"{model.name} reads; search it with its own parts, other weights of them, or query expansion"
                ) from None
            for part in bound.sparse:
                self._check_weighting(part)
            if len(self._bound) >= _MAX_CACHED_MODELS:
                self._bound = {}
            self._bound[id(model)] = bound  # it holds the model, so its id is not used again
        return bound

    def _check_weighting(self, part: SparsePart) -> None:
        """Refuse another k1, b, delta or saturation than those that are in the documents' weights."""
        own = self.model.parts[part.space].component
        assert isinstance(own, SparseComponent)
        statistics = self.frozen[own.namespace]
        stored, wanted = own.weighting(statistics), part.component.weighting(statistics)
        same = (stored.scale, stored.shift, stored.slope, stored.floor) == (
            wanted.scale, wanted.shift, wanted.slope, wanted.floor,
        )  # fmt: skip
        if not same or not np.array_equal(
            np.zeros(0) if stored.norms is None else stored.norms, np.zeros(0) if wanted.norms is None else wanted.norms
        ):
            raise VizslaError(
                f"the weights of {own.name} are stored in the collection {self.state.base!r}, so {part.component.name} "
                "with another k1, b, delta or variant needs a collection of its own; other weights of a sum, other idf "
                "and query expansion do not"
            )

    def encode(self, texts: Sequence[str], bound: BoundModel, condition: Filter | None) -> list[list[PartQuery]]:
        """Queries as what vectors are compared with."""
        return [part_queries(bound, query) for query in bound.encode(texts, Context(self, condition))]

    def search(
        self, texts: Sequence[str], bound: BoundModel, k: int, condition: Filter | None, *, documents: bool
    ) -> list[FoundDocuments]:
        """The best k documents of each query that pass a filter."""
        translated = self.translated(condition)
        queries = self.encode(texts, bound, condition)
        return TopK(self.connection, self.state.base, documents=documents).search(queries, self.most(k), translated)

    def most(self, k: int) -> int:
        """As many documents as there can be, at most k."""
        return min(k, max(self.state.next_number, 1))

    def translated(self, condition: Filter | None) -> models.Filter | None:
        """A filter for the servers; one that names a field no document has is refused."""
        if condition is None:
            return None
        refuse_unknown_fields(condition, self._has_field, self._field_names)
        return payload_filter(condition)

    def _has_field(self, leaf: Condition) -> bool:
        if leaf.field not in self._known_fields and self._some(models.Filter(must=[exists(leaf.field)]), 1):
            self._known_fields.add(leaf.field)
        return leaf.field in self._known_fields

    def _field_names(self) -> list[str]:
        """The names of the fields of some documents."""
        return field_names((point.payload or {}).get(DOCUMENT) or {} for point in self._some(None, SAMPLE))

    def _some(self, among: models.Filter | None, count: int) -> list[models.Record]:
        """Some points that pass a filter, with the fields of their documents if there are several."""
        fields: Any = [DOCUMENT] if count > 1 else False
        found, _ = self.connection.call(
            QdrantClient.scroll, self.state.base, among, count, with_payload=fields, with_vectors=False
        )
        return list(found)

    def term_statistics(self, text: str) -> list[TermStatistics]:
        """For each term of a text, in each namespace: in how many documents and how often it occurs."""
        found = []
        for part in self.own.sparse:
            typed = typed_terms(text, part.component.tokens(text))
            entries, namespace = self._terms.entries(part.space, list(typed)), part.component.namespace
            for term, origin in typed.items():
                entry = entries.get(term)
                counts = (0, 0.0) if entry is None else (entry.documents, entry.occurrences)
                found.append(TermStatistics(namespace, term, *counts, *origin))
        return found

    def explain(self, bound: BoundModel, text: str, doc_id: str, condition: Filter | None) -> Explanation:
        """Why a document has its score."""
        found = find_points(self.connection, self.state.base, [doc_id], vectors=True)
        if not found:
            raise VizslaError(f"there is no document with the id {doc_id!r}")
        if condition is not None:
            self.translated(condition)
            if not condition.accepts(found[0].content):
                raise VizslaError(f"the document {doc_id!r} does not pass the filter")
        return explain_document(_PointDocument(self, found[0]), bound, text, Context(self, condition))

    @cached_property
    def components(self) -> dict[str, SparseComponent]:
        """The sparse components of the collection's own model, by namespace."""
        return sparse_components(self.model)


class Context:
    """The documents that pass a filter, for queries that are expanded from documents."""

    def __init__(self, reader: Reader, condition: Filter | None) -> None:
        self._reader = reader
        self._condition = condition
        self._contents: dict[int, Mapping[str, Any]] = {}

    def top_documents(
        self, component: Component, queries: Sequence[Mapping[str, float]], k: int
    ) -> list[dict[int, float]]:
        """For queries given as weighted terms: the numbers of the best k documents and their scores."""
        reader = self._reader
        bound = reader.bind(component)
        (part,) = bound.sparse
        encoded = [part_queries(bound, Query(*row)) for row in part.encode(queries)]
        condition = reader.translated(self._condition)
        top_k = TopK(reader.connection, reader.state.base, documents=True)
        found = top_k.search(encoded, reader.most(k), condition)
        for one in found:
            self._contents.update(zip(one.numbers, one.contents, strict=True))
        return [dict(zip(one.numbers, one.scores, strict=True)) for one in found]

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of documents that were found, by their numbers."""
        return {number: self._contents[number] for number in numbers}

    def statistics_of(self, component: Component) -> Statistics:
        """The statistics of a component's terms."""
        (part,) = self._reader.bind(component).sparse
        return part.statistics


class _PointDocument(ExplainedDocument):
    """A document in a collection: its counts come back from its weights."""

    def __init__(self, reader: Reader, point: StoredPoint) -> None:
        self._reader = reader
        self._point = point
        self._values: dict[int, float] = {}

    def length_code(self, part: SparsePart) -> int:
        own = self._reader.components[part.component.namespace]
        return int(own.length_codes(self._lengths(part))[0])

    def _lengths(self, part: SparsePart) -> np.ndarray:
        return np.array([self._point.lengths.get(part.component.namespace, 0)], np.int64)

    def value(self, part: SparsePart, number: int) -> float | int | None:
        if number < 0 or number not in self._point.terms:
            return None
        namespace, frozen = part.component.namespace, self._reader.frozen
        one = self._point.only(number)
        value = float(one.values(self._reader.components, frozen, {number: namespace})[0])
        return int(value) if self.weighting(part).norms is not None and value.is_integer() else value

    def weighting(self, part: SparsePart) -> Weighting:
        namespace = part.component.namespace
        return weighting_of(self._reader.components[namespace], self._reader.frozen[namespace], self._lengths(part))

    def average_length(self, part: SparsePart) -> float:
        return self._reader.state.namespaces[part.component.namespace].frozen_average

    def vector(self, part: DensePart | MatchPart) -> np.ndarray:
        component = part.component
        assert not isinstance(part, MatchPart)
        return self._point.vector_of(component, (component.dimensions,))

    def max_sims(self, part: TokenPart, vectors: np.ndarray) -> tuple[MatchedTokens, int]:
        own = self._point.vector_of(part.component, (0, part.component.dimensions))
        rows = TokenRows(own, np.array([0, len(own)]))
        norm = float(np.linalg.norm(own, axis=1).max(initial=0.0))
        _, (products,), (places,) = exact_max_sims(rows, np.array([0]), vectors, norm)
        return MatchedTokens(products, places), len(own)

    def matches(self, part: MatchPart, query: MatchQuery) -> MatchedTokens:  # noqa: ARG002
        raise VizslaError(f"{part.component.name} cannot be in a collection in Qdrant, so there is nothing to explain")

    def token_names(self, component: TokenComponent) -> list[str]:
        return component.document_tokens(self._point.content)
