"""The contract of models whose vectors are dense: a text becomes one vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla.models.fields import Fields, field_text
from vizsla.models.model import Component
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.vectors import DenseVectors


class DenseDocuments(NamedTuple):
    """What an index stores of some documents: a matrix with a row for each, and how long each document is."""

    vectors: np.ndarray
    lengths: np.ndarray
    """In words; 0 for a document without a known token, which cannot be found."""


class DenseComponent(Component):
    """A component whose vectors are dense. A subclass is a frozen dataclass with `dimensions` and two encoders.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Lengths(DenseComponent):
    ...     name: str = "lengths"
    ...     namespace: str = "lengths"
    ...     fields: tuple[str, ...] = ("text",)
    ...     dimensions: int = 1
    ...     def document_embeddings(self, documents):
    ...         return self.query_embeddings([document["text"] for document in documents])
    ...     def query_embeddings(self, texts):
    ...         return np.array([[len(text)] for text in texts], np.float32), np.array([bool(text) for text in texts])
    >>> documents = [{"text": "dog"}, {"text": "vizsla"}]
    >>> queries = Lengths().encode_queries(["cats"], Lengths().statistics(documents))
    >>> queries.dot(Lengths().encode_documents(documents)).tolist()
    [[12.0, 24.0]]
    """

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """How many numbers a vector has."""

    @abstractmethod
    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        """[documents, dimensions], and [documents] whether each has a known token; without one its vector is 0."""

    @abstractmethod
    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """[queries, dimensions], and [queries] whether each has a known token; without one its vector is 0."""

    @property
    def vector_parts(self) -> list[tuple[str, slice]]:
        """The models whose vectors are concatenated in this one's, by name; one if it is a single model."""
        return [(self.name, slice(0, self.dimensions))]

    def encode(self, documents: Sequence[Fields]) -> DenseDocuments:
        """What an index stores of these documents."""
        vectors, known = self.document_embeddings(documents)
        words = [max(len(field_text(d, self.fields).split()), 1) for d in documents]
        return DenseDocuments(vectors, np.array(words, np.int64) * known)

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        sizes = [len(field_text(d, self.fields).split()) for d in documents]
        return CountedStatistics(sum(n > 0 for n in sizes), sum(sizes), max(sizes, default=0), {})

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.document_embeddings(documents)[0], self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.query_embeddings(texts)[0], self.namespace)
