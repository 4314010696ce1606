"""How much the vocabularies of data sets overlap, and a map with similar data sets close together (BEIR, figure 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models import BM25, field_text
from vizsla.text import Analyzer

RARE = 1e-4  # terms with at most this share of a collection's tokens are left out, as in Pyserini's comparison
_BATCH = 2000


class TermShares:
    """The share of each term in all terms of a collection; documents are counted in batches.

    >>> shares = TermShares()
    >>> shares.add(["a dog and a dog", "a cat"])
    >>> shares.shares(0.0)
    {'dog': 0.6666666666666666, 'cat': 0.3333333333333333}
    """

    def __init__(self, analyzer: str = "lucene-english") -> None:
        self._lexicon = Analyzer.parse(analyzer).lexicon()
        self._counts = np.zeros(0, np.int64)
        self._waiting: list[str] = []

    def add(self, texts: Iterable[str]) -> None:
        """Count the terms of texts."""
        for text in texts:
            self._waiting.append(text)
            if len(self._waiting) >= _BATCH:
                self._count()

    def add_document(self, content: Mapping[str, str]) -> None:
        """Count the terms of a document's title and text."""
        self.add([field_text(content, BM25().fields)])

    def _count(self) -> None:
        numbers, _ = self._lexicon.encode(self._waiting)
        counts = np.bincount(numbers, minlength=len(self._lexicon.terms))
        counts[: len(self._counts)] += self._counts
        self._counts, self._waiting = counts, []

    def shares(self, least: float = RARE) -> dict[str, float]:
        """The terms with more than a share of `least`, and their shares."""
        self._count()
        total = max(int(self._counts.sum()), 1)
        common = np.flatnonzero(self._counts > least * total).tolist()
        return {self._lexicon.terms[i]: int(self._counts[i]) / total for i in common}


def weighted_jaccard(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """The sum of the smaller shares over the sum of the larger.

    >>> weighted_jaccard({"dog": 0.5, "cat": 0.5}, {"dog": 0.25, "fish": 0.75})
    0.14285714285714285
    """
    larger = sum(max(a.get(t, 0.0), b.get(t, 0.0)) for t in a.keys() | b.keys())
    smaller = sum(min(share, b[t]) for t, share in a.items() if t in b)
    return smaller / larger if larger else 0.0


def similarity_matrix(collections: Sequence[Mapping[str, float]]) -> np.ndarray:
    """The weighted Jaccard similarity of every two collections."""
    matrix = np.eye(len(collections))
    for i, a in enumerate(collections):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = weighted_jaccard(a, collections[j])
    return matrix


def domain_map(similarities: np.ndarray) -> np.ndarray:
    """Points in the plane, [n, 2], at distances close to 1 - similarity: classical scaling (Torgerson, 1952)."""
    n = len(similarities)
    if similarities.shape != (n, n):
        raise VizslaError("a map needs the similarity of every two collections")
    squared = (1 - similarities) ** 2
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    top = np.argsort(-values)[:2]
    places = vectors[:, top] * np.sqrt(np.maximum(values[top], 0))
    places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])  # of equivalent mirrored maps choose one
    return places * np.where(signs == 0, 1, signs)
