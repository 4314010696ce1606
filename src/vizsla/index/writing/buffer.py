"""The buffer of a writer: postings and vectors in memory, until there are enough of them for a segment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vizsla.engine import (
    Segment,
    SuffixArray,
    TokenRows,
    VectorPostings,
    build_segment,
    convert_rows,
    convert_token_rows,
    fits_a_segment,
    token_store,
)
from vizsla.errors import VizslaError
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.namespaces import (
    DenseBatch,
    MatchBatch,
    NamespaceBatch,
    NgramBatch,
    SparseBatch,
    TokenBatch,
)
from vizsla.index.writing.term_numbers import TermNumbers
from vizsla.models import (
    Component,
    Model,
    NgramComponent,
    SparseComponent,
    TokenComponent,
    TokenMatchComponent,
)


class Buffer:
    """The rows of documents that are not in a segment yet, by namespace."""

    def __init__(self, model: Model, numbers: TermNumbers, store: str = "float32") -> None:
        """`store`: the type that vectors are stored in."""
        self._store = store
        self._namespaces = [_namespace(space, component, numbers) for space, (_, component) in enumerate(model.parts)]
        self._first = 0
        self._count = 0

    def start(self, first: int) -> None:
        """Set the number of the next document."""
        self._first = first

    @property
    def bytes(self) -> int:
        """The memory of the rows in bytes."""
        return sum(n.bytes for n in self._namespaces)

    def check(self, batch: AnalysedBatch) -> None:
        """Refuse a batch that cannot be stored, before a part of it is stored."""
        postings = _postings(batch)
        if not fits_a_segment(postings, len(batch.stored)):
            raise VizslaError(f"{len(batch.stored):,} documents have {postings:,} terms; add fewer at once")
        for namespace, rows in zip(self._namespaces, batch.namespaces, strict=True):
            namespace.check(rows)

    def has_room_for(self, batch: AnalysedBatch) -> bool:
        """Whether a batch fits into the same segment as the rows in the buffer."""
        postings = sum(n.postings for n in self._namespaces) + _postings(batch)
        return fits_a_segment(postings, self._count + len(batch.stored))

    def append(self, batch: AnalysedBatch) -> np.ndarray:
        """Add a batch; returns the number of terms and vectors that each of its documents can be found by."""
        self._count += len(batch.stored)
        for namespace, rows in zip(self._namespaces, batch.namespaces, strict=True):
            namespace.append(batch, rows)
        total: np.ndarray = np.sum([rows.findable for rows in batch.namespaces], axis=0)
        return total

    def flush(self) -> Segment | None:
        """Empty the buffer and return its rows as a segment; None if it was empty."""
        if self._count == 0:
            return None
        numbers = np.arange(self._first, self._first + self._count)
        rows_of = [namespace.flush() for namespace in self._namespaces]
        dense, tokens, matches, ngrams = {}, {}, {}, {}
        for space, rows in enumerate(rows_of):
            if rows.dense is not None:
                dense[space] = convert_rows(rows.dense, self._store)
            if rows.tokens is not None:
                tokens[space] = convert_token_rows(rows.tokens, self._store)
            if rows.matches is not None:
                matches[space] = rows.matches.converted(token_store(self._store))
            if rows.ngrams is not None:
                ngrams[space] = rows.ngrams
        segment = build_segment(
            numbers,
            np.array([rows.length_codes for rows in rows_of]),
            np.array([rows.lengths for rows in rows_of]),
            np.append(0, np.cumsum(_joined([rows.counts for rows in rows_of]), dtype=np.int64)),
            _joined([rows.indices for rows in rows_of]),
            _joined([rows.values for rows in rows_of]),
            dense,
            tokens,
            matches,
            ngrams,
        )
        self._first += self._count
        self._count = 0
        return segment


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """The items of all arrays; those of a single one are not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _postings(batch: AnalysedBatch) -> int:
    return sum(len(rows.indices) for rows in batch.namespaces if isinstance(rows, SparseBatch))


