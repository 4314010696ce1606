"""The contract of models whose vectors are weighted terms: BM25 and its variants, and learned sparse models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from vizsla.engine import Weighting
from vizsla.errors import VizslaError
from vizsla.models.context import SearchContext
from vizsla.models.fields import Fields
from vizsla.models.model import Component
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.numbers import short
from vizsla.text import Token
from vizsla.vectors import SparseVectors, Vocabulary


class TypedTerm(NamedTuple):
    """A term that words of a query make: these words as they were typed, and whether it is a piece of them only."""

    words: tuple[str, ...] = ()
    is_piece: bool = False


def typed_terms(text: str, tokens: Sequence[Token]) -> dict[str, TypedTerm]:
    """The terms in a text, each with the words that it comes from; pieces such as `##sla` continue the piece before.

    >>> typed_terms("A Vizsla", [Token("viz", 2, 5), Token("##sla", 5, 8)])["##sla"]
    TypedTerm(words=('Vizsla',), is_piece=True)
    """
    words: list[list[Token]] = []
    for token in tokens:
        if words and token.term.startswith("##") and token.start == words[-1][-1].end:
            words[-1].append(token)
        else:
            words.append([token])
    found: dict[str, TypedTerm] = {}
    for pieces in words:
        word = text[pieces[0].start : pieces[-1].end]
        for piece in pieces:
            known = found.get(piece.term, TypedTerm())
            both = known.words if word in known.words else (*known.words, word)
            found[piece.term] = TypedTerm(both, known.is_piece or len(pieces) > 1)
    return found


class SparseDocuments(NamedTuple):
    """What an index stores of some documents: counts or weights of terms, and how long each document is."""

    vectors: SparseVectors
    lengths: np.ndarray


def count_statistics(encoded: SparseDocuments) -> CountedStatistics:
    """The statistics of encoded documents."""
    vectors, lengths = encoded
    terms = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
    frequencies = np.bincount(vectors.indices, minlength=len(terms)).tolist()
    present = {term: n for term, n in zip(terms, frequencies, strict=True) if n}
    return CountedStatistics(int(np.count_nonzero(lengths)), int(lengths.sum()), int(lengths.max(initial=0)), present)


def shortened(queries: Sequence[dict[str, float]], query_norm: float) -> list[dict[str, float]]:
    """Queries with their weights divided by the number of their terms to the power of `query_norm`.

    No ranking of one model changes. In a sum with a dense model, whose scores do not grow with a query, it keeps a long
    query from counting the terms alone.

    >>> shortened([{"dog": 1.0, "barks": 1.0, "at": 1.0, "night": 1.0}], 0.5)
    [{'dog': 0.5, 'barks': 0.5, 'at': 0.5, 'night': 0.5}]
    """
    return [{term: weight / len(query) ** query_norm for term, weight in query.items()} for query in queries]


def check_query_norm(value: object) -> None:
    """Refuse an exponent that is not a number from 0 to 2."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise VizslaError(f"query_norm must be a number from 0 to 2, not {short(repr(value))}")


class SparseDocumentEncoder(ABC):
    """Encodes documents batch by batch. It remembers the terms it has met, so use one for all batches."""

    @abstractmethod
    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        """What an index stores of these documents."""


class WordEncoder(SparseDocumentEncoder):
    """An encoder that counts words. Several threads may use it at a time."""

    fields: tuple[str, ...]
    """The fields that it reads, joined by line breaks."""

    @property
    @abstractmethod
    def terms(self) -> Sequence[str]:
        """The terms it has met, by their numbers; there are ever more."""

    @abstractmethod
    def encode_code_points(self, codes: np.ndarray, bounds: np.ndarray) -> SparseDocuments:
        """As `encode`, given the texts of the documents: text i is codes[bounds[i]:bounds[i + 1]]."""


