"""Document frequencies of living documents: what deleted rows take off the posting lists of a segment."""

from __future__ import annotations

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError
from vizsla.engine.blocks import (
    BLOCKS,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    bits_at,
    block_bounds,
    find_block,
    find_posting,
    is_bitmap,
)
from vizsla.engine.merge import GONE, MergeCounts, count_lists
from vizsla.engine.posting_lists import PostingLists
from vizsla.engine.segment import Segment
from vizsla.kernels import njit


def live_frequencies(segment: Segment, alive: np.ndarray) -> np.ndarray:
    """How many live documents are in each list, first of the small ones, then of the large ones."""
    return np.concatenate([_living(lists, alive) for lists in (segment.small, segment.large)])


def _living(lists: PostingLists, alive: np.ndarray) -> np.ndarray:
    table = lists.table()
    counts, to = MergeCounts.of_size(len(table.terms)), np.where(alive, 0, GONE).astype(np.int64)
    count_lists([(lists, table)], [to], [np.arange(len(table.terms))], counts, 1)
    return counts.postings


@njit
def _count_gone(lists, a, z, base, gone):
    """How many documents of a block are gone; -1 for damage."""
    count = 0
    if is_bitmap(lists, a, z):
        for offset in range(min(RANGE_SIZE, gone.size - base)):
            count += gone[base + offset] and bits_at(lists.postings, a, offset) > 0
        return count
    for x in range(a, z):
        row = base + np.int64(lists.postings[x] & np.uint16(OFFSET_MASK))
        if row >= gone.size:
            return -1
        count += gone[row]
    return count if z >= a else -1


@njit(f"{BLOCKS}, const int64[:], const bool[:], const bool[:], int64[:]")
def _count_rows(lists, block_starts, has_gone, gone, counts):
    """Subtract the deleted rows from the count of each list; only blocks of their ranges are read."""
    for t in range(counts.size):
        if not 0 <= block_starts[t] <= block_starts[t + 1] <= lists.ranges.size:
            return False
        for r in range(block_starts[t], block_starts[t + 1]):
            if has_gone[lists.ranges[r]]:
                a, z = block_bounds(lists, r)
                count = _count_gone(lists, a, z, np.int64(lists.ranges[r]) << RANGE_BITS, gone)
                if count < 0:
                    return False
                counts[t] -= count
        if counts[t] < 0:
            return False
    return True


def live_frequencies_without(segment: Segment, before: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """How many live documents are in each list once these rows are deleted as well; see `live_frequencies`.

    `before`: the counts before the deletion; None if no document of the segment has been deleted so far. Only the
    ranges of these rows are read, which takes far less time than counting all live documents again.
    """
    gone, has_gone = np.zeros(len(segment), np.bool_), np.zeros(1 << 16, np.bool_)
    gone[rows] = True
    has_gone[rows >> RANGE_BITS] = True
    found, first = [], 0
    for lists in (segment.small, segment.large):
        table = lists.table()
        last = first + len(table.terms)
        counts = (table.counts if before is None else before[first:last]).astype(np.int64)
        first = last
        if len(counts) != len(table.terms) or not _count_rows(
            lists.blocks(table), table.block_starts, has_gone, gone, counts
        ):
            raise DamagedSegmentError
        found.append(counts)
    return np.concatenate(found)


_TOGETHER = 1000  # terms whose blocks are opened together


@njit(f"{BLOCKS}, const int64[:,:], const int64[:], int64[:]")
def _count_in_rows(lists, blocks, rows, counts):
    """Add to `counts` in how many of some ascending rows each term has a posting; False if a list is damaged."""
    for i in range(counts.size):
        first, last, x = blocks[i, 0], blocks[i, 1], 0
        while x < rows.size and first < last:
            doc_range = rows[x] >> RANGE_BITS
            first = find_block(lists.ranges, first, last, doc_range)
            if first == last:
                break
            here = np.int64(lists.ranges[first])
            a, z = block_bounds(lists, first)
            if z < a or here < doc_range:
                return False
            while x < rows.size and rows[x] >> RANGE_BITS < here:
                x += 1
            while x < rows.size and rows[x] >> RANGE_BITS == here:
                offset = np.uint16(rows[x] & (RANGE_SIZE - 1))
                if is_bitmap(lists, a, z):
                    counts[i] += bits_at(lists.postings, a, offset) > 0
                elif z > a:
                    at = find_posting(lists.postings, a, z, offset)
                    counts[i] += (lists.postings[at] & np.uint16(OFFSET_MASK)) == offset
                x += 1
            first += 1
    return True


def frequencies_in_rows(segment: Segment, terms: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """In how many of some rows, ascending, each term occurs; terms are given by their numbers, -1 is no term.

    Lists are read only where such rows can be.
    """
    counts = np.zeros(len(terms), np.int64)
    for start in range(0, len(terms), _TOGETHER):
        some, found = terms[start : start + _TOGETHER], counts[start : start + _TOGETHER]
        for lists in (segment.small, segment.large):
            blocks, maxima = np.empty((len(some), 2), np.int64), np.empty(len(some))
            opened = lists.open(some, segment.range_count, blocks, maxima)
            if not _count_in_rows(opened, blocks, rows, found):
                raise DamagedSegmentError
    return counts
