"""The exact top k of queries, found by a cluster.

A model with one vector takes one request. A sum takes two steps in one request: each part returns its best L
documents, and the union of these candidates is scored by every part and summed. A document that is not a candidate has
at most the L-th best score of each part, so the result is complete if the k-th sum is above the sum of these scores;
otherwise L is doubled.

A `Plan` has the options of a search checked, a `Reader` binds models to one state of the collection, `TopK` asks the
servers, and filters become conditions on the payload of points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection, Json, as_json, query_batch
from vizsla.backends.qdrant.layout import DOCUMENT, ID, NUMBER, SPARSE, vector_name
from vizsla.backends.qdrant.points import StoredPoint, find_points, sparse_components, weighting_of
from vizsla.backends.qdrant.state import CollectionState
from vizsla.backends.qdrant.terms import TermTable
from vizsla.backends.qdrant.unsupported import cannot
from vizsla.engine import CollectionNgrams, MatchQuery, NgramQuery, Query, TokenRows, Weighting, exact_max_sims
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import TermStatistics
from vizsla.index.reading.terms import NamespaceStatistics
from vizsla.index.search.bound_model import (
    BoundModel,
    DensePart,
    MatchPart,
    NgramPart,
    OneLanguage,
    SparsePart,
    TokenPart,
)
from vizsla.index.search.combining import Combination
from vizsla.index.search.explain import ExplainedDocument, MatchedTokens, explain_document
from vizsla.index.search.pages import Page
from vizsla.index.search.plan import NO_PASSAGES, SearchOptions, best_within, check_text, combination_of
from vizsla.lazy import cached_property
from vizsla.models import Component, Model, SparseComponent, Statistics, TokenComponent
from vizsla.models.components import typed_terms
from vizsla.runs import Document, Explanation, Filter, FilterLike, Hits, KnownDocuments, Ranking
from vizsla.runs.filters import (
    SAMPLE,
    Condition,
    Value,
    element_tests,
    family_of,
    field_name,
    field_names,
    refuse_unknown_fields,
)
from vizsla.runs.hits import check_max_tokens, check_total, check_typos
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_count, check_queries

# Filters as conditions on the payload of points, with the meaning they have in an index

_INTEGERS = 1 << 53  # whole numbers below it are exact in a float
"""The limit below which 64-bit floats, in which a server compares numbers, represent all integers exactly."""
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_NOTHING = models.HasIdCondition(has_id=[])


def payload_key(field: Sequence[str]) -> str:
    """The key of a document's field in the payload of its point.

    >>> payload_key(("source", "a.b"))
    'document."source"."a.b"'
    """
    return ".".join([DOCUMENT, *(f'"{part}"' for part in field)])


def payload_filter(condition: Filter) -> models.Filter:
    """The equivalent filter for Qdrant; an error if Qdrant cannot express it."""
    return models.Filter(must=[_translated(condition.root)])


def exists(field: Sequence[str]) -> models.Condition:
    """That a document has a field, be it null or an empty list."""
    return models.FieldCondition(key=payload_key(field), values_count=models.ValuesCount(gte=0))


def _translated(condition: Condition) -> models.Condition:
    if condition.kind == "and":
        return models.Filter(must=[_translated(part) for part in condition.parts])
    if condition.kind == "or":
        return models.Filter(should=[_translated(part) for part in condition.parts])
    if condition.kind == "not":
        return models.Filter(must_not=[_translated(condition.parts[0])])
    if condition.kind == "exists":
        return exists(condition.field)
    if condition.kind == "!=":
        equal = _some_element(condition, [("=", condition.values[0])])
        return models.Filter(must=[exists(condition.field)], must_not=[equal])
    return _some_element(condition, element_tests(condition))


def _some_element(leaf: Condition, tests: Sequence[tuple[str, Value]]) -> models.Condition:
    """That the value of a field, or an element of it, passes one of some tests."""
    key = payload_key(leaf.field)
    texts = [value for comparison, value in tests if comparison == "=" and isinstance(value, str)]
    passed: list[models.Condition] = []
    if texts:
        passed.append(models.FieldCondition(key=key, match=models.MatchAny(any=texts)))
    for comparison, value in tests:
        if not (comparison == "=" and isinstance(value, str)):
            passed += _tested(leaf, key, comparison, value)
    return models.Filter(should=passed) if passed else _NOTHING


def _tested(leaf: Condition, key: str, comparison: str, value: Value) -> list[models.Condition]:
    """The conditions of which one holds if an element passes a test."""
    family = family_of(value)
    if family == "null":  # elements of a list have a key of their own
        fields = [models.PayloadField(key=place) for place in (key, f"{key}[]")]
        return [models.IsNullCondition(is_null=field) for field in fields]
    if family == "boolean":
        return [models.FieldCondition(key=key, match=models.MatchValue(value=bool(value)))]
    if isinstance(value, str):
        raise VizslaError(
            f"a collection in Qdrant compares texts only by = and !=, not by {comparison}: {field_name(leaf.field)} "
            f"(character {leaf.position + 1} of the filter); keep a number to compare with beside it"
        )
    assert isinstance(value, int | float)
    if not abs(value) < _INTEGERS:
        raise VizslaError(
            f"a collection in Qdrant compares numbers exactly only below {_INTEGERS:,}, and {field_name(leaf.field)} "
            f"is compared with {value} (character {leaf.position + 1} of the filter); keep such numbers as texts"
        )
    bounds = {"gte": float(value), "lte": float(value)} if comparison == "=" else {_BOUNDS[comparison]: float(value)}
    return [models.FieldCondition(key=key, range=models.Range(**bounds))]


# The best documents

BATCH = 50
"""Queries that are sent together."""
ROUNDING = 1e-5
"""The largest relative error of a sum of 32-bit floats; a result within it is not considered complete."""
_SPARE = 8  # additional documents after the top k that a first request fetches, for ties
_LEAST = 40  # initial number of candidates per part of a sum
_EXACT = {"exact": True}

Vector = dict[str, list[Any]] | list[float] | list[list[float]]


@dataclass(frozen=True, eq=False)
class PartQuery:
    """The query vector for one vector of the documents."""

    using: str
    vector: Vector
    """A sparse vector as `indices` and `values`, a dense one as its numbers, or one for each token."""

    def request(self, limit: int, condition: Json | None, **more: Any) -> Json:
        """A request for the best documents of this part, among all or among those of a `prefetch`.

        Dense vectors are searched exhaustively; sparse search is always exact.
        """
        made = {"query": self.vector, "using": self.using, "limit": limit, **more}
        if self.using != SPARSE:
            made["params"] = _EXACT
        if condition is not None:
            made["filter"] = condition
        return made


class FoundDocuments(NamedTuple):
    """The results of a query as columns, best first: an object for each hit would cost more than the search."""

    scores: Sequence[float] = ()
    numbers: Sequence[int] = ()
    """The insertion numbers."""
    ids: Sequence[str] = ()
    contents: Sequence[Mapping[str, Any]] = ()
    """The fields of the documents, if they were requested; otherwise empty."""

    def top(self, k: int) -> FoundDocuments:
        """The first k."""
        return FoundDocuments(self.scores[:k], self.numbers[:k], self.ids[:k], self.contents[:k])

    def hits(self, known: dict[str, Document]) -> Hits:
        """The documents as hits; `known`: those of other queries, which share them."""
        contents: Iterable[Mapping[str, Any]] = self.contents or ({} for _ in self.ids)
        for doc_id, content in zip(self.ids, contents, strict=True):
            if doc_id not in known:
                known[doc_id] = Document(doc_id, content)
        source = KnownDocuments([known[doc_id].content for doc_id in self.ids])
        return Hits.from_columns(list(self.ids), list(self.scores), source=source)


@dataclass(eq=False)
class Pending:
    """A query in progress: how many documents to fetch, or how many candidates per part."""

    place: int
    parts: list[PartQuery]
    limit: int
    depth: int = 0


def part_queries(bound: BoundModel, query: Query) -> list[PartQuery]:
    """An encoded query as one comparison for each vector of the documents that it has something for."""
    names = {part.space: vector_name(part.component) for part in bound.parts}
    parts = []
    if len(query.terms):
        # Each term comes once: parts have namespaces of their own, whose numbers are disjoint.
        parts.append(PartQuery(SPARSE, {"indices": query.terms.tolist(), "values": query.weights.tolist()}))
    for space, vector in query.dense.items():
        parts.append(PartQuery(names[space], vector.astype(np.float32).tolist()))
    for space, tokens in query.tokens.items():
        if tokens.weight <= 0:
            raise VizslaError("late interaction needs a weight above 0 in a collection in Qdrant")
        parts.append(PartQuery(names[space], (tokens.weight * tokens.vectors).astype(np.float32).tolist()))
    return parts


class TopK:
    """Searches one collection."""

    def __init__(self, connection: Connection, base: str, *, documents: bool) -> None:
        self._connection = connection
        self._base = base
        self._payload = [ID, NUMBER, *([DOCUMENT] if documents else [])]

    def search(
        self, queries: Sequence[list[PartQuery]], k: int, condition: models.Filter | None = None
    ) -> list[FoundDocuments]:
        """The best k documents of each query, best first, equal scores in the order of insertion."""
        found = [FoundDocuments()] * len(queries)
        # A query without terms and vectors finds nothing.
        pending = [self.first(place, parts, k) for place, parts in enumerate(queries) if parts]
        passing = None if condition is None else as_json(condition)
        while pending:
            batch, pending = pending[:BATCH], pending[BATCH:]
            requests = [request for one in batch for request in self.requests(one, passing)]
            answers = iter(self._connection.call(query_batch, self._base, requests))
            for one in batch:
                best = ordered(next(answers))
                bounds = [next(answers) for _ in one.parts] if len(one.parts) > 1 else []
                if is_complete(best.scores, k, one, [point["score"] for last in bounds for point in last]):
                    found[one.place] = best.top(k)
                else:
                    pending.append(one)
        return found

    def first(self, place: int, parts: list[PartQuery], k: int) -> Pending:
        """The first attempt for the query at a position."""
        return Pending(place, parts, k + _SPARE, max(_LEAST, 2 * k))

    def requests(self, one: Pending, condition: Json | None) -> list[Json]:
        """What is sent for a query: one request, and for a sum one more for each of its parts."""
        if len(one.parts) == 1:
            return [one.parts[0].request(one.limit, condition, with_payload=self._payload)]
        depth, count = one.depth, len(one.parts)
        named = [part.request(depth, condition) for part in one.parts]
        scores = [f"$score[{i}]" for i in range(count)]
        total = {
            "prefetch": [part.request(count * depth, condition, prefetch=named) for part in one.parts],
            "query": {"formula": {"sum": scores}, "defaults": dict.fromkeys(scores, 0.0)},
            "limit": one.limit,
            "with_payload": self._payload,
        }
        return [total, *(part.request(1, condition, offset=depth - 1) for part in one.parts)]


def ordered(points: Sequence[Json]) -> FoundDocuments:
    """Points by descending score, equal scores in the order of insertion."""
    if not points:
        return FoundDocuments()
    try:
        scores = [point["score"] for point in points]
        payloads = [point["payload"] for point in points]
        numbers = [payload[NUMBER] for payload in payloads]
        ids = [payload[ID] for payload in payloads]
    except (KeyError, TypeError):
        raise _foreign_point(points) from None
    if set(map(type, numbers)) != {int} or set(map(type, ids)) != {str}:
        raise _foreign_point(points)
    contents = [payload.get(DOCUMENT) or {} for payload in payloads] if DOCUMENT in payloads[0] else []
    if len(set(scores)) == len(scores) and sorted(scores, reverse=True) == scores:
        return FoundDocuments(scores, numbers, ids, contents)  # already in order, as usual
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], numbers[place]))
    return FoundDocuments(
        [scores[place] for place in order],
        [numbers[place] for place in order],
        [ids[place] for place in order],
        [contents[place] for place in order] if contents else [],
    )


def _foreign_point(points: Sequence[Json]) -> CollectionError:
    """What to say of the point that Vizsla has not written."""
    for point in points:
        payload = point.get("payload") or {}
        if type(payload.get(NUMBER)) is not int or type(payload.get(ID)) is not str:
            return CollectionError(
                f"the point {point.get('id')} was not written by Vizsla; remove it, or build it again"
            )
    return CollectionError("a server gives points without a score; is this a Qdrant server that Vizsla knows?")


def is_complete(scores: Sequence[float], k: int, one: Pending, lasts: Sequence[float]) -> bool:
    """Whether no other document can be among the best k; if not, the next request is doubled.

    `scores`: those of the documents that were found, best first. `lasts`: for a sum, the last score of each part,
    except for parts that have returned all their documents.
    """
    if lasts:
        # A document that a part did not return may lack its vector and score 0, which may be more than the last score.
        bound = sum(max(last, 0.0) for last in lasts)
        if len(scores) < k or scores[k - 1] <= bound + ROUNDING * bound:
            one.depth *= 2
            one.limit = max(one.limit, k + _SPARE)
            return False
    if len(scores) < one.limit or scores[k - 1] > scores[-1]:
        return True
    one.limit *= 2
    return False


# One state of a collection: its model, its statistics, the terms met so far

_MAX_CACHED_MODELS = 64


class Reader:
    """Searches a collection in one state."""

    def __init__(self, connection: Connection, state: CollectionState, model: Model) -> None:
        self.connection = connection
        self.state = state
        self.model = model
        self.frozen = state.frozen_statistics()
        terms = TermTable(state.terms(connection), model.namespaces)
        self._statistics = {
            name: NamespaceStatistics(found.documents, found.total_length, found.longest, space, terms)
            for space, (name, found) in enumerate((n, state.namespaces[n]) for n in model.namespaces)
        }
        self._terms = terms
        self._bound: dict[int, BoundModel] = {}
        self._one_language = OneLanguage()
        self._known_fields: set[tuple[str, ...]] = set()
        self.own = self.bind(model)
        """The collection's own model."""

    def bind(self, model: Model) -> BoundModel:
        """A model bound to the collection; an error if the collection has no data for it."""
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
            self._bound[id(model)] = bound  # it keeps the model alive, so its id is not reused
        return bound

    def chosen(self, model: Model | None, language: str | None = None) -> BoundModel:
        """A model, or the collection's own, bound to it; of several languages the one that is named."""
        bound = self.own if model is None else self.bind(model)
        return bound if language is None else self.bind(self._one_language.model(bound, language))

    def _check_weighting(self, part: SparsePart) -> None:
        """Refuse a k1, b, delta or saturation other than those baked into the documents' weights."""
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
        """Encode queries into the vectors that are compared with those of documents."""
        return [part_queries(bound, query) for query in bound.encode(texts, Context(self, condition))]

    def search(
        self, texts: Sequence[str], bound: BoundModel, k: int, condition: Filter | None, *, documents: bool
    ) -> list[FoundDocuments]:
        """The best k documents of each query that pass a filter."""
        translated = self.translated(condition)
        queries = self.encode(texts, bound, condition)
        return TopK(self.connection, self.state.base, documents=documents).search(queries, self.most(k), translated)

    def most(self, k: int) -> int:
        """k, or the number of documents if that is smaller."""
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
        encoded = [part_queries(bound, query) for query in part.encode(queries)]
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

    def ngrams_of(self, component: Component) -> CollectionNgrams:
        """Qdrant holds no token sequences."""
        raise VizslaError(f"{component.name} searches by n-grams of a collection, which Qdrant does not hold")


