"""A model bound to an index: the index's own model, or another one that reads the same postings and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from vizsla.engine import MatchQuery, NgramQuery, Queries, Query, TokenQuery, Weighting, Weightings
from vizsla.errors import VizslaError
from vizsla.index.reading.terms import MAX_CACHED, NamespaceStatistics
from vizsla.lazy import cached_property
from vizsla.models import (
    Component,
    DenseComponent,
    Model,
    NgramComponent,
    Part,
    SearchContext,
    SparseComponent,
    Sum,
    TokenComponent,
    TokenMatchComponent,
    in_language,
    languages_wanted,
    with_norm_of,
)
from vizsla.runs.outline import DOCUMENT_TEXT
from vizsla.text import CountedTexts, Lexicon

_MAX_CACHED_LANGUAGES = 64

_Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]
_NO_TERMS: _Encoded = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
_NO_FACTORS = np.zeros(0)


class _QueryVectors(NamedTuple):
    """What a query has besides terms, by namespace, in the order of `Query`."""

    dense: dict[int, np.ndarray]
    tokens: dict[int, TokenQuery]
    matches: dict[int, MatchQuery]
    ngrams: dict[int, NgramQuery]


@dataclass(frozen=True, eq=False)
class SparsePart:
    """A sparse component of a model, its weight, and its namespace in the index."""

    space: int
    weight: float
    component: SparseComponent
    statistics: NamespaceStatistics

    known: dict[str, tuple[int, float]] = field(default_factory=dict)
    """A cache of query terms: their numbers, -1 if no document has them, and the factors of their weights."""
    _known_of: tuple[Lexicon, np.ndarray, np.ndarray] | None = None
    """The same for all terms of a lexicon, as arrays."""

    def query_weights(self, queries: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
        """The final weights of each query's terms; terms that no document has are left out."""
        if type(self.component).query_weights is not SparseComponent.query_weights:  # a way of its own to weigh terms
            weighted = self.component.query_weights(queries, self.statistics)
            return [{term: self.weight * w for term, w in weights.items()} for weights in weighted]
        known, own = self._known_terms(queries), self.weight
        return [
            {term: own * (weight * known[term][1]) for term, weight in query.items() if known[term][0] >= 0}
            for query in queries
        ]

    def encode(self, queries: Sequence[Mapping[str, float]]) -> Queries:
        """Queries, given as terms and their weights before idf, as numbers for the engine."""
        if type(self.component).query_weights is not SparseComponent.query_weights:
            return Queries.of([self.encode_weights(weights) for weights in self.query_weights(queries)])
        if isinstance(queries, CountedTexts):
            return self._encode_counted(queries)
        known, own = self._known_terms(queries), self.weight
        numbers: list[int] = []
        weights: list[float] = []
        pointers = [0]
        for query in queries:
            for term, weight in query.items():
                number, factor = known[term]
                if number >= 0:
                    numbers.append(number)
                    weights.append(own * (weight * factor))
            pointers.append(len(numbers))
        spaces = self._spaces(len(numbers))
        return Queries(np.array(pointers), np.array(numbers, np.int64), spaces, np.array(weights, np.float64))

    def _encode_counted(self, queries: CountedTexts) -> Queries:
        """The same for queries that kernels have counted: no term is looked at in Python."""
        known = self._known_numbers(queries.lexicon)
        return Queries.counted(queries.pointers, queries.numbers, queries.counts, known, self.space, self.weight)

    def _known_numbers(self, lexicon: Lexicon) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and the factors of all terms of a lexicon."""
        of, numbers, factors = self._known_of or (lexicon, _NO_TERMS[0], _NO_FACTORS)
        if of is not lexicon:
            numbers, factors = _NO_TERMS[0], _NO_FACTORS
        new = lexicon.terms[len(numbers) :]
        if new:
            known = self._known_terms([dict.fromkeys(new, 1.0)])
            numbers = np.append(numbers, [known[term][0] for term in new])
            factors = np.append(factors, [known[term][1] for term in new])
            self.__dict__["_known_of"] = lexicon, numbers, factors  # another thread may do the same
        return numbers, factors

    def _known_terms(self, queries: Sequence[Mapping[str, float]]) -> dict[str, tuple[int, float]]:
        """Numbers and factors of the terms of queries, and perhaps of others."""
        known = self.known
        for query in queries:
            if not known.keys() >= query.keys():
                return self._learn(queries)
        return known

    def _learn(self, queries: Sequence[Mapping[str, float]]) -> dict[str, tuple[int, float]]:
        """Look up the terms of queries that are not known yet."""
        if len(self.known) > MAX_CACHED:
            self.__dict__["known"] = {}
        terms = list(dict.fromkeys(term for query in queries for term in query))
        numbers, frequencies = self.statistics.terms.lookup(self.space, terms)
        living = frequencies > 0
        factors = np.full(len(terms), np.nan)
        factors[living] = self.component.term_factors(frequencies[living], self.statistics.documents)
        pairs = zip(np.where(living, numbers, -1).tolist(), factors.tolist(), strict=True)
        found = dict(zip(terms, pairs, strict=True))
        self.known.update(found)
        return found

    @cached_property
    def _places(self) -> np.ndarray:
        return np.full(64, self.space, np.int64)

    def _spaces(self, count: int) -> np.ndarray:
        """The place of the namespace, once for each term."""
        return self._places[:count] if count <= len(self._places) else np.full(count, self.space, np.int64)

    def encode_weights(self, weights: Mapping[str, float]) -> _Encoded:
        """Term numbers, namespaces and weights, given the final weights of terms."""
        known = self._known_terms([weights])
        numbers = np.array([known[term][0] for term in weights], np.int64)
        return numbers, self._spaces(len(numbers)), np.array(list(weights.values()), np.float64)


@dataclass(frozen=True, eq=False)
class DensePart:
    """A dense component of a model, its weight, and its namespace in the index."""

    space: int
    weight: float
    component: DenseComponent

    def encode(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """The vectors of queries, the weight multiplied in; None for a query without a known token."""
        vectors, known = self.component.query_embeddings(texts)
        weighted = self.weight * vectors.astype(np.float64)
        return [row if has_token else None for row, has_token in zip(weighted, known.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class TokenPart:
    """A component of late interaction, its weight, and its namespace in the index."""

    space: int
    weight: float
    component: TokenComponent

    def encode(self, texts: Sequence[str]) -> list[TokenQuery | None]:
        """The token vectors of queries and their weight; None for a query without a known token."""
        rows = self.component.query_embeddings(texts)
        return [TokenQuery(vectors, self.weight) if len(vectors) else None for vectors in rows]


@dataclass(frozen=True, eq=False)
class MatchPart:
    """A component that matches equal tokens (COIL), its weight, and its namespace in the index."""

    space: int
    weight: float
    component: TokenMatchComponent

    def encode(self, texts: Sequence[str]) -> list[tuple[MatchQuery, np.ndarray | None] | None]:
        """The tokens of queries with their vectors, and the vector of the whole query, if the model has one.

        The vector of the whole query includes the weight. None for a query without a known token.
        """
        terms, vectors, whole = self.component.query_embeddings(texts)
        weighted = self.weight * whole.astype(np.float64)
        return [
            (MatchQuery(own, rows, self.weight), text if len(text) else None) if len(own) else None
            for own, rows, text in zip(terms, vectors, weighted, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class NgramPart:
    """A component that scores by n-grams (SEAL), its weight, and its namespace in the index."""

    space: int
    weight: float
    component: NgramComponent

    def encode(self, texts: Sequence[str], context: SearchContext) -> list[NgramQuery | None]:
        """The n-grams of queries, with the weight; None for a query without any."""
        found = self.component.query_ngrams(texts, context.ngrams_of(self.component))
        return [replace(query, weight=self.weight) if len(query) else None for query in found]


BoundPart = SparsePart | DensePart | TokenPart | MatchPart | NgramPart


@dataclass(frozen=True, eq=False)
class BoundModel:
    """The parts of a model with their namespaces in an index, and how stored values become document weights."""

    model: Model
    parts: tuple[BoundPart, ...]
    sparse: tuple[SparsePart, ...]
    dense: tuple[DensePart, ...]
    tokens: tuple[TokenPart, ...]
    matches: tuple[MatchPart, ...]
    ngrams: tuple[NgramPart, ...]
    weightings: Weightings
    has_vectors: bool
    """Whether the model has vectors or n-grams, so that documents are not found by terms alone."""
    documents: BoundModel | None = None
    """The parts that read whole documents, in an index of passages; the others find passages."""

    @classmethod
    def bind(cls, model: Model, own: Model, statistics: Mapping[str, NamespaceStatistics]) -> BoundModel:
        """Bind a model to an index that was built with `own`.

        The index stores counts and lengths, so k1, b, the variant and the weights of a sum may differ from `own`, and
        parts may be left out. The analyzer and the fields must be the same.
        """
        components = [p.component for p in own.parts]
        takes_own_weights = model.needs_fit and len(model.parts) == len(own.parts)  # fitted to the index's documents
        bound: dict[int, tuple[float, Component]] = {}
        for weight, component in model.parts:
            space = _find(component, components, bound)
            frozen = component.with_frozen_statistics(components[space])
            if takes_own_weights:
                weight, frozen = own.parts[space].weight, with_norm_of(frozen, components[space])
            bound[space] = weight, replace(frozen, namespace=components[space].namespace)  # type: ignore[type-var]
        searched = [bound[space][1] if space in bound else held for space, held in enumerate(components)]
        weightings = [
            c.weighting(statistics[c.namespace]) if isinstance(c, SparseComponent) else Weighting() for c in searched
        ]
        parts = tuple(_part(space, *bound[space], statistics) for space in bound)
        if DOCUMENT_TEXT not in model.fields:
            return cls._of(model, parts, weightings)
        whole = tuple(part for part in parts if part.component.reads_documents)
        passages = tuple(part for part in parts if part not in whole)
        if not passages:
            raise VizslaError(f"{model.name} scores documents of passages; add a model that finds these, such as bm25")
        return replace(cls._of(model, passages, weightings), documents=cls._of(model, whole, weightings))

    @classmethod
    def _of(cls, model: Model, parts: tuple[BoundPart, ...], weightings: list[Weighting]) -> BoundModel:
        sparse = tuple(part for part in parts if isinstance(part, SparsePart))
        dense = tuple(part for part in parts if isinstance(part, DensePart))
        tokens = tuple(part for part in parts if isinstance(part, TokenPart))
        matches = tuple(part for part in parts if isinstance(part, MatchPart))
        ngrams = tuple(part for part in parts if isinstance(part, NgramPart))
        has_vectors = len(sparse) < len(parts)
        return cls(model, parts, sparse, dense, tokens, matches, ngrams, Weightings.pack(weightings), has_vectors)

    @property
    def all_parts(self) -> tuple[BoundPart, ...]:
        """The parts that find passages, and those that read whole documents."""
        return self.parts if self.documents is None else self.parts + self.documents.parts

    def encode(self, texts: Sequence[str], context: SearchContext) -> Sequence[Query]:
        """Queries as numbers for the engine; terms that no document has are left out."""
        sparse = []
        for part in self.sparse:
            sparse.append(part.encode(part.component.query_terms(texts, context)))  # noqa: PERF401 (a frame less)
        if len(sparse) == 1:
            (queries,) = sparse
        else:
            queries = Queries.joined(sparse) if sparse else Queries.of([_NO_TERMS] * len(texts))
        if not self.has_vectors:
            return queries
        vectors = enumerate(self._vectors(texts, context))
        return [Query(*queries.row(i), v.dense, v.tokens, v.matches, v.ngrams) for i, v in vectors]

    def encode_weighted(self, text: str, weights: Mapping[int, Mapping[str, float]], context: SearchContext) -> Query:
        """An encoded query, given the final weights of its terms, by the position of each sparse namespace.

        `text`: what parts with vectors or n-grams read.
        """
        encoded = _joined([part.encode_weights(weights[part.space]) for part in self.sparse])
        if not self.has_vectors or not text.strip():
            return Query(*encoded)
        (v,) = self._vectors([text], context)
        return Query(*encoded, v.dense, v.tokens, v.matches, v.ngrams)

    def _vectors(self, texts: Sequence[str], context: SearchContext) -> list[_QueryVectors]:
        """For each query what it has besides terms."""
        vectors = [_QueryVectors({}, {}, {}, {}) for _ in texts]
        for part in self.dense:
            for own, vector in zip(vectors, part.encode(texts), strict=True):
                if vector is not None:
                    own.dense[part.space] = vector
        for token_part in self.tokens:
            for own, token_query in zip(vectors, token_part.encode(texts), strict=True):
                if token_query is not None:
                    own.tokens[token_part.space] = token_query
        for match_part in self.matches:
            for own, encoded in zip(vectors, match_part.encode(texts), strict=True):
                if encoded is not None:
                    own.matches[match_part.space], whole = encoded
                    if whole is not None:
                        own.dense[match_part.space] = whole
        for ngram_part in self.ngrams:
            for own, ngram_query in zip(vectors, ngram_part.encode(texts, context), strict=True):
                if ngram_query is not None:
                    own.ngrams[ngram_part.space] = ngram_query
        return vectors

    def query_weights(self, text: str, context: SearchContext) -> dict[str, dict[str, float]]:
        """For each namespace the terms of a query and their final weights."""
        return {
            p.component.namespace: p.query_weights(p.component.query_terms([text], context))[0] for p in self.sparse
        }


class OneLanguage:
    """Models whose queries are analysed in one language of several; keeps them, so that each is bound once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], tuple[BoundModel, Model]] = {}

    def model(self, bound: BoundModel, language: str) -> Model:
        """A model without its parts for other languages; see `in_language`."""
        key = id(bound), languages_wanted(language)
        known = self._known.get(key)
        if known is None:
            fitted = Sum(tuple(Part(part.weight, part.component) for part in bound.all_parts), bound.model.name)
            known = bound, in_language(fitted, language)  # `bound` stays alive, so its id is not reused
            if len(self._known) >= _MAX_CACHED_LANGUAGES:
                self._known = {}
            self._known[key] = known
        return known[1]


