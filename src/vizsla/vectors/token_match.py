"""Token vectors that are compared where tokens are equal, and perhaps a vector for the whole text (COIL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

import numpy as np


class MatchTexts(NamedTuple):
    """What a model makes of some texts."""

    terms: list[np.ndarray]
    """[tokens] for each text: a whole number from 0 for each token, equal for equal tokens."""
    vectors: list[np.ndarray]
    """[tokens, dimensions] for each text; no row for one without a known token."""
    texts: np.ndarray
    """[texts, dimensions] the vectors of whole texts, zeros for one without a known token; dimensions may be 0."""


@dataclass(frozen=True, eq=False)
class TokenMatchVectors:
    """Vectors of some texts; `*` scales the scores. They cannot be concatenated, since scores take a maximum.

    >>> terms, rows = [np.array([7, 8]), np.array([8, 8])], [np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])]
    >>> both = TokenMatchVectors("t", MatchTexts(terms, rows, np.array([[1.0], [0.5]])))
    >>> both.dot(both).tolist()
    [[6.0, 10.5], [16.5, 40.25]]
    """

    namespace: str
    texts: MatchTexts
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.texts.terms)

    def __mul__(self, factor: float) -> TokenMatchVectors:
        return replace(self, weight=self.weight * factor)

    __rmul__ = __mul__

    def __add__(self, other: object) -> NoReturn:
        raise ValueError(
            f"the token vectors of {self.namespace!r} cannot be concatenated with others; search an index with the sum"
        )

    __radd__ = __add__

    def dot(self, other: TokenMatchVectors) -> np.ndarray:
        """All scores, row by row: the product of the texts' vectors, and for each query token its best equal token."""
        scores = np.zeros((len(self), len(other)))
        if self.namespace == other.namespace:
            scores += self.texts.texts.astype(np.float64) @ other.texts.texts.astype(np.float64).T
            for q in range(len(self)):
                for d in range(len(other)):
                    scores[q, d] += _matched(self.texts, q, other.texts, d)
        return scores * (self.weight * other.weight)


def _matched(queries: MatchTexts, q: int, documents: MatchTexts, d: int) -> float:
    """The sum over query tokens of the best product with an equal token of a document."""
    total = 0.0
    terms: Sequence[int] = queries.terms[q].tolist()
    for term, vector in zip(terms, queries.vectors[q].astype(np.float64), strict=True):
        rows = documents.vectors[d][documents.terms[d] == term].astype(np.float64)
        if len(rows):
            total += float((rows @ vector).max())
    return total
