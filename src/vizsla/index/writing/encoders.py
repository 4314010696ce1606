"""Encodes documents for one namespace of an index, in the form in which they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vizsla.datasets import Document
from vizsla.datasets.raw_lines import PlainLines
from vizsla.engine import token_type
from vizsla.errors import VizslaError
from vizsla.models import (
    Component,
    DenseComponent,
    MatchDocuments,
    NgramComponent,
    SparseComponent,
    TokenComponent,
    TokenMatchComponent,
)
from vizsla.models.components import SparseDocumentEncoder, SparseDocuments, WordEncoder
from vizsla.text.scan import number_in_order
from vizsla.vectors import SparseVectors

_MAX_VALUE = (1 << 32) - 1  # of a weight, and of the number of a token, as it is stored


@dataclass(frozen=True, eq=False)
class SparseBatch:
    """The rows of a batch in a sparse namespace; terms have the numbers of the analyst."""

    counts: np.ndarray
    """The number of terms of each document."""
    indices: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    new_terms: list[str]
    """The terms that the analyst sends for the first time."""

    @property
    def findable(self) -> np.ndarray:
        """The number of terms that each document can be found by."""
        return self.counts


@dataclass(frozen=True, eq=False)
class DenseBatch:
    """The vectors of a batch in a dense namespace, [documents, dimensions]."""

    vectors: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """1 for each document that has a vector."""
        return (self.lengths > 0).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """The token vectors of a batch, [tokens, dimensions], and where those of each document begin."""

    vectors: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """The number of vectors of each document."""
        return np.diff(self.starts).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class MatchBatch:
    """The tokens of a batch for token matching, with their vectors, and perhaps a vector for each document."""

    documents: MatchDocuments
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """The number of tokens of each document."""
        return np.diff(self.documents.starts).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class NgramBatch:
    """The token sequences of a batch, as a `SuffixArray` has them, and where those of each document begin."""

    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @property
    def findable(self) -> np.ndarray:
        """The number of tokens of each document."""
        return self.lengths


NamespaceBatch = SparseBatch | DenseBatch | TokenBatch | MatchBatch | NgramBatch


class NamespaceEncoder(ABC):
    """Encodes documents for one namespace of an index."""

    terms = 0
    """The number of terms it remembers."""

    is_shared = False
    """Whether several threads may encode at a time, also lines that a kernel has read."""

    @abstractmethod
    def encode(self, documents: Sequence[Document]) -> NamespaceBatch:
        """The rows of documents; a model that gives something that cannot be stored is refused."""

    def encode_lines(self, lines: PlainLines) -> NamespaceBatch:
        """The rows of documents in raw lines; only for encoders that threads may share."""
        raise NotImplementedError

    def finish(self, batch: NamespaceBatch) -> NamespaceBatch:
        """The sequential part of encoding: called for one batch at a time, in the order of the documents."""
        return batch

    @staticmethod
    def of(component: Component) -> NamespaceEncoder:
        """The encoder for a sparse, dense or token component; other kinds of component are refused."""
        if isinstance(component, SparseComponent):
            encoder = component.document_encoder()
            return _WordEncoder(encoder) if isinstance(encoder, WordEncoder) else _SparseEncoder(component, encoder)
        if isinstance(component, DenseComponent):
            return _DenseEncoder(component)
        if isinstance(component, TokenComponent):
            return _TokenEncoder(component)
        if isinstance(component, TokenMatchComponent):
            return _MatchEncoder(component)
        if isinstance(component, NgramComponent):
            return _NgramEncoder(component)
        raise VizslaError(f"{component.name} is no sparse, dense or token component, so it cannot be indexed")


class _SparseEncoder(NamespaceEncoder):
    def __init__(self, component: SparseComponent, encoder: SparseDocumentEncoder) -> None:
        self._name = component.name
        self._encoder = encoder

    def encode(self, documents: Sequence[Document]) -> SparseBatch:
        vectors, lengths = self._encoder.encode([d.content for d in documents])
        self._check(vectors, documents)
        ((_, terms),) = vectors.vocabulary.parts
        new_terms = list(terms[self.terms : len(vectors.vocabulary)])
        self.terms += len(new_terms)
        dtype = np.float32 if vectors.values.dtype.kind == "f" else np.uint32
        return SparseBatch(
            np.diff(vectors.pointers).astype(np.uint32),
            vectors.indices.astype(np.uint32, copy=False),
            vectors.values.astype(dtype, copy=False),
            lengths.astype(np.uint32, copy=False),
            new_terms,
        )

    def _check(self, vectors: SparseVectors, documents: Sequence[Document]) -> None:
        values = vectors.values
        if not len(values) or (values.min() > 0 and values.max() <= _MAX_VALUE):
            return
        place = int(np.argmin((values > 0) & (values <= _MAX_VALUE)))
        row = int(np.searchsorted(vectors.pointers, place, side="right")) - 1
        raise VizslaError(
            f"{self._name} gives a term of the document {documents[row].id!r} the weight {values[place]}; weights must "
            "be finite numbers above 0"
        )


class _WordEncoder(NamespaceEncoder):
    """Counts words. Threads see terms in any order; `finish` renumbers them in the order of the documents."""

    is_shared = True

    def __init__(self, encoder: WordEncoder) -> None:
        self._encoder = encoder
        self._numbers = np.full(1 << 16, -1, np.int32)  # by the numbers of the encoder
        self._count = 0

    @property
    def terms(self) -> int:  # type: ignore[override]
        return len(self._encoder.terms)

    def encode(self, documents: Sequence[Document]) -> SparseBatch:
        return _counted(self._encoder.encode([d.content for d in documents]))

    def encode_lines(self, lines: PlainLines) -> SparseBatch:
        return _counted(self._encoder.encode_code_points(*lines.code_points(self._encoder.fields)))

    def finish(self, batch: NamespaceBatch) -> SparseBatch:
        assert isinstance(batch, SparseBatch)
        terms = self._encoder.terms
        while len(self._numbers) < len(terms):
            self._numbers = np.concatenate([self._numbers, np.full(len(self._numbers), -1, np.int32)])
        new = np.empty(min(len(terms) - self._count, len(batch.indices)), np.int64)
        count = number_in_order(batch.indices, self._numbers, self._count, new)
        self._count += count
        return replace(batch, new_terms=[terms[number] for number in new[:count].tolist()])


def _counted(documents: SparseDocuments) -> SparseBatch:
    """Documents whose terms have the numbers of their encoder."""
    vectors, lengths = documents
    return SparseBatch(
        np.diff(vectors.pointers).astype(np.uint32),
        vectors.indices.astype(np.uint32, copy=False),
        vectors.values.astype(np.uint32, copy=False),
        lengths.astype(np.uint32, copy=False),
        [],
    )


class _DenseEncoder(NamespaceEncoder):
    def __init__(self, component: DenseComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> DenseBatch:
        vectors, lengths = self._component.encode([d.content for d in documents])
        if vectors.shape != (len(documents), self._component.dimensions):
            raise VizslaError(
                f"{self._component.name} gives vectors of the shape {vectors.shape} for {len(documents):,} documents; "
                f"expected {len(documents), self._component.dimensions}"
            )
        return DenseBatch(vectors, lengths.astype(np.uint32, copy=False))


class _TokenEncoder(NamespaceEncoder):
    def __init__(self, component: TokenComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> TokenBatch:
        vectors, starts, lengths = self._component.encode([d.content for d in documents])
        if len(starts) != len(documents) + 1 or vectors.shape != (starts[-1], self._component.dimensions):
            raise VizslaError(
                f"{self._component.name} gives vectors of the shape {vectors.shape} for {len(starts) - 1:,} of "
                f"{len(documents):,} documents; expected {starts[-1], self._component.dimensions}"
            )
        return TokenBatch(vectors, starts, lengths.astype(np.uint32, copy=False))


class _MatchEncoder(NamespaceEncoder):
    def __init__(self, component: TokenMatchComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> MatchBatch:
        encoded, component = self._component.encode([d.content for d in documents]), self._component
        tokens = int(encoded.starts[-1])
        shapes = encoded.vectors.shape, encoded.terms.shape, encoded.texts.shape
        expected = (tokens, component.dimensions), (tokens,), (len(documents), component.cls_dimensions)
        if len(encoded.starts) != len(documents) + 1 or shapes != expected:
            raise VizslaError(
                f"{component.name} gives tokens, their vectors and those of documents in the shapes {shapes} for "
                f"{len(documents):,} documents; expected {expected}"
            )
        if tokens and not 0 <= int(encoded.terms.min()) <= int(encoded.terms.max()) <= _MAX_VALUE:
            raise VizslaError(f"{component.name} gives a token a number that is not from 0 to {_MAX_VALUE:,}")
        return MatchBatch(encoded, encoded.lengths.astype(np.uint32, copy=False))


class _NgramEncoder(NamespaceEncoder):
    def __init__(self, component: NgramComponent) -> None:
        self._component = component

    def encode(self, documents: Sequence[Document]) -> NgramBatch:
        encoded, size = self._component.encode([d.content for d in documents]), self._component.token_numbers
        if len(encoded.starts) != len(documents) + 1 or len(encoded.tokens) != int(encoded.starts[-1]):
            raise VizslaError(
                f"{self._component.name} gives {len(encoded.starts) - 1:,} sequences with {len(encoded.tokens):,} "
                f"tokens for {len(documents):,} documents; expected {int(encoded.starts[-1]):,} tokens"
            )
        if len(encoded.tokens) and not 0 <= int(encoded.tokens.min()) <= int(encoded.tokens.max()) < size:
            raise VizslaError(f"{self._component.name} gives a token a number that is not from 0 to {size - 1:,}")
        kind = token_type(size)
        return NgramBatch(encoded.tokens.astype(kind), encoded.starts, encoded.lengths.astype(np.uint32, copy=False))
