"""A guess of the k-th best score, from one range in the middle.

A search starts without a threshold, so the first ranges would yield thousands of candidates that are dropped later. If
there are many ranges, the k-th best score of all is estimated from the best documents of one of them. Good documents
are often neighbours, such as passages of one article, so each half of the range gives an estimate and the lower one is
used. The estimate may be wrong: a search that does not find k documents above it starts again without it.
"""

from __future__ import annotations

import numpy as np

from vizsla.engine.blocks import RANGE_BITS, RANGE_SIZE
from vizsla.engine.bounds import TOP_BIT, clear, find_reaching
from vizsla.engine.range_bounds import add_term, refine
from vizsla.kernels import njit

FEWEST_RANGES = 8
HALF = RANGE_SIZE // 2
MARGIN = 2.0  # standard deviations
FOLDED = HALF // 8


@njit
def _rank_in_half(k, range_count):
    """The rank in half a range of the last document that is expected to be in the top k of the whole segment."""
    expected = k / (2 * range_count)
    return np.int64(expected + MARGIN * np.sqrt(expected)) + 1


@njit
def _count_reaching(numbers, threshold):
    """How many numbers, at most a few thousand, reach a threshold; in 16 bits, so that many are compared at a time."""
    count = np.uint16(0)
    for x in range(np.uint64(numbers.size)):
        count = np.uint16(count + np.uint16(numbers[x] >= threshold))
    return np.int64(count)


@njit
def _nth_largest(numbers, n):
    """The n-th largest of some bounds, counted from 1; 0 if there are fewer."""
    low, high = 0, TOP_BIT  # at least n numbers reach `low`
    while high - low > 1:
        middle = (low + high) >> 1
        if _count_reaching(numbers, np.uint16(middle)) >= n:
            low = middle
        else:
            high = middle
    return low


@njit
def _fold(sums, out):
    """Put the largest of every 8 sums into `out`."""
    for i in range(np.uint64(FOLDED)):
        out[i] = sums[i]
    for first in range(np.uint64(FOLDED), np.uint64(sums.size), np.uint64(FOLDED)):
        for i in range(np.uint64(FOLDED)):
            out[i] = sums[first + i] if sums[first + i] > out[i] else out[i]


@njit
def _nth_best(segment, terms, w, bounds, candidates, doc_range, first, rank):
    """The bound of the n-th best document in the half of a range that starts at `first`; 0 if there are fewer."""
    sums, offsets = candidates.sums, candidates.offsets
    half = sums[first : first + HALF]
    _fold(half, candidates.reached)
    least = _nth_largest(candidates.reached[:FOLDED], 2 * rank)
    n = find_reaching(half, least, offsets) if least > 0 else np.int64(0)
    for x in range(n):
        offsets[x] += first
    refine(segment.small, segment.lengths, terms, w, bounds, candidates, doc_range, terms.weights.size, offsets[:n])
    count = 0
    for x in range(n):
        document = (doc_range << RANGE_BITS) + np.int64(offsets[x])
        if document < segment.documents and (segment.allowed.size == 0 or segment.allowed[document]):
            candidates.reached[count] = sums[offsets[x]]
            count += 1
    return _nth_largest(candidates.reached[:count], rank)


@njit
def guess_threshold(segment, terms, w, bounds, candidates, k):
    """An estimate of the k-th best bound of a segment, low rather than high; 0 without an estimate.

    The blocks of `candidates` are at the beginning; they are at the range in the middle afterwards.
    """
    range_count = segment.lengths.shape[1] >> RANGE_BITS
    rank = _rank_in_half(k, range_count)
    if range_count < FEWEST_RANGES or 4 * rank > FOLDED:
        return np.int64(0)
    doc_range = np.int64(range_count // 2)
    for j in range(terms.weights.size):
        i = bounds.order[j]
        if not add_term(
            segment.small, segment.large, segment.lengths, terms.blocks, candidates.at, i, terms.spaces[i], doc_range,
            w, bounds.rows, bounds.factors, candidates.sums, candidates.offsets,
        ):  # fmt: skip
            clear(candidates.sums)
            return np.int64(0)  # the search will find the damage
    guess = min(
        _nth_best(segment, terms, w, bounds, candidates, doc_range, 0, rank),
        _nth_best(segment, terms, w, bounds, candidates, doc_range, HALF, rank),
    )
    clear(candidates.sums)
    return np.int64(guess)
