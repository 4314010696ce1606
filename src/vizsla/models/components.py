"""The contracts of a sum's parts: sparse, dense, late interaction, vectors of equal tokens (COIL), n-grams (SEAL)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from vizsla.engine import CollectionNgrams, NgramQuery, Weighting
from vizsla.errors import VizslaError
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import Component
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.numbers import short
from vizsla.text import Token
from vizsla.vectors import DenseVectors, MatchTexts, SparseVectors, TokenMatchVectors, TokenVectors, Vocabulary

T = TypeVar("T")


class SearchContext(Protocol):
    """The documents that are searched and pass the query's filter, for pseudo-relevance feedback."""

    def top_documents(
        self, component: Component, queries: Sequence[Mapping[str, float]], k: int
    ) -> list[dict[int, float]]:
        """For queries given as weighted terms: the numbers of the best k documents and their scores."""

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of documents by their numbers."""

    def statistics_of(self, component: Component) -> Statistics:
        """The statistics of a component's terms."""

    def ngrams_of(self, component: Component) -> CollectionNgrams:
        """The n-grams of the whole collection for a component; a filter does not change them."""


class TypedTerm(NamedTuple):
    """A term of a query: the words it comes from, as they were typed, and whether it is only a piece of them."""

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


_COUNTED = 10_000  # documents that are encoded at once to count them


def batches_of(documents: Iterable[T], size: int = _COUNTED) -> Iterator[list[T]]:
    """Documents in lists of some at a time.

    >>> list(batches_of("abc", 2))
    [['a', 'b'], ['c']]
    """
    stream = iter(documents)
    while batch := list(islice(stream, size)):
        yield batch


def count_statistics(encoded: SparseDocuments) -> CountedStatistics:
    """The statistics of encoded documents."""
    return count_batches([encoded])


def count_batches(encoded: Iterable[SparseDocuments]) -> CountedStatistics:
    """The statistics of batches of documents that one encoder has encoded."""
    frequencies, vocabulary = np.zeros(0, np.int64), None
    documents = total = longest = 0
    for vectors, lengths in encoded:
        vocabulary = vectors.vocabulary
        counts = np.bincount(vectors.indices, minlength=len(vocabulary))
        counts[: len(frequencies)] += frequencies
        frequencies = counts
        documents += int(np.count_nonzero(lengths))
        total, longest = total + int(lengths.sum()), max(longest, int(lengths.max(initial=0)))
    present = (
        {vocabulary[i][1]: int(frequencies[i]) for i in np.flatnonzero(frequencies).tolist()} if vocabulary else {}
    )
    return CountedStatistics(documents, total, longest, present)


def shortened(queries: Sequence[dict[str, float]], query_norm: float) -> list[dict[str, float]]:
    """Queries with their weights divided by the number of their terms to the power of `query_norm`.

    This changes no ranking of a single model. In a sum with a dense model, whose scores do not grow with the length of
    a query, it keeps the terms of a long query from dominating.

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
        """The terms it has met so far, by number; the list grows."""

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
    values and lengths become document weights (`weighting`, `length_codes`) and the idf of terms (`term_factors`).

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
    """Whether queries may get terms that do not come from their words."""

    @abstractmethod
    def document_encoder(self) -> SparseDocumentEncoder:
        """An encoder of documents for an index."""

    @abstractmethod
    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> Sequence[dict[str, float]]:
        """The terms of each query and their weights, before idf.

        `context`: the collection that is searched, for models that look at documents first; None in memory.
        """

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        """Documents' lengths as the index stores them."""
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (stored values are weights by default)
        """How a stored value becomes a document weight under these statistics."""
        return Weighting()

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002
        """The factor of a term's query weight, from its document frequency: idf, or 1."""
        return np.ones(len(frequencies))

    def tokens(self, text: str) -> list[Token]:  # noqa: ARG002 (a model without text has nothing to highlight)
        """The terms in a text and their positions, for highlighting."""
        return []

    def typed_terms(self, text: str) -> dict[str, TypedTerm]:
        """The terms that come from the words of a query, as opposed to those that `query_terms` adds."""
        return typed_terms(text, self.tokens(text))

    def reasons(self, text: str) -> dict[str, str]:  # noqa: ARG002 (networks give none)
        """Why terms were added to a query, as in `synonym of car`, for those of which it can be said."""
        return {}

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
        return count_batches(map(self.document_encoder().encode, batches_of(documents)))

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


