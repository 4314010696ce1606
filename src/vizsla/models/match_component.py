"""The contract of COIL: vectors of tokens that are compared where the tokens are equal, in an inverted index."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla.models.fields import Fields, field_text
from vizsla.models.model import Component
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.vectors import MatchTexts, TokenMatchVectors


class MatchDocuments(NamedTuple):
    """What an index stores of some documents."""

    vectors: np.ndarray
    """[tokens of all documents, dimensions]"""
    terms: np.ndarray
    """[tokens of all documents] which token each is."""
    starts: np.ndarray
    """[documents + 1] where the tokens of each document begin."""
    texts: np.ndarray
    """[documents, cls_dimensions] the vector of each document as a whole."""
    lengths: np.ndarray
    """In words; 0 for a document without tokens, which cannot be found."""


class TokenMatchComponent(Component):
    """A component whose token vectors meet only those of equal tokens. A subclass is a frozen dataclass.

    The score is the sum, over the tokens of the query, of the highest product with an equal token of the document; a
    query token that the document does not have adds nothing. With `cls_dimensions` the product of the vectors of both
    texts is added, and every document with tokens is found; without it, those that share a token with the query.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Words(TokenMatchComponent):
    ...     name: str = "words"
    ...     namespace: str = "words"
    ...     fields: tuple[str, ...] = ("text",)
    ...     dimensions: int = 1
    ...     def document_embeddings(self, documents):
    ...         return self.query_embeddings([document["text"] for document in documents])
    ...     def query_embeddings(self, texts):
    ...         terms = [np.array([len(word) for word in text.split()]) for text in texts]
    ...         vectors = [np.arange(1.0, len(some) + 1)[:, None] for some in terms]
    ...         return MatchTexts(terms, vectors, np.zeros((len(texts), 0)))
    >>> documents = [{"text": "dog dog"}, {"text": "a dog"}]
    >>> queries = Words().encode_queries(["dog"], Words().statistics(documents))
    >>> queries.dot(Words().encode_documents(documents)).tolist()
    [[2.0, 2.0]]
    """

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """How many numbers the vector of a token has."""

    @property
    def cls_dimensions(self) -> int:
        """How many numbers the vector of a whole text has; 0 for none."""
        return 0

    @abstractmethod
    def document_embeddings(self, documents: Sequence[Fields]) -> MatchTexts:
        """The tokens of documents and their vectors."""

    @abstractmethod
    def query_embeddings(self, texts: Sequence[str]) -> MatchTexts:
        """The tokens of queries and their vectors."""

    def token_name(self, term: int) -> str:
        """The name of a token, to explain scores."""
        return f"token {term}"

    def encode(self, documents: Sequence[Fields]) -> MatchDocuments:
        """What an index stores of these documents."""
        terms, vectors, texts = self.document_embeddings(documents)
        sizes = np.array([len(row) for row in terms], np.int64)
        words = np.array([max(len(field_text(d, self.fields).split()), 1) for d in documents], np.int64)
        return MatchDocuments(
            np.concatenate([np.zeros((0, self.dimensions), np.float32), *vectors]),
            np.concatenate([np.zeros(0, np.int64), *terms]),
            np.append(0, np.cumsum(sizes)),
            texts,
            words * (sizes > 0),
        )

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        sizes = [len(field_text(d, self.fields).split()) for d in documents]
        return CountedStatistics(sum(n > 0 for n in sizes), sum(sizes), max(sizes, default=0), {})

    def document_vectors(
        self,
        documents: Sequence[Fields],
        statistics: Statistics,  # noqa: ARG002
    ) -> TokenMatchVectors:
        return TokenMatchVectors(self.namespace, self.document_embeddings(documents))

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> TokenMatchVectors:  # noqa: ARG002
        return TokenMatchVectors(self.namespace, self.query_embeddings(texts))