class _SegmentRows(NamedTuple):
    """The rows of one namespace for a segment; one with vectors has no terms."""

    length_codes: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    dense: np.ndarray | None = None
    tokens: TokenRows | None = None
    matches: VectorPostings | None = None
    ngrams: SuffixArray | None = None

    @classmethod
    def without_terms(cls, lengths: np.ndarray, dense: np.ndarray | None = None, **vectors: Any) -> _SegmentRows:
        """The rows of a namespace that has vectors."""
        none, counts = np.zeros(0, np.uint32), np.zeros(len(lengths), np.uint32)
        return cls(np.zeros(len(lengths), np.uint8), lengths, counts, none, none, dense, **vectors)


class _SparseNamespace:
    """The postings of one namespace, and for each analyst the numbers of the terms it has sent."""

    def __init__(self, space: int, component: SparseComponent, numbers: TermNumbers) -> None:
        self._space = space
        self._component = component
        self._terms = numbers
        self._numbers: dict[int, np.ndarray] = {}
        self._empty = not numbers.has(space)
        self._pending: tuple[list[np.ndarray], ...] = ([], [], [], [])
        self.bytes = 0
        self.postings = 0

    def check(self, rows: NamespaceBatch) -> None:
        """Nothing to check: any posting can be stored."""

    def append(self, batch: AnalysedBatch, rows: NamespaceBatch) -> None:
        assert isinstance(rows, SparseBatch)
        analyst, fresh = batch.analyst, batch.fresh
        # All terms are new to an empty index, until a second analyst sends terms, or one that has forgotten its terms.
        all_new = self._empty and (not self._numbers or (not fresh and list(self._numbers) == [analyst]))
        self._empty = all_new
        numbers = np.zeros(0, np.uint32) if fresh else self._numbers[analyst]
        if rows.new_terms:
            new = self._terms.of(self._space, rows.new_terms, all_new=all_new).astype(np.uint32)
            numbers = np.concatenate([numbers, new])
        self._numbers[analyst] = numbers
        entry = (rows.counts, numbers[rows.indices], rows.values, rows.lengths)
        for column, array in zip(self._pending, entry, strict=True):
            column.append(array)
            self.bytes += array.nbytes
        self.postings += len(rows.indices)

    def flush(self) -> _SegmentRows:
        """Empty the namespace and return its rows."""
        self.bytes = self.postings = 0
        counts, indices, values, lengths = map(_taken, self._pending)
        return _SegmentRows(self._component.length_codes(lengths), lengths, counts, indices, values)


def _taken(arrays: list[np.ndarray]) -> np.ndarray:
    """The items of arrays, which are let go of, so that no more than one column is in memory twice."""
    joined = np.concatenate(arrays)
    arrays.clear()
    return joined


class _DenseNamespace:
    """The vectors of one namespace."""

    postings = 0

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._pending: list[DenseBatch] = []
        self.bytes = 0

    def check(self, rows: NamespaceBatch) -> None:
        assert isinstance(rows, DenseBatch)
        _check_finite(rows.vectors, self._model_name)

    def append(self, batch: AnalysedBatch, rows: NamespaceBatch) -> None:  # noqa: ARG002 (vectors have no terms)
        assert isinstance(rows, DenseBatch)
        self._pending.append(rows)
        self.bytes += rows.vectors.nbytes + rows.lengths.nbytes

    def flush(self) -> _SegmentRows:
        """Empty the namespace and return its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0
        lengths = np.concatenate([rows.lengths for rows in pending])
        vectors = np.concatenate([rows.vectors for rows in pending])
        return _SegmentRows.without_terms(lengths, dense=vectors)


class _TokenNamespace:
    """The token vectors of one namespace."""

    postings = 0

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._pending: list[TokenBatch] = []
        self.bytes = 0

    def check(self, rows: NamespaceBatch) -> None:
        assert isinstance(rows, TokenBatch)
        _check_finite(rows.vectors, self._model_name)

    def append(self, batch: AnalysedBatch, rows: NamespaceBatch) -> None:  # noqa: ARG002 (vectors have no terms)
        assert isinstance(rows, TokenBatch)
        self._pending.append(rows)
        self.bytes += rows.vectors.nbytes + rows.starts.nbytes + rows.lengths.nbytes

    def flush(self) -> _SegmentRows:
        """Empty the namespace and return its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0
        counts = np.concatenate([np.diff(rows.starts) for rows in pending])
        tokens = TokenRows(np.concatenate([rows.vectors for rows in pending]), np.append(0, np.cumsum(counts)))
        return _SegmentRows.without_terms(np.concatenate([rows.lengths for rows in pending]), tokens=tokens)


