"""Upper bounds of scores in 15 bits: added up fast, for whole windows of documents, to find the few that count.

A query's scores are measured in units so small that its highest possible one is just below 32,768. The bound of a
posting is its weight in units, rounded up, so a document's bound is above its score by at most one unit a term: to
rank by bounds and score the best exactly wastes next to nothing. (Of documents longer than the lengths told apart, the
bound can be further above.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.lists import BITS, OFFSET, SMALL
from vizsla.engine.scores import find_posting, value_at, weight_of
from vizsla.kernels import still

TOP_BIT = 1 << 15
ROOM = TOP_BIT - 1  # the highest bit is left free, see `reaching`
MOST_TERMS = 4096  # with more terms than this the units would become coarse
CHUNK = 256  # bounds looked at together: a maximum over many is cheap


class Bounds(NamedTuple):
    """What the terms of a query can add to a score, in units."""

    order: np.ndarray
    """[n] the terms, those that can add most first."""
    rest: np.ndarray
    """[n + 1] what all terms from a place of that order on can add, or are reckoned to."""
    rows: np.ndarray
    """[n, 4 * width] the bounds of small postings by value and length code."""
    factors: np.ndarray
    """[n] the terms' weights in units."""
    loads: np.ndarray
    """[n + 1] how many postings all terms from a place of the order on have in a window on average."""

    @classmethod
    def of_size(cls, terms: int, width: int) -> Bounds:
        return cls(
            np.empty(terms, np.int64),
            np.empty(terms + 1, np.int64),
            np.empty((terms, width), np.uint16),
            np.empty(terms),
            np.empty(terms + 1),
        )


@still
def bound_terms(terms, tops, w, expected, bounds):
    """Bound a query's terms, whose large lists have values up to `tops`; gives the unit, 0 if there are no runs and
    -1 for damage.

    `expected`: the share of what terms can add at most that is reckoned with where they are left out at first: 1 to be
    exact.
    """
    n, width = terms.weights.size, w.small.shape[1] // SMALL
    order, factors, total = bounds.order, bounds.factors, 0.0
    for i in range(n):
        s, most = terms.spaces[i], 0.0
        if terms.runs[i, 0] < terms.runs[i, 1]:
            most = terms.weights[i] * w.small[s, (SMALL - 1) * width]
        if terms.runs[i, 2] < terms.runs[i, 3]:
            most = max(most, terms.weights[i] * weight_of(tops[i], 0, w, s))
        if not 0 < most < np.inf and terms.runs[i, 1] - terms.runs[i, 0] + terms.runs[i, 3] - terms.runs[i, 2] > 0:
            return -1.0
        factors[i] = most
        total += most
        j = i
        while j > 0 and factors[order[j - 1]] < most:  # sorted by insertion: queries are short
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    unit = total / (ROOM - 2 * n)
    if unit == 0:
        return unit
    bounds.rest[n] = 0
    bounds.rest[0] = ROOM
    for j in range(n - 1, 0, -1):
        bounds.rest[j] = bounds.rest[j + 1] + np.int64(expected * factors[order[j]] / unit) + 1
    for i in range(n):
        factors[i] = terms.weights[i] / unit
        if terms.runs[i, 0] < terms.runs[i, 1]:
            _bound_small(factors[i], w.small[terms.spaces[i]], bounds.rows[i])
    return unit


@still
def _bound_small(factor, weights, row):
    for x in range(weights.size):
        row[x] = np.uint16(factor * weights[x]) + np.uint16(1)


@still
def _width_bits(w):
    """The binary logarithm of the number of length codes that bounds tell apart."""
    bits = 0
    while SMALL << bits < w.small.shape[1]:
        bits += 1
    return np.uint64(bits)


@still
def add_small_run(sums, postings, a, z, codes, base, row, w, s):
    """Add a run of small postings to the sums of its window.

    The heart of the engine: everything else sees to it that this loop runs seldom and undisturbed.
    """
    shift, last, base = _width_bits(w), np.uint64(w.last_codes[s]), np.uint64(base)
    for x in range(np.uint64(a), np.uint64(z)):
        posting = np.uint64(postings[x])
        offset = posting & np.uint64(OFFSET)
        code = min(np.uint64(codes[base + offset]), last)
        sums[offset] += row[((posting >> np.uint64(BITS)) << shift) | code]


@still
def add_large_run(sums, lists, a, z, codes, base, factor, w, s):
    """Add a run of large postings to the sums of its window."""
    if w.linear[s]:
        scaled = factor * w.constants[s, 0]
        for x in range(np.uint64(a), np.uint64(z)):
            offset = lists.postings[x] & np.uint16(OFFSET)
            sums[offset] += np.uint16(scaled * np.float64(lists.values[x])) + np.uint16(1)
    else:
        last, base = np.uint64(w.norms.shape[1] - 1), np.uint64(base)
        for x in range(np.uint64(a), np.uint64(z)):
            offset = np.uint64(lists.postings[x]) & np.uint64(OFFSET)
            code = min(np.uint64(codes[base + offset]), last)
            sums[offset] += np.uint16(factor * weight_of(np.float64(lists.values[x]), code, w, s)) + np.uint16(1)


@still
def add_few(sums, lists, a, z, codes, base, factor, w, s, offsets):
    """Add a run's bounds for a few documents of its window only, each looked up."""
    last = w.norms.shape[1] - 1
    for j in range(offsets.size):
        x = find_posting(lists.postings, a, z, offsets[j])
        if (lists.postings[x] & np.uint16(OFFSET)) == offsets[j]:
            code = min(np.int64(codes[base + np.int64(offsets[j])]), last)
            sums[offsets[j]] += np.uint16(factor * weight_of(value_at(lists, x), code, w, s)) + np.uint16(1)


@still
def _largest(sums, a):
    most = np.uint16(0)
    for x in range(CHUNK):
        value = sums[a + np.uint64(x)]
        most = value if value > most else most
    return most


@still
def reaching(sums, words, threshold, found):
    """Put the places of all sums that reach a threshold into `found`; gives how many they are.

    `words` are the sums, four at a time. Where a sum is at or above the threshold, adding what the threshold lacks to
    32,768 sets its highest bit, which no sum has by itself. `found` has room for one place more than there are sums.
    """
    n = np.uint64(0)
    lacking = np.uint64(TOP_BIT - threshold) * np.uint64(0x0001000100010001)
    tops = np.uint64(0x8000800080008000)
    for chunk in range(np.uint64(0), np.uint64(sums.size), np.uint64(CHUNK)):
        if _largest(sums, chunk) < threshold:
            continue
        for x in range(chunk >> np.uint64(2), (chunk + np.uint64(CHUNK)) >> np.uint64(2)):
            marks = (words[x] + lacking) & tops
            if marks:
                place = x << np.uint64(2)
                for lane in range(np.uint64(4)):  # without branches, which could not be foreseen
                    found[n] = place + lane
                    n += (marks >> (np.uint64(16) * lane + np.uint64(15))) & np.uint64(1)
    return np.int64(n)


@still
def clear(sums):
    for x in range(sums.size):
        sums[x] = 0