def _count_words(documents: Sequence[Fields], fields: tuple[str, ...]) -> CountedStatistics:
    """The statistics of documents that have vectors: how long they are in words."""
    sizes = (len(field_text(document, fields).split()) for document in documents)
    lengths = np.fromiter(sizes, np.int32)
    return CountedStatistics(
        int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64)), int(lengths.max(initial=0)), {}
    )


class DenseDocuments(NamedTuple):
    """What an index stores of some documents: a matrix with a row for each, and how long each document is."""

    vectors: np.ndarray
    lengths: np.ndarray
    """[documents] lengths in words; 0 for a document without a known token, which cannot be found."""


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
        return _count_words(documents, self.fields)

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.document_embeddings(documents)[0], self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> DenseVectors:  # noqa: ARG002
        return DenseVectors.of(self.query_embeddings(texts)[0], self.namespace)


class TokenDocuments(NamedTuple):
    """What an index stores of some documents: their token vectors, and how long each document is."""

    vectors: np.ndarray
    """[tokens of all documents, dimensions]"""
    starts: np.ndarray
    """[documents + 1] where the vectors of each document begin."""
    lengths: np.ndarray
    """[documents] lengths in words; 0 for a document without token vectors, which cannot be found."""


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
        return _count_words(documents, self.fields)

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> TokenVectors:  # noqa: ARG002
        return TokenVectors.of(self.document_embeddings(documents), self.namespace)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> TokenVectors:  # noqa: ARG002
        return TokenVectors.of(self.query_embeddings(texts), self.namespace)


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
    """[documents] lengths in words; 0 for a document without tokens, which cannot be found."""


class TokenMatchComponent(Component):
    """A component whose token vectors are compared only with those of equal tokens. A subclass is a frozen dataclass.

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
        return _count_words(documents, self.fields)

    def document_vectors(
        self,
        documents: Sequence[Fields],
        statistics: Statistics,  # noqa: ARG002
    ) -> TokenMatchVectors:
        return TokenMatchVectors(self.namespace, self.document_embeddings(documents))

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> TokenMatchVectors:  # noqa: ARG002
        return TokenMatchVectors(self.namespace, self.query_embeddings(texts))


class NgramDocuments(NamedTuple):
    """What an index stores of some documents: token sequences for a suffix array, see `engine.SuffixArray`."""

    tokens: np.ndarray
    starts: np.ndarray
    """[documents + 1] where the sequence of each document begins."""
    lengths: np.ndarray
    """[documents] lengths in tokens; 0 for a document without tokens, which cannot be found."""


class NgramComponent(Component):
    """A component that scores documents by weighted n-grams, which it chooses while it sees those of the collection.

    A subclass is a frozen dataclass. Numbers of tokens begin at 2: 0 is the end of a field, and 1 precedes a title. A
    component can be searched in an index only, where the collection's n-grams are.
    """

    @property
    @abstractmethod
    def token_numbers(self) -> int:
        """How many numbers tokens may have, counting 0 and 1."""

    @abstractmethod
    def document_rows(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        """The token sequence of each document; each of its fields ends with 0."""

    @abstractmethod
    def query_ngrams(self, texts: Sequence[str], ngrams: CollectionNgrams) -> list[NgramQuery]:
        """The n-grams of queries and their weights; no n-gram for a query that has none."""

    @abstractmethod
    def ngram_text(self, ngram: Sequence[int]) -> str:
        """An n-gram as text, to explain scores."""

    def encode(self, documents: Sequence[Fields]) -> NgramDocuments:
        """What an index stores of these documents."""
        rows = self.document_rows(documents)
        starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        lengths = np.array([np.count_nonzero(np.asarray(row) > 1) for row in rows], np.int64)
        return NgramDocuments(np.concatenate([np.zeros(0, np.int64), *rows]), starts, lengths)

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        return _count_words(documents, self.fields)

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> NoReturn:  # noqa: ARG002
        raise VizslaError(f"{self.name} searches by n-grams of a collection, so it needs an index and has no vectors")

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> NoReturn:
        self.document_vectors([{"text": text} for text in texts], statistics)