class _MatchNamespace:
    """The tokens and vectors of one namespace whose posting lists carry vectors."""

    postings = 0

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._pending: list[MatchBatch] = []
        self.bytes = 0

    def check(self, rows: NamespaceBatch) -> None:
        assert isinstance(rows, MatchBatch)
        _check_finite(rows.documents.vectors, self._model_name)
        _check_finite(rows.documents.texts, self._model_name)

    def append(self, batch: AnalysedBatch, rows: NamespaceBatch) -> None:  # noqa: ARG002 (tokens have their numbers)
        assert isinstance(rows, MatchBatch)
        self._pending.append(rows)
        self.bytes += 2 * sum(array.nbytes for array in rows.documents)  # once more when they are sorted

    def flush(self) -> _SegmentRows:
        """Empty the namespace and return its rows."""
        pending, self._pending, self.bytes = [rows.documents for rows in self._pending], [], 0
        starts = np.append(0, np.cumsum(np.concatenate([np.diff(rows.starts) for rows in pending])))
        vectors, terms, texts, lengths = (
            np.concatenate([getattr(rows, name) for rows in pending])
            for name in ("vectors", "terms", "texts", "lengths")
        )
        matches = VectorPostings.of(vectors, terms, starts)
        return _SegmentRows.without_terms(lengths, texts if texts.shape[1] else None, matches=matches)


class _NgramNamespace:
    """The token sequences of one namespace with a suffix array."""

    postings = 0

    def __init__(self) -> None:
        self._pending: list[NgramBatch] = []
        self.bytes = 0

    def check(self, rows: NamespaceBatch) -> None:
        """Nothing to check: the encoder has."""

    def append(self, batch: AnalysedBatch, rows: NamespaceBatch) -> None:  # noqa: ARG002 (tokens have their numbers)
        assert isinstance(rows, NgramBatch)
        self._pending.append(rows)
        self.bytes += rows.tokens.nbytes + rows.starts.nbytes + rows.lengths.nbytes

    def flush(self) -> _SegmentRows:
        """Empty the namespace and return its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0
        starts = np.append(0, np.cumsum(np.concatenate([np.diff(rows.starts) for rows in pending])))
        rows = SuffixArray(np.concatenate([rows.tokens for rows in pending]), starts)
        return _SegmentRows.without_terms(np.concatenate([rows.lengths for rows in pending]), ngrams=rows)


def _check_finite(vectors: np.ndarray, model_name: str) -> None:
    if not np.isfinite(vectors).all():
        raise VizslaError(f"{model_name} makes vectors with numbers that are NaN or infinite")


def _namespace(
    space: int, component: Component, numbers: TermNumbers
) -> _SparseNamespace | _DenseNamespace | _TokenNamespace | _MatchNamespace | _NgramNamespace:
    if isinstance(component, SparseComponent):
        return _SparseNamespace(space, component, numbers)
    if isinstance(component, NgramComponent):
        return _NgramNamespace()
    if isinstance(component, TokenMatchComponent):
        return _MatchNamespace(component.name)
    return _TokenNamespace(component.name) if isinstance(component, TokenComponent) else _DenseNamespace(component.name)
