"""Exact scores, in 64-bit floats and in the order of the query's terms: the definition every fast path must meet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import (
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    block_bounds,
    find_block,
    find_posting,
    is_bitmap,
    value_in_bitmap,
)
from vizsla.kernels import njit_no_alloc

PROBE = 150  # postings read in order in the time it takes to look one document up in a block


class Terms(NamedTuple):
    """The terms of a query in the order they are summed, and where a segment has their blocks."""

    weights: np.ndarray
    spaces: np.ndarray
    blocks: np.ndarray
    """[n, 4] where the small blocks start and end, and the large ones."""


class ScoringScratch(NamedTuple):
    """Memory to score documents in."""

    scores: np.ndarray
    offsets: np.ndarray
    """[RANGE_SIZE] where in a range the documents are."""
    places: np.ndarray
    """[RANGE_SIZE] all zero between ranges: for each place which of the documents it is, from 1."""

    @classmethod
    def of_size(cls, size: int) -> ScoringScratch:
        return cls(np.empty(size), np.empty(RANGE_SIZE, np.uint16), np.zeros(RANGE_SIZE, np.uint16))


@njit_no_alloc
def weight_of(value, code, w, s):
    """The weight of a stored value in a document with a length code; see `Weighting`."""
    if w.linear[s]:
        return w.constants[s, 0] * value
    n = w.norms[s, code]
    return w.constants[s, 0] * (value + w.constants[s, 1] * n) / (value + w.constants[s, 2] * n) + w.constants[s, 3]


@njit_no_alloc
def value_at(lists, x):
    """What the posting at x stores."""
    if lists.values.size:
        return np.float64(lists.values[x])
    return np.float64((lists.postings[x] >> np.uint16(RANGE_BITS)) + np.uint16(1))


@njit_no_alloc
def score_value(value, place, codes, weight, w, s):
    """The part of a value in the score of the document at a place; negative infinity if it is damaged."""
    code = codes[place]
    if code >= w.norms.shape[1] and not w.linear[s]:
        return -np.inf
    return weight * weight_of(value, code, w, s)


@njit_no_alloc
def score_posting(lists, x, codes, base, weight, w, s):
    """The part of one posting in its document's score; negative infinity if it is damaged."""
    place = base + np.int64(lists.postings[x] & np.uint16(OFFSET_MASK))
    return score_value(value_at(lists, x), place, codes, weight, w, s)


@njit_no_alloc
def _score_list(lists, first, last, doc_range, codes, weight, w, s, offsets, places, sums):
    """Add one term's part to the scores of some documents of a range.

    Few documents are looked up; for many the whole block is read, and `places` says which postings are theirs.
    """
    r = find_block(lists.ranges, first, last, doc_range)
    if r == last or lists.ranges[r] != doc_range:
        return True
    a, z = block_bounds(lists, r)
    if z < a:
        return False
    postings, base = lists.postings, np.int64(doc_range) << RANGE_BITS
    if is_bitmap(lists, a, z):
        for j in range(offsets.size):
            value = value_in_bitmap(postings, a, z, offsets[j])
            if value:
                sums[j] += score_value(np.float64(value), base + np.int64(offsets[j]), codes, weight, w, s)
    elif np.int64(offsets.size) * PROBE < z - a:
        for j in range(offsets.size):
            x = find_posting(postings, a, z, offsets[j])
            if (postings[x] & np.uint16(OFFSET_MASK)) == offsets[j]:
                sums[j] += score_posting(lists, x, codes, base, weight, w, s)
    else:
        for x in range(np.uint64(a), np.uint64(z)):
            j = places[postings[x] & np.uint16(OFFSET_MASK)]
            if j:
                sums[np.int64(j) - 1] += score_posting(lists, x, codes, base, weight, w, s)
    return True


@njit_no_alloc
def score_documents(small, large, lengths, terms, w, documents, scoring):
    """Score ascending documents exactly; False if there is damage."""
    a = 0
    offsets, places = scoring.offsets, scoring.places
    while a < documents.size:
        doc_range = np.int64(documents[a]) >> RANGE_BITS
        z = a
        while z < documents.size and np.int64(documents[z]) >> RANGE_BITS == doc_range:
            offsets[z - a] = documents[z] & np.uint32(OFFSET_MASK)
            places[offsets[z - a]] = z - a + 1
            scoring.scores[z] = 0.0
            z += 1
        some, sums = offsets[: z - a], scoring.scores[a:z]
        sound = True
        for i in range(terms.weights.size):
            s, weight, blocks = terms.spaces[i], terms.weights[i], terms.blocks[i]
            for kind in range(2):
                lists, first, last = small if kind == 0 else large, blocks[2 * kind], blocks[2 * kind + 1]
                sound &= _score_list(lists, first, last, doc_range, lengths[s], weight, w, s, some, places, sums)
        for j in range(z - a):
            places[some[j]] = 0
            sound &= np.isfinite(sums[j])
        if not sound:
            return False
        a = z
    return True


@njit_no_alloc
def add_exactly(lists, first, last, doc_range, codes, weight, w, s, sums, touched):
    """Add a term's weights in a range to its sums and mark the documents it has; False if the block is damaged.

    The sum of a document with an invalid length code becomes negative infinity.
    """
    r = find_block(lists.ranges, first, last, doc_range)
    if r == last or lists.ranges[r] != doc_range:
        return True
    a, z = block_bounds(lists, r)
    base = np.int64(doc_range) << RANGE_BITS
    if is_bitmap(lists, a, z):
        for offset in range(RANGE_SIZE):
            value = value_in_bitmap(lists.postings, a, z, offset)
            if value:
                sums[offset] += score_value(np.float64(value), base + offset, codes, weight, w, s)
                touched[offset] = True
        return True
    for x in range(a, z):
        offset = lists.postings[x] & np.uint16(OFFSET_MASK)
        sums[offset] += score_posting(lists, x, codes, base, weight, w, s)
        touched[offset] = True
    return z >= a
