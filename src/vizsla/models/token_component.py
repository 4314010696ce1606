"""The contract of late interaction: a text becomes several vectors, one for each of its tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla.models.fields import Fields, field_text
from vizsla.models.model import Component
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.vectors import TokenVectors


class TokenDocuments(NamedTuple):
    """What an index stores of some documents: their token vectors, and how long each document is."""

    vectors: np.ndarray
    """[tokens of all documents, dimensions]"""
    starts: np.ndarray
    """[documents + 1] where the vectors of each document begin."""
    lengths: np.ndarray
    """In words; 0 for a document without token vectors, which cannot be found."""


class TokenComponent(Component):
    """A component with several vectors a text. A subclass is a frozen dataclass with `dimensions` and two encoders.

    The score of a document is the sum, over the vectors of the query, of the highest product with one of its own.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Words(TokenComponent):
    ...     name: str = "words"
    ...     namespace: str = "words"
    ...     fields: tuple[str, ...] = ("text",)
    ...     dimensions: int = 1
    ...     def document_embeddings(self, documents):
    ...         return self.query_embeddings([document["text"] for document in documents])
    ...     def query_embeddings(self, texts):
    ...         return [np.array([[len(word)] for word in text.split()], np.float32).reshape(-1, 1) for text in texts]
    >>> documents = [{"text": "a dog"}, {"text": "vizsla"}]
    >>> queries = Words().encode_queries(["two cats"], Words().statistics(documents))
    >>> queries.dot(Words().encode_documents(documents)).tolist()
    [[21.0, 42.0]]
    """

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """How many numbers a vector has."""

    @abstractmethod
    def document_embeddings(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        """[tokens, dimensions] for each document; no row for one without a known token."""

    @abstractmethod
    def query_embeddings(self, texts: Sequence[str]) -> list[np.ndarray]:
        """[tokens, dimensions] for each query; no row for one without a known token."""

    def document_tokens(self, document: Fields) -> list[str]:  # noqa: ARG002 (a model may have no names for its vectors)
        """The names of a document's vectors, to explain scores; an empty list if they have none."""
        return []

    def query_tokens(self, text: str) -> list[str]:  # noqa: ARG002
        """The names of a query's vectors, to explain scores; an empty list if they have none."""
        return []

    def encode(self, documents: Sequence[Fields]) -> TokenDocuments:
        """What an index stores of these documents."""
        rows = self.document_embeddings(documents)
        sizes = np.array([len(row) for row in rows], np.int64)
        words = np.array([max(len(field_text(d, self.fields).split()), 1) for d in documents], np.int64)
        vectors = np.concatenate([np.zeros((0, self.dimensions), np.float32), *rows])
        return TokenDocuments(vectors, np.append(0, np.cumsum(sizes)), words * (sizes > 0))

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        sizes = [len(field_text(d, self.fields).split()) for d in documents]
        return CountedStatistics(sum(n > 0 for n in sizes), sum(sizes), max(sizes, default=0), {})

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> TokenVectors:  # noqa: ARG002
        return TokenVectors.of(self.document_embeddings(documents), self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> TokenVectors:  # noqa: ARG002
        return TokenVectors.of(self.query_embeddings(texts), self.namespace)
