"""Token vectors: several vectors a text (late interaction).

`TokenVectors` compares each query token with all tokens of a document (ColBERT), `TokenMatchVectors` with equal tokens
only, and perhaps has a vector for the whole text (COIL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

import numpy as np


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """A vector for each token of some texts; `*` scales the scores, `vectors[i]` shows the vectors of a text.

    They cannot be concatenated: a score takes a maximum for each query token, so it is not an inner product.

    >>> documents = TokenVectors.of([np.eye(2), np.array([[0.5, 0.5]]), np.zeros((0, 2))], "tokens")
    >>> queries = TokenVectors.of([np.array([[1.0, 0.0], [0.0, 2.0]])], "tokens")
    >>> queries.dot(documents).tolist()
    [[3.0, 1.5, 0.0]]
    """

    namespace: str
    rows: np.ndarray
    """[tokens of all texts, dimensions]"""
    starts: np.ndarray
    """[texts + 1] where the tokens of each text begin."""
    weight: float = 1.0

    @classmethod
    def of(cls, texts: Sequence[np.ndarray], namespace: str) -> TokenVectors:
        """The token vectors of texts, given as a matrix for each."""
        rows = np.concatenate(texts) if texts else np.zeros((0, 0), np.float32)
        return cls(namespace, rows, np.cumsum([0, *map(len, texts)]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, text: int) -> np.ndarray:
        vectors: np.ndarray = self.rows[self.starts[text] : self.starts[text + 1]]
        return vectors

    def __mul__(self, factor: float) -> TokenVectors:
        return TokenVectors(self.namespace, self.rows, self.starts, self.weight * factor)

    __rmul__ = __mul__

    def __add__(self, other: object) -> NoReturn:
        raise ValueError(
            f"the token vectors of {self.namespace!r} cannot be concatenated with others; search an index with the sum"
        )

    __radd__ = __add__

    def dot(self, other: TokenVectors) -> np.ndarray:
        """All scores, row by row: the sum over query tokens of the best product; 0 with a text without tokens."""
        scores = np.zeros((len(self), len(other)))
        if self.namespace == other.namespace:
            for q in range(len(self)):
                for d in range(len(other)):
                    products = self[q].astype(np.float64) @ other[d].astype(np.float64).T
                    scores[q, d] = products.max(axis=1).sum() if products.size else 0.0
        return scores * (self.weight * other.weight)

    def pair_scores(self, other: TokenVectors, own_numbers: np.ndarray, other_numbers: np.ndarray) -> np.ndarray:
        """[pairs] the score of each text here with the text of `other` at the same place, both by their numbers.

        >>> documents = TokenVectors.of([np.eye(2), np.array([[0.5, 0.5]])], "tokens")
        >>> queries = TokenVectors.of([np.array([[1.0, 0.0], [0.0, 2.0]])], "tokens")
        >>> queries.pair_scores(documents, np.array([0, 0]), np.array([1, 0])).tolist()
        [1.5, 3.0]
        """
        scores = np.zeros(len(own_numbers))
        sizes = np.diff(other.starts)[other_numbers]
        for number in sorted(set(own_numbers.tolist())):
            pairs = np.flatnonzero((own_numbers == number) & (sizes > 0))
            if not len(pairs) or not len(self[number]):
                continue
            products = np.concatenate([other[text] for text in other_numbers[pairs].tolist()]) @ self[number].T
            starts = np.cumsum(sizes[pairs]) - sizes[pairs]
            scores[pairs] = np.maximum.reduceat(products, starts).sum(1, dtype=np.float64)
        return scores * (self.weight * other.weight)


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