class TermWeightEncoder(SparseDocumentEncoder):
    """An encoder from a function that gives the weighted terms of one document.

    >>> encoder = TermWeightEncoder("words", lambda document: {word: 1.0 for word in document["text"].split()})
    >>> encoder.encode([{"text": "dogs bark"}]).vectors.values.tolist()
    [1.0, 1.0]
    """

    def __init__(self, namespace: str, weights: Callable[[Fields], Mapping[str, float]]) -> None:
        self._namespace = namespace
        self._weights = weights
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        pointers, indices, weights = [0], [], []
        for document in documents:
            for term, weight in self._weights(document).items():
                indices.append(self._number(term))
                weights.append(weight)
            pointers.append(len(indices))
        whole = all(isinstance(weight, int) for weight in weights)
        values = np.array(weights, np.int64 if whole else np.float64)
        vocabulary = Vocabulary(self._namespace, self._terms)
        rows = SparseVectors(vocabulary, np.array(pointers), np.array(indices, np.int64), values)
        return SparseDocuments(rows, np.diff(rows.pointers))

    def _number(self, term: str) -> int:
        number = self._numbers.setdefault(term, len(self._terms))
        if number == len(self._terms):
            self._terms.append(term)
        return number


class SparseComponent(Component):
    """A component whose vectors are weighted terms.

    A subclass is a frozen dataclass that defines `document_encoder` and `query_terms`. It may also define how stored
    values and lengths become document weights (`weighting`, `length_codes`) and how much a term counts by its rarity
    (`term_factors`).

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Words(SparseComponent):
    ...     name: str = "words"
    ...     namespace: str = "words"
    ...     fields: tuple[str, ...] = ("text",)
    ...     def document_encoder(self):
    ...         return TermWeightEncoder(self.namespace, lambda document: dict.fromkeys(document["text"].split(), 1))
    ...     def query_terms(self, texts, context=None):
    ...         return [dict.fromkeys(text.split(), 1.0) for text in texts]
    >>> documents = [{"text": "dogs bark"}, {"text": "cats purr"}]
    >>> queries = Words().encode_queries(["do dogs bark"], Words().statistics(documents))
    >>> queries.dot(Words().encode_documents(documents)).tolist()
    [[2.0, 0.0]]
    """

    adds_terms: ClassVar[bool] = False
    """Whether queries may get terms that none of their words makes."""

    @abstractmethod
    def document_encoder(self) -> SparseDocumentEncoder:
        """An encoder of documents for an index."""

    @abstractmethod
    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:
        """The terms of each query and their weights, before rarity counts.

        `context`: the collection that is searched, for models that look at documents first; None in memory.
        """

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        """Documents' lengths as the index stores them."""
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (stored values are weights by default)
        """How a stored value becomes a document weight under these statistics."""
        return Weighting()

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002
        """What a query's weight of a term is multiplied by, from its document frequency: idf, or 1."""
        return np.ones(len(frequencies))

    def tokens(self, text: str) -> list[Token]:  # noqa: ARG002 (a model without text has nothing to highlight)
        """The terms in a text and their positions, for highlighting."""
        return []

    def typed_terms(self, text: str) -> dict[str, TypedTerm]:
        """The terms that the words of a query make, to tell them from others that `query_terms` adds."""
        return typed_terms(text, self.tokens(text))

    def query_weights(self, queries: Sequence[Mapping[str, float]], statistics: Statistics) -> list[dict[str, float]]:
        """The final weights of the terms of each query; terms that no document has are left out."""
        frequencies = statistics.document_frequencies([term for query in queries for term in query])
        known = frequencies > 0
        factors = np.full(len(frequencies), np.nan)
        factors[known] = self.term_factors(frequencies[known], statistics.documents)
        pairs = zip(known.tolist(), factors.tolist(), strict=True)
        return [
            {term: weight * f for (term, weight), (is_known, f) in zip(query.items(), pairs, strict=False) if is_known}
            for query in queries
        ]

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        return count_statistics(self.document_encoder().encode(documents))

    def weigh(self, encoded: SparseDocuments, statistics: Statistics) -> SparseVectors:
        """The vectors of encoded documents."""
        vectors, lengths = encoded
        codes = np.repeat(self.length_codes(lengths), np.diff(vectors.pointers))
        values = self.weighting(statistics).weigh(vectors.values, codes)
        return SparseVectors(vectors.vocabulary, vectors.pointers, vectors.indices, values)

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> SparseVectors:
        return self.weigh(self.document_encoder().encode(documents), statistics)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> SparseVectors:
        return SparseVectors.from_rows(self.query_weights(self.query_terms(texts), statistics), self.namespace)
