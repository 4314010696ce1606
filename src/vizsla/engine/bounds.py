"""Upper bounds of scores in 15 bits: added up fast, for whole document ranges, to find the few documents that count.

The unit of a query's bounds is chosen so that the highest possible score is just below 21,846 units. The bound of a
posting is its weight in units, rounded up, so a document's bound exceeds its score by at most one unit per term, and
few documents are scored that are not among the top k. (The bound of a document that is longer than the lengths that
bounds distinguish can be looser.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import (
    MAX_SMALL,
    OFFSET_MASK,
    RANGE_BITS,
    WORDS,
    bits_at,
    find_posting,
    number_at,
    value_in_bitmap,
)
from vizsla.engine.intrinsics import (
    LANES,
    WORDS_AT_A_TIME,
    add_words,
    bits_reaching,
    count_bits,
    first_bit,
    four_numbers,
    largest,
)
from vizsla.engine.scores import value_at, weight_of
from vizsla.kernels import njit

TOP_BIT = 1 << 15
MAX_SUM = 0xFFFF // 3  # three times a bound fits in 16 bits, see `add_bitmap`, and none has the highest bit
MAX_TERMS = 4096  # with more terms than this the units would become coarse
BYTES = 256  # values that large lists of 8 bits can have


class Bounds(NamedTuple):
    """What the terms of a query can add to a score, in units."""

    order: np.ndarray
    """[n] the terms, those that can add most first."""
    rest: np.ndarray
    """[n + 1] the most that all terms from a position of that order on can add, or are expected to add."""
    rows: np.ndarray
    """[n, 4 * width + BYTES] the bounds of small postings, at 4 * length code + value - 1; at the end those of the
    values of large lists of 8 bits, where weights are linear."""
    factors: np.ndarray
    """[n] the terms' weights in units."""
    loads: np.ndarray
    """[n + 1] the cost of adding up a range of all terms from a position of the order on, in postings."""
    probes: np.ndarray
    """[n + 1] the cost of looking up a document in all terms from a position of the order on, in postings."""

    @classmethod
    def of_size(cls, terms: int, width: int) -> Bounds:
        return cls(
            np.empty(terms, np.int64),
            np.empty(terms + 1, np.int64),
            np.empty((terms, width), np.uint16),
            np.empty(terms),
            np.empty(terms + 1),
            np.empty(terms + 1),
        )


@njit
def bound_terms(terms, maxima, w, expected, bounds):
    """Bound a query's terms, whose large lists have values up to `maxima`; returns the unit.

    The unit is 0 where no term has blocks, and -1 for damage. `expected`: terms that are left out at first are expected
    to add this share of their maximum; 1 for exact search.
    """
    order, factors, total, n = bounds.order, bounds.factors, 0.0, terms.weights.size
    for i in range(n):
        s, highest = terms.spaces[i], 0.0
        small_count, large_count = terms.blocks[i, 1] - terms.blocks[i, 0], terms.blocks[i, 3] - terms.blocks[i, 2]
        if small_count > 0:
            highest = terms.weights[i] * w.small[s, MAX_SMALL - 1]
        if large_count > 0:
            highest = max(highest, terms.weights[i] * weight_of(maxima[i], 0, w, s))
        if not 0 < highest < np.inf and small_count + large_count > 0:
            return -1.0
        factors[i] = highest
        total += highest
        j = i
        while j > 0 and factors[order[j - 1]] < highest:  # sorted by insertion: queries are short
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    unit = total / (MAX_SUM - 2 * n)
    if unit == 0:
        return unit
    bounds.rest[n] = 0
    bounds.rest[0] = MAX_SUM
    for j in range(n - 1, 0, -1):
        bounds.rest[j] = bounds.rest[j + 1] + np.int64(expected * factors[order[j]] / unit) + 1
    for i in range(n):
        factors[i] = terms.weights[i] / unit
        if terms.blocks[i, 0] < terms.blocks[i, 1]:
            _bound_small(factors[i], w.small[terms.spaces[i]], bounds.rows[i])
        if terms.blocks[i, 2] < terms.blocks[i, 3] and w.linear[terms.spaces[i]]:
            _bound_bytes(factors[i] * w.constants[terms.spaces[i], 0], maxima[i], bounds.rows[i])
    return unit


