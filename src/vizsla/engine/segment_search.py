"""The top k of queries in one segment: one call of a kernel, whatever it takes.

The kernel gets its arrays in tables, see `packed_arrays.py`: one for a segment and the weightings of a model, one for
the memory that a thread works in. A kernel that reads a table must not count references, so it is an `njit_no_alloc`,
and no other kind of kernel may call it: it would free the arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from vizsla.engine.bounds import Bounds, bound_terms
from vizsla.engine.packed_arrays import (
    pack_arrays,
    read_bool,
    read_float64,
    read_uint16,
    read_uint32,
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
    write_uint64,
)
from vizsla.engine.posting_lists import RANGE_SIZE, Blocks, Directory
from vizsla.engine.ranges import Candidates, search_ranges
from vizsla.engine.scores import ScoringScratch, Terms, score_documents
from vizsla.engine.segment import Segment, SegmentArrays, find_in_both
from vizsla.engine.topk import SortScratch, TopK
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit_no_alloc

Masks = Sequence[np.ndarray | None]
"""For each segment a mask of the documents that may be found; None for all."""


class PreparedSegment(NamedTuple):
    """A segment with a mask and the weightings of a model, as `search_segment` takes it.

    The arrays whose types differ from segment to segment go by themselves. The table has the others.
    """

    table: np.ndarray
    lengths: np.ndarray
    values: np.ndarray
    facts: np.ndarray
    """How many documents it has, and the place of the first among those of all segments."""


class PreparedSegments:
    """Segments with masks and the weightings of a model. Who searches them holds on to this: tables keep no arrays."""

    def __init__(
        self, segments: Sequence[Segment], masks: Masks, firsts: Sequence[int], weightings: Weightings
    ) -> None:
        """`firsts`: the place of each segment's first document among those of all."""
        self._kept: list[object] = [weightings, masks]  # their ids are not used again as long as this is here
        self.segments = [
            self._prepare(segment, mask, first, weightings)
            for segment, mask, first in zip(segments, masks, firsts, strict=False)
        ]

    def _prepare(self, s: Segment, mask: np.ndarray | None, first: int, w: Weightings) -> PreparedSegment:
        others = np.ascontiguousarray(s.arrays(mask, first).allowed), *w
        self._kept += [s, mask, others]
        table = np.concatenate([s.lists_table, pack_arrays(*others)])
        return PreparedSegment(table, s.lengths, s.large.values, np.array([len(s), first], np.int64))


class Scratch:
    """Memory to work in, for one thread."""

    def __init__(self, k: int, terms: int, width: int) -> None:
        """For queries with so many `terms`; `width`: of a row of bounds."""
        size = 2 * (RANGE_SIZE + k)
        self._k, self._terms, self._width = k, terms, width
        self._sorting = SortScratch.of_size(size, k)
        *sorting, topk = self._sorting
        self._arrays = (
            *Bounds.of_size(terms, width), *Candidates.of_size(size, terms), *ScoringScratch.of_size(size),
            *sorting, *topk, np.empty((terms, 4), np.int64), np.empty(terms),
        )  # fmt: skip
        self.table = pack_arrays(*self._arrays)

    def is_enough(self, k: int, terms: int, width: int) -> bool:
        return self._k >= k and self._terms >= terms and self._width == width


_local = threading.local()


@contextmanager
def scratch_of_thread(k: int, terms: int, width: int) -> Iterator[Scratch]:
    """Memory of this thread to search in; after an error, which may have left it dirty, it is not used again."""
    scratch: Scratch | None = getattr(_local, "scratch", None)
    _local.scratch = None
    if scratch is None or not scratch.is_enough(k, terms, width):
        scratch = Scratch(max(k, 1000), max(terms, 32), width)
    yield scratch
    _local.scratch = scratch


@njit_no_alloc
def directories_of(table):
    """Where the small and the large lists of a prepared segment are."""
    maxima = read_float64(table, 10)
    return (
        Directory(read_uint32(table, 0), read_uint32(table, 1), read_uint16(table, 2), maxima[:0]),
        Directory(read_uint32(table, 5), read_uint32(table, 6), read_uint16(table, 7), maxima),
    )


