"""The top k of queries in one segment, in a single kernel call.

The kernel gets its arrays in tables, see `packed_arrays.py`: one for a segment and the weightings of a model, one for
the scratch memory of a thread. A kernel that reads a table must not count references, which would free the arrays. So
it must be compiled by `njit` of `vizsla.kernels`, and only such kernels may call it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import RANGE_BITS, RANGE_SIZE, Blocks
from vizsla.engine.bounds import BYTES, Bounds, bound_terms
from vizsla.engine.packed_arrays import (
    pack_arrays,
    read_bool,
    read_float64,
    read_uint8,
    read_uint16,
    read_uint32_rows,
    write_bool,
    write_float32,
    write_float64,
    write_float64_rows,
    write_int32,
    write_int64,
    write_int64_rows,
    write_uint16,
    write_uint16_rows,
    write_uint32,
)
from vizsla.engine.posting_lists import Directory
from vizsla.engine.range_bounds import Candidates
from vizsla.engine.ranges import search_ranges
from vizsla.engine.scores import ScoringScratch, Terms, score_documents
from vizsla.engine.segment import LENGTH_TYPES, Segment, SegmentArrays, open_in_both, read_only_mask
from vizsla.engine.stop_flag import must_stop
from vizsla.engine.topk import SortScratch, TopK
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit

Masks = Sequence[np.ndarray | None]
"""For each segment a mask of the documents that may be found; None for all."""


class PreparedSegment(NamedTuple):
    """A segment with a mask and the weightings of a model, as `search_segment` takes it.

    Arrays whose types differ between segments are passed as arguments of their own; all others are in the table.
    """

    table: np.ndarray
    lengths: np.ndarray
    facts: np.ndarray
    """How many documents it has, and the place of the first among those of all segments."""


class PreparedSegments:
    """Segments with masks and the weightings of a model. Keep it while searching: it owns the tables' arrays."""

    def __init__(
        self, segments: Sequence[Segment], masks: Masks, firsts: Sequence[int], weightings: Weightings
    ) -> None:
        """`firsts`: the place of each segment's first document among those of all."""
        self._kept: list[object] = [weightings, masks]  # keeps them alive, so that their id() is not reused
        self._width = weightings.small.shape[1] + BYTES
        self._range_count = max((s.range_count for s in segments), default=0)
        self.segments = [
            self._prepare(segment, mask, first, weightings)
            for segment, mask, first in zip(segments, masks, firsts, strict=False)
        ]

    def _prepare(self, s: Segment, mask: np.ndarray | None, first: int, w: Weightings) -> PreparedSegment:
        others = np.ascontiguousarray(read_only_mask(mask)), *w
        self._kept += [s, mask, others]
        table = np.concatenate([s.lists_table, pack_arrays(*others)])
        return PreparedSegment(table, s.lengths, np.array([len(s), first], np.int64))

    def scratch(self, k: int, terms: int) -> AbstractContextManager[Scratch]:
        """Memory of this thread to search these segments in, for k documents and queries of so many terms."""
        return scratch_of_thread(k, terms, self._range_count, self._width)


class Scratch:
    """Memory to work in, for one thread."""

    def __init__(self, k: int, terms: int, range_count: int, width: int) -> None:
        """For queries with so many `terms`; `width`: of a row of bounds; `range_count`: of the largest segment."""
        size, blocks = 2 * (RANGE_SIZE + k), terms * (range_count + 1) + 1
        self._limits, self._width = (k, terms, blocks), width
        self._sorting = SortScratch.of_size(size, k)
        *sorting, topk = self._sorting
        *bounds, probes = Bounds.of_size(terms, width)
        self._arrays = (
            *bounds, *Candidates.of_size(size, terms), *ScoringScratch.of_size(size),
            *sorting, *topk, np.empty((terms, 4), np.int64), np.empty(terms), np.empty(terms, np.int64),
            np.empty(blocks, np.uint16), np.empty(blocks, np.uint32),
            np.empty(blocks, np.uint16), np.empty(blocks, np.uint32), probes,
        )  # fmt: skip
        self.table = pack_arrays(*self._arrays)

    def is_enough(self, k: int, terms: int, range_count: int, width: int | None) -> bool:
        needed = k, terms, terms * (range_count + 1) + 1
        return width in (None, self._width) and all(a >= b for a, b in zip(self._limits, needed, strict=True))


_local = threading.local()


@contextmanager
def scratch_of_thread(k: int, terms: int, range_count: int, width: int | None = None) -> Iterator[Scratch]:
    """Memory of this thread to search in, with rows of bounds of a width if they are needed.

    After an error, which may have left it dirty, it is not used again.
    """
    scratch: Scratch | None = getattr(_local, "scratch", None)
    _local.scratch = None
    if scratch is None or not scratch.is_enough(k, terms, range_count, width):
        scratch = Scratch(max(k, 1000), max(terms, 32), range_count, width or 1)
    yield scratch
    _local.scratch = scratch


@njit
def _directories_of(table):
    """Where the small and the large lists of a prepared segment are."""
    maxima = read_float64(table, 6)
    return (
        Directory(read_uint32_rows(table, 0), read_uint8(table, 1), maxima[:0]),
        Directory(read_uint32_rows(table, 3), read_uint8(table, 4), maxima),
    )