@njit
def _bound_small(factor, weights, row):
    for x in range(weights.size):
        row[x] = np.uint16(factor * weights[x]) + np.uint16(1)


@njit
def _bound_bytes(scaled, highest, row):
    """Bound the values of 8 bits up to the highest of a list; higher ones, if it has any, are bounded like that one."""
    first, most = row.size - BYTES, np.float64(min(highest, BYTES - 1))
    for x in range(BYTES):
        row[first + x] = np.uint16(scaled * min(np.float64(x), most)) + np.uint16(1)


@njit
def _bound_at(row, posting, code):
    """The bound of a small posting in a document with a length code."""
    return row[(code << np.uint64(2)) | (posting >> np.uint64(RANGE_BITS))]


@njit
def add_small_block(sums, postings, a, z, codes, base, row, w, s):
    """Add a block of small postings to the sums of its range.

    This is the innermost loop of the engine; everything around it is there to run it rarely. It handles four postings
    at a time, so that the processor can load their sums before it knows that the documents differ.
    """
    last, base, x, end = np.uint64(w.last_codes[s]), np.uint64(base), np.uint64(a), np.uint64(z)
    mask, one, all_bits = np.uint64(OFFSET_MASK), np.uint64(1), np.uint64(0xFFFF)
    if codes.itemsize == 1 and last >= np.uint64(255):  # every code is in the row
        while x + np.uint64(3) < end:
            four = four_numbers(postings, x)
            p, q = four & all_bits, (four >> np.uint64(16)) & all_bits
            r, t = (four >> np.uint64(32)) & all_bits, four >> np.uint64(48)
            to_p, to_q, to_r, to_t = p & mask, q & mask, r & mask, t & mask
            sum_p = np.uint16(sums[to_p] + _bound_at(row, p, np.uint64(codes[base + to_p])))
            sum_q = np.uint16(sums[to_q] + _bound_at(row, q, np.uint64(codes[base + to_q])))
            sum_r = np.uint16(sums[to_r] + _bound_at(row, r, np.uint64(codes[base + to_r])))
            sum_t = np.uint16(sums[to_t] + _bound_at(row, t, np.uint64(codes[base + to_t])))
            sums[to_p], sums[to_q], sums[to_r], sums[to_t] = sum_p, sum_q, sum_r, sum_t
            x += np.uint64(4)
    while x < end:
        posting = np.uint64(postings[x])
        code = min(np.uint64(codes[base + (posting & mask)]), last)
        sums[posting & mask] += _bound_at(row, posting, code)
        x += one


@njit
def _bitmap_bounds(row):
    """The bounds of a bitmap's values 1, 2, and 3 or 4, for documents of any length.

    A row begins with the bounds of the shortest documents.
    """
    return row[0], row[1], row[MAX_SMALL - 1]


@njit
def add_bitmap(sums, postings, a, row):
    """Add a bitmap to the sums of its range, as if all documents were short; `add_few_of_bitmap` corrects it."""
    one, two, most = _bitmap_bounds(row)
    for x in range(np.uint64(0), np.uint64(WORDS), np.uint64(WORDS_AT_A_TIME)):
        add_words(sums, x, postings, np.uint64(a) + x, one, two, most)


@njit
def add_few_of_bitmap(sums, postings, a, z, codes, base, row, w, s, offsets, is_there):
    """Add a bitmap's length-dependent bounds for some documents, replacing the bounds that `add_bitmap` added."""
    one, two, most = _bitmap_bounds(row) if is_there else (np.uint16(0), np.uint16(0), np.uint16(0))
    last = np.uint64(w.last_codes[s])
    for j in range(offsets.size):  # without unpredictable branches
        offset = offsets[j]
        bits = bits_at(postings, a, offset)
        value = np.uint64(value_in_bitmap(postings, a, z, offset)) if bits == np.uint64(3) else bits
        code = min(np.uint64(codes[np.uint64(base) + np.uint64(offset)]), last)
        bound = np.uint64(row[(code << np.uint64(2)) | (max(value, np.uint64(1)) - np.uint64(1))])
        there = one if bits == np.uint64(1) else (two if bits == np.uint64(2) else most)
        change = bound - np.uint64(there) if bits else np.uint64(0)
        sums[offset] = np.uint16(np.uint64(sums[offset]) + change)


