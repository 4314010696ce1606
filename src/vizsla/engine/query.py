"""Queries as the engine reads them: numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np

from vizsla.engine.ngram_scores import NgramQuery
from vizsla.engine.posting_vectors import MatchQuery
from vizsla.kernels import njit

Terms = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The terms of a query: their numbers, namespaces and weights."""


class TokenQuery(NamedTuple):
    """The token vectors of a query, [tokens, dimensions], and what their score is multiplied by."""

    vectors: np.ndarray
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Query:
    """Term numbers, the namespace each belongs to, and their weights, in the order they are summed.

    `dense`: a vector for each namespace that has dense ones, its weight multiplied in.
    `tokens`: several vectors for each namespace that has token vectors.
    `matches`: tokens with vectors for each namespace whose posting lists carry vectors.
    `ngrams`: weighted n-grams for each namespace with a suffix array.
    """

    terms: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray
    dense: Mapping[int, np.ndarray] = field(default_factory=dict)
    tokens: Mapping[int, TokenQuery] = field(default_factory=dict)
    matches: Mapping[int, MatchQuery] = field(default_factory=dict)
    ngrams: Mapping[int, NgramQuery] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it has terms alone."""
        return not (self.dense or self.tokens or self.matches or self.ngrams)

    @property
    def row(self) -> Terms:
        """The terms alone."""
        return self.terms, self.spaces, self.weights

    @property
    def vector_spaces(self) -> tuple[int, ...]:
        """The namespaces in which the query has a vector, or several, that every document is compared with."""
        return (*self.dense, *self.tokens)


@dataclass(frozen=True, eq=False)
class Queries(Sequence[Query]):
    """Several queries with terms alone, end to end: the i-th has the terms from pointers[i] to pointers[i + 1].

    >>> queries = Queries.of([(np.array([7]), np.zeros(1), np.ones(1)), (np.array([3, 9]), np.zeros(2), np.ones(2))])
    >>> len(queries), queries[1].terms.tolist(), queries.pointers.tolist()
    (2, [3, 9], [0, 1, 3])
    """

    pointers: np.ndarray
    terms: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Terms]) -> Queries:
        """Queries from their terms."""
        if len(rows) == 1:
            (terms, spaces, weights) = rows[0]
            return cls(np.array([0, len(terms)]), np.ascontiguousarray(terms), spaces, weights)
        terms, spaces, weights = map(np.concatenate, zip(*rows, strict=True))
        return cls(np.cumsum([0, *(len(row[0]) for row in rows)]), terms, spaces, weights)

    @classmethod
    def counted(
        cls,
        pointers: np.ndarray,
        terms: np.ndarray,
        counts: np.ndarray,
        known: tuple[np.ndarray, np.ndarray],
        space: int,
        weight: float,
    ) -> Queries:
        """Queries of one namespace, given how often each has which terms: the i-th from pointers[i] to pointers[i + 1].

        `known`: the number of each term in the collection, -1 for a term that is to be left out, and the factor of its
        weight. `weight` multiplies all weights.

        >>> known = np.array([7, -1]), np.array([0.5, np.nan])
        >>> counts = np.array([1, 2], np.int32)
        >>> queries = Queries.counted(np.array([0, 2]), np.array([1, 0], np.int32), counts, known, 3, 10.0)
        >>> queries[0].terms.tolist(), queries[0].spaces.tolist(), queries[0].weights.tolist()
        ([7], [3], [10.0])
        """
        numbers, spaces = np.empty((2, len(terms)), np.int64)
        weights, ends = np.empty(len(terms)), np.empty(len(pointers), np.int64)
        used = _weigh(pointers, terms, counts, *known, space, weight, ends, numbers, spaces, weights)
        return cls(ends, numbers[:used], spaces[:used], weights[:used])

    @classmethod
    def joined(cls, parts: Sequence[Queries]) -> Queries:
        """The same queries in several namespaces as one: each has the terms of all parts, in their order."""
        owners = [np.repeat(np.arange(len(part)), np.diff(part.pointers)) for part in parts]
        order = np.argsort(np.concatenate(owners), kind="stable")
        columns = zip(*((part.terms, part.spaces, part.weights) for part in parts), strict=True)
        terms, spaces, weights = (np.concatenate(column)[order] for column in columns)
        return cls(np.sum([part.pointers for part in parts], axis=0), terms, spaces, weights)

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def row(self, i: int) -> Terms:
        """The terms of a query."""
        a, z = self.pointers[i], self.pointers[i + 1]
        return self.terms[a:z], self.spaces[a:z], self.weights[a:z]

    @overload
    def __getitem__(self, at: int) -> Query: ...
    @overload
    def __getitem__(self, at: slice) -> list[Query]: ...
    def __getitem__(self, at: int | slice) -> Query | list[Query]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        return Query(*self.row(range(len(self))[at]))


@njit(
    "const int64[:], const int32[:], const int32[:], const int64[:], const float64[:], int64, float64, int64[:], "
    "int64[:], int64[:], float64[:]"
)
def _weigh(pointers, terms, counts, known, factors, space, weight, ends, numbers, spaces, weights):
    """Put the numbers and weights of known terms into arrays; returns how many there are. See `Queries.counted`."""
    used = 0
    ends[0] = 0
    for i in range(pointers.size - 1):
        for x in range(pointers[i], pointers[i + 1]):
            number = known[terms[x]]
            if number >= 0:
                numbers[used] = number
                spaces[used] = space
                weights[used] = weight * (counts[x] * factors[terms[x]])
                used += 1
        ends[i + 1] = used
    return used