class _PointDocument(ExplainedDocument):
    """A document in a collection, whose counts are recovered from its weights."""

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

    def ngram_shares(self, part: NgramPart, query: NgramQuery) -> np.ndarray:  # noqa: ARG002
        raise VizslaError(f"{part.component.name} cannot be in a collection in Qdrant, so there is nothing to explain")

    def token_names(self, component: TokenComponent) -> list[str]:
        return component.document_tokens(self._point.content)


# Options of a search


def refuse_syntax(address: str, syntax: str | None) -> None:
    """Refuse a query syntax, which clusters do not support."""
    if check_syntax(syntax) is not None:
        raise cannot(address, "syntax")


@dataclass(frozen=True)
class Plan:
    """A search whose options have been checked; an empty query finds nothing."""

    reader: Reader
    bound: BoundModel
    k: int
    condition: Filter | None = None
    fusion: Combination | None = None
    """The rule by which the results of the parts are fused."""
    page: Page | None = None
    """Which of the best are given; None for the first k."""
    max_tokens: int | None = None
    """How many tokens the texts of the results have at most; None for no limit."""

    @classmethod
    def prepare(
        cls, reader: Reader, options: SearchOptions, address: str, k: int = 1, filter: FilterLike = None
    ) -> Plan:
        """A search; ways to search that a cluster does not have are refused."""
        params = options.search_params
        if params is not None and check_text(params, "search_params", "exact").strip() != "exact":
            raise cannot(address, "search_params")
        if options.approximate not in (None, 1):
            raise cannot(address, "approximate")
        refuse_syntax(address, options.syntax)
        if check_typos(options.typos) is not None:
            raise cannot(address, "typos")
        if check_total(options.total):
            raise cannot(address, "total")
        for name in ("sort", "collapse"):
            if getattr(options, name) is not None:
                raise cannot(address, name)
        bound = reader.chosen(options.model, options.language)
        page = Page.of(options.offset, None, None, options.min_score, options.passages, options.window)
        if page is not None and (page.passages > 1 or page.window):
            raise cannot(address, "passages")
        max_tokens = check_max_tokens(options.max_tokens)
        count = check_count(k, "k, the number of results,")
        plan = cls(reader, bound, count, Filter.of(filter), page=page, max_tokens=max_tokens)
        combination = combination_of(options.combine)
        if combination.name == "sum":
            return plan
        if combination.fusion is None:
            raise cannot(address, combination.name)
        if len(bound.parts) == 1:
            raise VizslaError(f"{combination.name} combines the parts of a sum, and this model has only one part")
        return replace(plan, fusion=combination)

    def hits(self, queries: Sequence[str], *, documents: bool) -> list[Hits]:
        """The best k documents for each query, best first; without `documents` hits have ids and scores only."""
        texts = check_queries(queries)
        known: dict[str, Document] = {}
        if self.max_tokens is not None:
            every = replace(self, max_tokens=None).hits(texts, documents=True)
            return [best_within(hits, self.max_tokens, documents) for hits in every]
        if self.page is not None:
            first, least = self.page.offset, self.page.min_score
            best = replace(self, k=first + self.k, page=None).hits(texts, documents=documents)
            ends = [len(hits) if least is None else sum(score >= least for score in hits.scores) for hits in best]
            return [hits[first:end] for hits, end in zip(best, ends, strict=True)]
        if self.fusion is None:
            return [found.hits(known) for found in self._found(texts, self.bound, self.k, documents=documents)]
        rankings = self.rankings(texts)
        if documents:
            ids = list(dict.fromkeys(doc_id for ranking in rankings for doc_id in ranking.documents))
            points = find_points(self.reader.connection, self.reader.state.base, ids)
            known = {point.doc_id: point.document for point in points}
        return [FoundDocuments(r.scores.tolist(), (), r.documents).hits(known) for r in rankings]

    def rankings(self, queries: Sequence[str]) -> list[Ranking]:
        """Ids and scores alone, for each query."""
        texts = check_queries(queries)
        if self.max_tokens is not None:
            raise VizslaError(NO_PASSAGES)
        if self.fusion is None:
            return self._rankings(texts, self.bound, self.k)
        depth = max(self.k, self.fusion.depth)
        parts = [self._rankings(texts, self.reader.bind(part.component), depth) for part in self.bound.parts]
        return self.fusion.fused(parts, self.k)

    def _rankings(self, texts: Sequence[str], bound: BoundModel, k: int) -> list[Ranking]:
        return [Ranking(list(found.ids), found.scores) for found in self._found(texts, bound, k, documents=False)]

    def _found(self, texts: Sequence[str], bound: BoundModel, k: int, *, documents: bool) -> list[FoundDocuments]:
        with_words = [text for text in texts if text.strip()]
        if not with_words:
            self.reader.translated(self.condition)  # still raises an error for an invalid filter
            return [FoundDocuments()] * len(texts)
        found = iter(self.reader.search(with_words, bound, k, self.condition, documents=documents))
        return [next(found) if text.strip() else FoundDocuments() for text in texts]