@njit
def _add_bytes(sums, postings, values, a, z, bounds):
    """Add a block of large postings whose values have 8 bits; as in `add_small_block`, four at a time."""
    mask, x, end = np.uint64(OFFSET_MASK), np.uint64(a), np.uint64(z)
    while x + np.uint64(3) < end:
        four = four_numbers(postings, x)
        to_p, to_q = four & mask, (four >> np.uint64(16)) & mask
        to_r, to_t = (four >> np.uint64(32)) & mask, (four >> np.uint64(48)) & mask
        sum_p = np.uint16(sums[to_p] + bounds[values[x]])
        sum_q = np.uint16(sums[to_q] + bounds[values[x + np.uint64(1)]])
        sum_r = np.uint16(sums[to_r] + bounds[values[x + np.uint64(2)]])
        sum_t = np.uint16(sums[to_t] + bounds[values[x + np.uint64(3)]])
        sums[to_p], sums[to_q], sums[to_r], sums[to_t] = sum_p, sum_q, sum_r, sum_t
        x += np.uint64(4)
    while x < end:
        sums[np.uint64(postings[x]) & mask] += bounds[values[x]]
        x += np.uint64(1)


@njit
def add_large_block(sums, lists, a, z, codes, base, row, factor, w, s):
    """Add a block of large postings to the sums of its range."""
    if w.linear[s] and lists.kind == 0:
        _add_bytes(sums, lists.postings, lists.values, a, z, row[row.size - BYTES :])
    elif w.linear[s]:
        scaled = factor * w.constants[s, 0]
        for x in range(np.uint64(a), np.uint64(z)):
            offset = lists.postings[x] & np.uint16(OFFSET_MASK)
            sums[offset] += np.uint16(scaled * number_at(lists.values, lists.kind, np.int64(x))) + np.uint16(1)
    else:
        last, base = np.uint64(w.norms.shape[1] - 1), np.uint64(base)
        for x in range(np.uint64(a), np.uint64(z)):
            offset = np.uint64(lists.postings[x]) & np.uint64(OFFSET_MASK)
            code = min(np.uint64(codes[base + offset]), last)
            sums[offset] += np.uint16(
                factor * weight_of(number_at(lists.values, lists.kind, np.int64(x)), code, w, s)
            ) + np.uint16(1)


@njit
def add_few(sums, lists, a, z, codes, base, factor, w, s, offsets):
    """Add a plain block's bounds for a few documents of its range only, each looked up."""
    last = w.norms.shape[1] - 1
    for j in range(offsets.size):
        x = find_posting(lists.postings, a, z, offsets[j])
        if (lists.postings[x] & np.uint16(OFFSET_MASK)) == offsets[j]:
            code = min(np.int64(codes[base + np.int64(offsets[j])]), last)
            sums[offsets[j]] += np.uint16(factor * weight_of(value_at(lists, x), code, w, s)) + np.uint16(1)


@njit
def find_reaching(sums, threshold, places):
    """Put the places of all sums that reach a threshold into `places`; returns how many they are.

    `places` has space for two more entries: two are written for every 64 sums of which any reaches the threshold, so
    that no branch depends on how many there are.
    """
    n, one, two, least = np.uint64(0), np.uint64(1), np.uint64(2), np.uint16(threshold)
    for at in range(np.uint64(0), np.uint64(sums.size), np.uint64(LANES)):
        if largest(sums, at) < least:
            continue
        bits = bits_reaching(sums, at, least)
        end = n + count_bits(bits)
        places[n] = at + first_bit(bits)
        bits &= bits - one
        places[n + one] = at + first_bit(bits)
        n += two
        while n < end:
            bits &= bits - one
            places[n] = at + first_bit(bits)
            n += one
        n = end
    return np.int64(n)


@njit
def clear(sums):
    for x in range(sums.size):
        sums[x] = 0
