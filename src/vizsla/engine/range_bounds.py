"""The score bounds of the documents of one range, and which of them reach the threshold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import RANGE_BITS, RANGE_SIZE, block_bounds, is_bitmap
from vizsla.engine.bounds import (
    add_bitmap,
    add_few,
    add_few_of_bitmap,
    add_large_block,
    add_small_block,
    find_reaching,
)
from vizsla.engine.intrinsics import prefetch
from vizsla.kernels import njit, njit_inlined

BIN_BITS = 5
BINS = 1 << (16 - BIN_BITS)  # all of 16 bits, since the sums of damaged lists may be too high
POSTINGS_FETCHED = 32  # at a time: a cache line
PROBE = 60  # the cost of looking up a document in a block, in postings added up


class Candidates(NamedTuple):
    """Documents that may be among the best, and memory to find them with."""

    documents: np.ndarray
    reached: np.ndarray
    """Their bounds."""
    bins: np.ndarray
    """How many candidates there were, by bound: they give a lower bound of the k-th best score."""
    sums: np.ndarray
    """[RANGE_SIZE] the bounds of a range; all zero between ranges."""
    offsets: np.ndarray
    """[RANGE_SIZE + 2] where in the range candidates are."""
    at: np.ndarray
    """[n, 2] the current small and large block of each term."""
    state: np.ndarray
    """[5] the threshold; the lowest bin for which it and the bins above hold k candidates; the number of candidates in
    these bins; the documents looked up in the last range; the number of all candidates."""

    @classmethod
    def of_size(cls, size: int, terms: int) -> Candidates:
        return cls(
            np.empty(size, np.uint32),
            np.empty(size, np.uint16),
            np.empty(BINS, np.int32),
            np.zeros(RANGE_SIZE, np.uint16),
            np.empty(RANGE_SIZE + 2, np.uint16),
            np.empty((terms, 2), np.int64),
            np.empty(5, np.int64),
        )


@njit
def advance_to(ranges, at, end, doc_range):
    """Advance to the first block at or after a range; returns its position and whether it belongs to that range."""
    while at < end and ranges[at] < doc_range:
        at += 1
    return at, at < end and ranges[at] == doc_range


@njit
def _fetch_next(lists, r, end):
    """Prefetch the postings of the block after r while those of r are added up."""
    if r + 1 < end:
        last = min(np.int64(lists.starts[r + 2]), lists.postings.size)
        for x in range(np.int64(lists.starts[r + 1]), last, POSTINGS_FETCHED):
            prefetch(lists.postings, x)


@njit_inlined
def add_term(small, large, lengths, blocks, at, i, s, doc_range, w, rows, factors, sums, offsets):
    """Add a term's bounds in a range, to all sums or only to those of a few documents; False for damage."""
    at[i, 0], here = advance_to(small.ranges, at[i, 0], blocks[i, 1], doc_range)
    if here:
        a, z = block_bounds(small, at[i, 0])
        if z < a:
            return False
        _fetch_next(small, at[i, 0], blocks[i, 1])
        if is_bitmap(small, a, z):
            if offsets.size > RANGE_SIZE:
                add_bitmap(sums, small.postings, a, rows[i])
            else:
                add_few_of_bitmap(
                    sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, rows[i], w, s, offsets, False
                )
        elif offsets.size * PROBE < z - a:
            add_few(sums, small, a, z, lengths[s], doc_range << RANGE_BITS, factors[i], w, s, offsets)
        else:
            add_small_block(sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, rows[i], w, s)
    at[i, 1], here = advance_to(large.ranges, at[i, 1], blocks[i, 3], doc_range)
    if here:
        a, z = block_bounds(large, at[i, 1])
        if z < a:
            return False
        if offsets.size * PROBE < z - a:
            add_few(sums, large, a, z, lengths[s], doc_range << RANGE_BITS, factors[i], w, s, offsets)
        else:
            add_large_block(sums, large, a, z, lengths[s], doc_range << RANGE_BITS, rows[i], factors[i], w, s)
    return True


@njit
def refine(small, lengths, terms, w, bounds, candidates, doc_range, essential, offsets):
    """Correct the bounds of some offsets, to which the essential terms have added bitmaps."""
    for j in range(essential):
        i = bounds.order[j]
        r, s = candidates.at[i, 0], terms.spaces[i]
        if r < terms.blocks[i, 1] and small.ranges[r] == doc_range:
            a, z = block_bounds(small, r)
            if is_bitmap(small, a, z):
                add_few_of_bitmap(
                    candidates.sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, bounds.rows[i], w, s,
                    offsets, True,
                )  # fmt: skip


@njit
def keep(sums, offsets, n, needed):
    """Keep those of the first n offsets whose sums reach what is needed; returns how many they are."""
    kept_count = 0
    for x in range(n):
        if np.int64(sums[offsets[x]]) >= needed:
            offsets[kept_count] = offsets[x]
            kept_count += 1
    return kept_count


@njit_inlined
def bound_range(small, large, lengths, terms, w, bounds, candidates, doc_range, essential, threshold):
    """Find the offsets in a range whose bounds reach the threshold; returns how many they are, -1 for damage.

    The essential terms are added up for all documents. The other terms are only looked up for documents that they could
    still lift above the threshold. If all terms are essential, bounds are not refined yet.
    """
    at, sums, offsets, n = candidates.at, candidates.sums, candidates.offsets, 0
    for j in range(terms.weights.size):
        if j == essential:
            needed = max(threshold - bounds.rest[j], 1)
            n = find_reaching(sums, needed, offsets)
            refine(small, lengths, terms, w, bounds, candidates, doc_range, essential, offsets[:n])
            n = keep(sums, offsets, n, needed)
            candidates.state[3] = n
        if j >= essential and n == 0:
            return 0
        i = bounds.order[j]
        lookups = offsets[:n] if j >= essential else offsets  # all offsets, so the block is added up as a whole
        if not add_term(
            small, large, lengths, terms.blocks, at, i, terms.spaces[i], doc_range, w, bounds.rows, bounds.factors,
            sums, lookups,
        ):  # fmt: skip
            return -1
        if j >= essential:
            n = keep(sums, offsets, n, threshold - bounds.rest[j + 1])
    return n if essential < terms.weights.size else find_reaching(sums, threshold, offsets)