def _joined(encoded: Sequence[_Encoded]) -> _Encoded:
    """The terms of several namespaces as those of one query."""
    if len(encoded) < 2:
        return encoded[0] if encoded else _NO_TERMS
    terms, spaces, weights = map(np.concatenate, zip(*encoded, strict=True))
    return terms, spaces, weights


def _part(space: int, weight: float, component: Component, statistics: Mapping[str, NamespaceStatistics]) -> BoundPart:
    weight = float(weight)  # a whole number is a weight, too, but of another type for kernels
    if isinstance(component, SparseComponent):
        return SparsePart(space, weight, component, statistics[component.namespace])
    if isinstance(component, TokenComponent):
        return TokenPart(space, weight, component)
    if isinstance(component, TokenMatchComponent):
        return MatchPart(space, weight, component)
    if isinstance(component, NgramComponent):
        return NgramPart(space, weight, component)
    assert isinstance(component, DenseComponent)
    return DensePart(space, weight, component)


def _find(component: Component, held: Sequence[Component], taken: Mapping[int, object]) -> int:
    """The namespace that holds what a component needs and that no other part of the model has taken.

    If there are several, the one with its name.
    """
    signature = component.index_signature
    spaces = [i for i, other in enumerate(held) if other.index_signature == signature and i not in taken]
    if not spaces:
        raise VizslaError(_mismatch(component, held))
    return next((i for i in spaces if held[i].namespace == component.namespace), spaces[0])


def _mismatch(component: Component, held: Sequence[Component]) -> str:
    """Why an index cannot be searched with a component, and what can be changed."""
    kinds: tuple[type[DenseComponent | TokenComponent | TokenMatchComponent], ...]
    kinds = DenseComponent, TokenComponent, TokenMatchComponent
    if isinstance(component, kinds):
        kind = next(kind for kind in kinds if isinstance(component, kind))
        free, fixed = "other weights", f"other {'dense' if kind is DenseComponent else 'token'} vectors"
        sizes = sorted({other.dimensions for other in held if isinstance(other, kind)})
        if sizes and component.dimensions not in sizes:
            fixed += f": its own have {' and '.join(map(str, sizes))} numbers, these {component.dimensions}"
    elif isinstance(component, NgramComponent):
        free, fixed = "other weights and options of the search", "the tokens of another generator or other fields"
    else:
        free, fixed = "other k1, b, variants and weights", "another analyzer or other fields"
    return (
        f"this index does not have what {component.name!r} reads; it can be searched with {free}, but not with {fixed}"
    )
