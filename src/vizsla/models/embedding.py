"""What all dense models have in common: a text becomes one vector, and there are no terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vizsla.engine import Weighting
from vizsla.models.model import Component, Fields, Reader, Stored, field_text, text_problem
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.text import Token
from vizsla.vectors import DenseVectors, SparseVectors, Vocabulary


class DenseComponent(Component):
    """A component whose vectors are dense."""

    @abstractmethod
    def encoded_documents(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        """[documents, dimensions] and [documents] whether one has a token; the vector of one without is 0."""

    @abstractmethod
    def encoded_queries(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The same of queries."""

    @property
    def stretches(self) -> list[tuple[str, slice]]:
        """What its vectors are made of, by name: where the numbers of each model stand in them."""
        return [(self.name, slice(0, self.dimensions))]

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return text_problem(content, self.fields)

    def reader(self) -> Reader:
        return _EmbeddingReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (there are no terms to weigh)
        return Weighting()

    def tokens(self, text: str) -> list[Token]:  # noqa: ARG002 (no word is what a document was found by)
        return []

    def query_terms(self, text: str) -> dict[str, float]:  # noqa: ARG002
        return {}

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002
        return np.ones(len(frequencies))

    def count(self, documents: Sequence[Fields]) -> Statistics:
        sizes = [len(field_text(d, self.fields).split()) for d in documents]
        return CountedStatistics(sum(n > 0 for n in sizes), sum(sizes), max(sizes, default=0), {})

    def dense_queries(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """The vectors of queries, None for one without a token."""
        vectors, there = self.encoded_queries(texts)
        return [row if known else None for row, known in zip(vectors.astype(np.float64), there.tolist(), strict=True)]

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.encoded_documents(documents)[0], self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.encoded_queries(texts)[0], self.namespace)


class _EmbeddingReader(Reader):
    def __init__(self, model: DenseComponent) -> None:
        self._model = model
        self._nothing = Vocabulary(model.namespace, [])

    def read(self, documents: Sequence[Fields]) -> Stored:
        vectors, there = self._model.encoded_documents(documents)
        none = np.zeros(len(documents) + 1, np.int64)
        empty = SparseVectors(self._nothing, none, none[:0], np.zeros(0, np.uint32))
        sizes = [max(len(field_text(d, self._model.fields).split()), 1) for d in documents]
        return Stored(empty, np.array(sizes, np.int64) * there, vectors)