@njit_no_alloc
def blocks_of(table, values):
    """The small and the large blocks of a prepared segment."""
    return (
        Blocks(read_uint16(table, 2), read_uint32(table, 3), read_uint16(table, 4), values[:0]),
        Blocks(read_uint16(table, 7), read_uint32(table, 8), read_uint16(table, 9), values),
    )


@njit_no_alloc
def score_rows(table, lengths, values, numbers, spaces, weights, documents, blocks, maxima, sums, memory, scores):
    """Put the exact scores of ascending documents of a prepared segment into `scores`; False if there is damage.

    `blocks`, `maxima`, `sums`: memory for so many terms and documents.
    """
    small_words, large_words = directories_of(table)
    small, large = blocks_of(table, values)
    spare = _scoring_of(memory)
    scoring = ScoringScratch(sums, spare.offsets, spare.places)
    if not find_in_both(small_words, large_words, numbers, blocks, maxima):
        return False
    terms = Terms(weights, spaces, blocks)
    if not score_documents(small, large, lengths, terms, _weightings_of(table), documents, scoring):
        return False
    for x in range(sums.size):
        scores[x] = np.float32(sums[x]) + np.float32(0)  # makes the 0 of a negative number a plain one
    return True


@njit_no_alloc
def _bounds_of(t):
    return Bounds(
        write_int64(t, 0), write_int64(t, 1), write_uint16_rows(t, 2), write_float64(t, 3), write_float64(t, 4)
    )


@njit_no_alloc
def _candidates_of(t):
    return Candidates(
        write_uint32(t, 5), write_uint16(t, 6), write_int32(t, 7), write_uint16(t, 8), write_uint64(t, 9),
        write_uint16(t, 10), write_int64_rows(t, 11), write_int64(t, 12),
    )  # fmt: skip


@njit_no_alloc
def _scoring_of(t):
    return ScoringScratch(write_float64(t, 13), write_uint16(t, 14), write_uint16(t, 15))


@njit_no_alloc
def _sorting_of(t):
    return SortScratch(
        write_float32(t, 16), write_uint32(t, 17), write_uint32(t, 18), write_uint32(t, 19), write_int64(t, 20),
        TopK(write_float32(t, 21), write_int64(t, 22)),
    )  # fmt: skip


@njit_no_alloc
def _weightings_of(t):
    return Weightings(
        write_bool(t, 12), write_float64_rows(t, 13), write_float64_rows(t, 14), write_float64_rows(t, 15),
        write_int64(t, 16),
    )  # fmt: skip


@njit_no_alloc
def search_segment(
    table, lengths, values, facts, pointers, numbers, spaces, weights, expected, memory, scores, places, counts
):  # fmt: skip
    """Merge a segment's documents into the top k of many queries; False if the segment is damaged.

    `table`, `lengths`, `values` and `facts`: see `PreparedSegment`; `memory`: see `Scratch`.
    """
    w, bounds, candidates = _weightings_of(table), _bounds_of(memory), _candidates_of(memory)
    scoring, sorting = _scoring_of(memory), _sorting_of(memory)
    all_blocks, all_maxima = write_int64_rows(memory, 23), write_float64(memory, 24)
    small_words, large_words = directories_of(table)
    small, large = blocks_of(table, values)
    segment = SegmentArrays(small, large, lengths, read_bool(table, 11), facts[0], facts[1])
    for q in range(pointers.size - 1):
        a, z = pointers[q], pointers[q + 1]
        blocks, maxima = all_blocks[: z - a], all_maxima[: z - a]
        if not find_in_both(small_words, large_words, numbers[a:z], blocks, maxima):
            return False
        terms = Terms(weights[a:z], spaces[a:z], blocks)
        unit = bound_terms(terms, maxima, w, expected, bounds)
        if unit < 0:
            return False
        if unit > 0:
            counts[q] = search_ranges(
                segment, terms, w, unit, bounds, candidates, scoring, sorting, TopK(scores[q], places[q]), counts[q]
            )
            if counts[q] < 0:
                return False
    return True
