"""In how many of some rows terms occur: what is taken off document frequencies for rows that were deleted since."""

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
from vizsla.engine.segment import Segment
from vizsla.kernels import njit

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
