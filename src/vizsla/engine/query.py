"""Queries as the engine reads them: numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vizsla.engine.ngram_scores import NgramQuery
from vizsla.engine.posting_vectors import MatchQuery


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
    def vector_spaces(self) -> tuple[int, ...]:
        """The namespaces in which the query has a vector, or several, that every document is compared with."""
        return (*self.dense, *self.tokens)