@njit
def blocks_of(table, t):
    """The small and the large blocks that `open_terms` has put into the memory `t`, and where each term has its own."""
    values = read_uint8(table, 7)
    return (
        Blocks(write_uint16(t, 25), write_uint32(t, 26), read_uint16(table, 2), values[:0], 0),
        Blocks(write_uint16(t, 27), write_uint32(t, 28), read_uint16(table, 5), values, table[7, 2]),
        write_int64_rows(t, 22),
    )


@njit
def open_terms(table, numbers, range_count, memory):
    """The small and the large blocks of a query's terms, and where they start and end; whether they are sound."""
    small_words, large_words = _directories_of(table)
    small, large, rows = blocks_of(table, memory)
    n = numbers.size
    blocks, maxima, places = rows[:n], write_float64(memory, 23)[:n], write_int64(memory, 24)[:n]
    sound = open_in_both(small_words, large_words, numbers, range_count, small, large, places, blocks, maxima)
    return small, large, blocks, maxima, sound


@njit(
    *(
        f"const int64[:,:], const {codes}[:,:], const int64[:], const int64[:], const float64[:], const uint32[:], "
        "float64[:], const int64[:,:], float32[:], uint8[:]"
        for codes in LENGTH_TYPES
    )
)
def score_rows(table, lengths, numbers, spaces, weights, documents, sums, memory, scores, stop):
    """Put the exact scores of ascending documents of a prepared segment into `scores`; False for damage or if stopped.

    `sums`: memory for so many documents.
    """
    spare = _scoring_of(memory)
    scoring = ScoringScratch(sums, spare.ends, spare.places)
    small, large, blocks, _, sound = open_terms(table, numbers, lengths.shape[1] >> RANGE_BITS, memory)
    if not sound:
        return False
    terms = Terms(weights, spaces, blocks)
    size = max(scoring.ends.size, 1)
    for a in range(0, documents.size, size):  # as many as it scores at once
        part = ScoringScratch(sums[a : a + size], scoring.ends, scoring.places)
        some = documents[a : a + size]
        if must_stop(stop) or not score_documents(small, large, lengths, terms, _weightings_of(table), some, part):
            return False
    for x in range(sums.size):
        scores[x] = np.float32(sums[x]) + np.float32(0)  # turns -0.0 into 0.0
    return True


@njit
def _bounds_of(t):
    return Bounds(
        write_int64(t, 0), write_int64(t, 1), write_uint16_rows(t, 2), write_float64(t, 3), write_float64(t, 4),
        write_float64(t, 29),
    )  # fmt: skip


@njit
def _candidates_of(t):
    return Candidates(
        write_uint32(t, 5), write_uint16(t, 6), write_int32(t, 7), write_uint16(t, 8), write_uint16(t, 9),
        write_int64_rows(t, 10), write_int64(t, 11),
    )  # fmt: skip


@njit
def _scoring_of(t):
    return ScoringScratch(write_float64(t, 12), write_uint32(t, 13), write_uint32(t, 14))


@njit
def _sorting_of(t):
    return SortScratch(
        write_float32(t, 15), write_uint32(t, 16), write_uint32(t, 17), write_uint32(t, 18), write_int64(t, 19),
        TopK(write_float32(t, 20), write_int64(t, 21)),
    )  # fmt: skip


@njit
def _weightings_of(t):
    return Weightings(
        write_bool(t, 9), write_float64_rows(t, 10), write_float64_rows(t, 11), write_float64_rows(t, 12),
        write_int64(t, 13),
    )  # fmt: skip


@njit(
    *(
        f"const int64[:,:], const {codes}[:,:], const int64[:], const int64[:], const int64[:], const int64[:], "
        "const float64[:], float64, const int64[:,:], float32[:,:], int64[:,:], int64[:], uint8[:]"
        for codes in LENGTH_TYPES
    )
)
def search_segment(
    table, lengths, facts, pointers, numbers, spaces, weights, expected, memory, scores, places, counts, stop
):  # fmt: skip
    """Merge a segment's documents into the top k of many queries; False if the segment is damaged, or if stopped.

    `table`, `lengths` and `facts`: see `PreparedSegment`; `memory`: see `Scratch`.
    """
    w, bounds, candidates = _weightings_of(table), _bounds_of(memory), _candidates_of(memory)
    scoring, sorting, range_count = _scoring_of(memory), _sorting_of(memory), lengths.shape[1] >> RANGE_BITS
    for q in range(pointers.size - 1):
        a, z = pointers[q], pointers[q + 1]
        small, large, blocks, maxima, sound = open_terms(table, numbers[a:z], range_count, memory)
        if not sound:
            return False
        terms = Terms(weights[a:z], spaces[a:z], blocks)
        unit = bound_terms(terms, maxima, w, expected, bounds)
        if unit < 0:
            return False
        if unit > 0:
            segment = SegmentArrays(small, large, lengths, read_bool(table, 8), facts[0], facts[1])
            counts[q] = search_ranges(
                segment,
                terms,
                w,
                unit,
                bounds,
                candidates,
                scoring,
                sorting,
                TopK(scores[q], places[q]),
                counts[q],
                stop,
            )
            if counts[q] < 0:
                return False
    return True
