"""The buffer of a writer: postings and vectors in memory, until there are enough of them to write a segment."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vizsla.engine import (
    PostingRows,
    Segment,
    SuffixArray,
    TokenRows,
    VectorPostings,
    build_segment_of,
    common_type,
    convert_rows,
    convert_token_rows,
    finish_all,
    fits_a_segment,
    in_own_pages,
    smallest_type,
    submit,
    token_store,
)
from vizsla.errors import VizslaError
from vizsla.index.storage import segment_files
from vizsla.index.storage.arrays import Facts
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.encoders import (
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
from vizsla.stopping import carried


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

    def take(self) -> BufferedRows | None:
        """Empty the buffer and return what was in it; None if it was empty."""
        if self._count == 0:
            return None
        numbers = np.arange(self._first, self._first + self._count)
        rows = BufferedRows(numbers, [namespace.take() for namespace in self._namespaces], self._store)
        self._first += self._count
        self._count = 0
        return rows


class BufferedRows:
    """The rows of a segment; any thread may make it, once."""

    def __init__(self, numbers: np.ndarray, take_rows: list[Callable[[], _SegmentRows]], store: str) -> None:
        self.numbers = numbers
        """The insertion numbers of the documents."""
        self._take_rows = take_rows
        self._store = store

    def segment(self) -> Segment:
        """The segment of these rows, which are let go of."""
        take_rows, self._take_rows = self._take_rows, []
        rows_of = [take() for take in take_rows]
        take_rows.clear()
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
        length_codes = np.array([rows.length_codes for rows in rows_of])
        lengths = np.array([rows.lengths for rows in rows_of])
        postings = [part for rows in rows_of for part in rows.postings]
        rows_of.clear()
        return build_segment_of(self.numbers, length_codes, lengths, postings, dense, tokens, matches, ngrams)


Written = tuple[str, dict[str, Facts], np.ndarray]
"""The name of a segment, the descriptions of its files, and the lengths of its documents in each namespace."""


def write_rows(path: Path, ids: segment_files.DatedIds, rows: BufferedRows) -> Written:
    """Sort, pack and write the rows of a segment."""
    name, segment = secrets.token_hex(6), rows.segment()
    return name, segment_files.write_segment(path, name, segment, ids), segment.sizes


class BackgroundSegment:
    """A segment whose rows a thread of its own writes, while the writer goes on with the next documents.

    What the segment holds was decided before; the thread changes neither the database nor the buffer.
    """

    def __init__(self, path: Path, ids: segment_files.DatedIds, rows: BufferedRows) -> None:
        executor = ThreadPoolExecutor(1)
        self._written: Future[Written] = submit(executor, carried(write_rows), path, ids, rows)
        executor.shutdown(wait=False)

    @property
    def has_failed(self) -> bool:
        """Whether the thread has ended with an error, which `result` raises."""
        return self._written.done() and self._written.exception() is not None

    def result(self) -> Written:
        """Wait until the segment is on disk."""
        return self._written.result()

    def give_up(self) -> None:
        """Wait until the thread has ended, whatever interrupts this; its files are removed by the next transaction."""
        finish_all([self._written])


def _postings(batch: AnalysedBatch) -> int:
    return sum(len(rows.indices) for rows in batch.namespaces if isinstance(rows, SparseBatch))


class _SegmentRows(NamedTuple):
    """The rows of one namespace for a segment; one with vectors has no terms."""

    length_codes: np.ndarray
    lengths: np.ndarray
    postings: list[PostingRows]
    dense: np.ndarray | None = None
    tokens: TokenRows | None = None
    matches: VectorPostings | None = None
    ngrams: SuffixArray | None = None

    @classmethod
    def without_terms(cls, lengths: np.ndarray, dense: np.ndarray | None = None, **vectors: Any) -> _SegmentRows:
        """The rows of a namespace that has vectors."""
        return cls(np.zeros(len(lengths), np.uint8), lengths, [], dense, **vectors)


_PIECE = 1 << 20  # postings


class _Piece:
    """Memory for some postings."""

    def __init__(self, first: int, capacity: int, dtype: np.dtype) -> None:
        """`first`: the row of the first document."""
        self._first = first
        self._counts: list[np.ndarray] = []
        self._indices, self._values = in_own_pages(capacity, np.uint32), in_own_pages(capacity, dtype)
        self._size = 0

    @property
    def capacity(self) -> int:
        """How many postings it can hold."""
        return len(self._indices)

    def has_room(self, count: int) -> bool:
        """Whether so many postings more fit."""
        return self._size + count <= len(self._indices)

    def append(self, counts: np.ndarray, indices: np.ndarray, values: np.ndarray) -> None:
        """Add the rows of some documents, which fit."""
        end = self._size + len(indices)
        if values.dtype != self._values.dtype:
            wider = in_own_pages(len(self._values), common_type([self._values.dtype, values.dtype]))
            wider[: self._size] = self._values[: self._size]
            self._values = wider
        self._indices[self._size : end] = indices
        self._values[self._size : end] = values
        self._counts.append(counts)
        self._size = end

    def rows(self) -> PostingRows:
        """All that was added."""
        pointers = np.append(0, np.cumsum(np.concatenate(self._counts), dtype=np.int64))
        return PostingRows(self._first, pointers, self._indices[: self._size], self._values[: self._size])


class _SparseNamespace:
    """The postings of one namespace, and for each analyst the numbers of the terms it has sent."""

    def __init__(self, space: int, component: SparseComponent, numbers: TermNumbers) -> None:
        self._space = space
        self._component = component
        self._terms = numbers
        self._numbers: dict[int, np.ndarray] = {}
        self._empty = not numbers.has(space)
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[_Piece] = []
        self._lengths: list[np.ndarray] = []
        self._documents = self.bytes = self.postings = 0

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
        values = smallest_type(rows.values)
        if not self._pieces or not self._pieces[-1].has_room(len(values)):
            most = min(2 * self._pieces[-1].capacity, _PIECE) if self._pieces else _PIECE >> 6
            self._pieces.append(_Piece(self._documents, max(most, len(values)), values.dtype))
        self._pieces[-1].append(rows.counts, numbers[rows.indices], values)
        self._lengths.append(rows.lengths)
        self._documents += len(rows.lengths)
        self.postings += len(values)
        self.bytes += len(values) * (4 + values.itemsize) + rows.counts.nbytes + rows.lengths.nbytes

    def take(self) -> Callable[[], _SegmentRows]:
        """Empty the namespace and return a function that gives its rows."""
        pieces, lengths, codes_of = self._pieces, self._lengths, self._component.length_codes
        self._begin()

        def gather() -> _SegmentRows:
            joined, postings = np.concatenate(lengths), [*map(_Piece.rows, pieces)]
            pieces.clear()
            return _SegmentRows(codes_of(joined), joined, postings)

        return gather


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

    def take(self) -> Callable[[], _SegmentRows]:
        """Empty the namespace and return a function that gives its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0

        def gather() -> _SegmentRows:
            lengths = np.concatenate([rows.lengths for rows in pending])
            vectors = np.concatenate([rows.vectors for rows in pending])
            return _SegmentRows.without_terms(lengths, dense=vectors)

        return gather


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

    def take(self) -> Callable[[], _SegmentRows]:
        """Empty the namespace and return a function that gives its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0

        def gather() -> _SegmentRows:
            counts = np.concatenate([np.diff(rows.starts) for rows in pending])
            tokens = TokenRows(np.concatenate([rows.vectors for rows in pending]), np.append(0, np.cumsum(counts)))
            return _SegmentRows.without_terms(np.concatenate([rows.lengths for rows in pending]), tokens=tokens)

        return gather


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

    def take(self) -> Callable[[], _SegmentRows]:
        """Empty the namespace and return a function that gives its rows."""
        pending, self._pending, self.bytes = [rows.documents for rows in self._pending], [], 0

        def gather() -> _SegmentRows:
            starts = np.append(0, np.cumsum(np.concatenate([np.diff(rows.starts) for rows in pending])))
            vectors, terms, texts, lengths = (
                np.concatenate([getattr(rows, name) for rows in pending])
                for name in ("vectors", "terms", "texts", "lengths")
            )
            matches = VectorPostings.of(vectors, terms, starts)
            return _SegmentRows.without_terms(lengths, texts if texts.shape[1] else None, matches=matches)

        return gather


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

    def take(self) -> Callable[[], _SegmentRows]:
        """Empty the namespace and return a function that gives its rows."""
        pending, self._pending, self.bytes = self._pending, [], 0

        def gather() -> _SegmentRows:
            starts = np.append(0, np.cumsum(np.concatenate([np.diff(rows.starts) for rows in pending])))
            ngrams = SuffixArray(np.concatenate([rows.tokens for rows in pending]), starts)
            return _SegmentRows.without_terms(np.concatenate([rows.lengths for rows in pending]), ngrams=ngrams)

        return gather


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
