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
    find_four,
    find_posting,
    is_bitmap,
    number_at,
    value_in_bitmap,
)
from vizsla.kernels import njit, njit_inlined

PROBE = 3  # postings read in order in the time it takes to look one document up among others


class Terms(NamedTuple):
    """The terms of a query in the order they are summed, and where a segment has their blocks."""

    weights: np.ndarray
    spaces: np.ndarray
    blocks: np.ndarray
    """[n, 4] where the small blocks start and end, and the large ones."""


TERMS = "Terms(const float64[:], const int64[:], const int64[:,:])"
"""Its type for kernels."""


class ScoringScratch(NamedTuple):
    """Memory to score documents in."""

    scores: np.ndarray
    ends: np.ndarray
    """For the first document of each range, the place of the first document of the next range."""
    places: np.ndarray
    """[RANGE_SIZE] which of the documents was last seen at a place of a range."""

    @classmethod
    def of_size(cls, size: int) -> ScoringScratch:
        return cls(np.empty(size), np.empty(size, np.uint32), np.zeros(RANGE_SIZE, np.uint32))


@njit
def weight_of(value, code, w, s):
    """The weight of a stored value in a document with a length code; see `Weighting`."""
    if w.linear[s]:
        return w.constants[s, 0] * value
    n = w.norms[s, code]
    return w.constants[s, 0] * (value + w.constants[s, 1] * n) / (value + w.constants[s, 2] * n) + w.constants[s, 3]


@njit
def value_at(lists, x):
    """What the posting at x stores."""
    if lists.values.size:
        return number_at(lists.values, lists.kind, x)
    return np.float64((lists.postings[x] >> np.uint16(RANGE_BITS)) + np.uint16(1))


@njit
def score_value(value, place, codes, weight, w, s):
    """The contribution of a value to the score of the document at a position; negative infinity if it is damaged."""
    code = codes[place]
    if code >= w.norms.shape[1] and not w.linear[s]:
        return -np.inf
    return weight * weight_of(value, code, w, s)


@njit
def score_posting(lists, x, codes, base, weight, w, s):
    """The contribution of one posting to its document's score; negative infinity if it is damaged."""
    place = base + np.int64(lists.postings[x] & np.uint16(OFFSET_MASK))
    return score_value(value_at(lists, x), place, codes, weight, w, s)


@njit
def _part_of(value, code, term):
    """The same as `score_value`, but the constants of the term are read once and not for every posting."""
    weight, linear, norms, k0, k1, k2, k3 = term
    if linear:
        return weight * (k0 * value)
    if code >= norms.size:
        return -np.inf
    n = norms[code]
    return weight * (k0 * (value + k1 * n) / (value + k2 * n) + k3)


@njit
def _offset_of(document):
    return np.uint16(document & np.uint32(OFFSET_MASK))


@njit
def _score_found(lists, x, codes, term, documents, j, sums):
    """Add the contribution of the posting at x to a document's score, if the posting is of that document."""
    if (lists.postings[x] & np.uint16(OFFSET_MASK)) == _offset_of(documents[j]):
        sums[j] += _part_of(value_at(lists, x), codes[documents[j]], term)


@njit_inlined
def _look_up(lists, a, z, codes, term, documents, j, end, sums):
    """Add a block's contribution to the scores of the documents j .. end - 1, by looking up each document."""
    postings = lists.postings
    while j + 4 <= end:
        o, p, q, r = find_four(
            postings, a, z, _offset_of(documents[j]), _offset_of(documents[j + 1]), _offset_of(documents[j + 2]),
            _offset_of(documents[j + 3]),
        )  # fmt: skip
        _score_found(lists, o, codes, term, documents, j, sums)
        _score_found(lists, p, codes, term, documents, j + 1, sums)
        _score_found(lists, q, codes, term, documents, j + 2, sums)
        _score_found(lists, r, codes, term, documents, j + 3, sums)
        j += 4
    while j < end:
        x = find_posting(postings, a, z, _offset_of(documents[j]))
        _score_found(lists, x, codes, term, documents, j, sums)
        j += 1


@njit
def _read_through(lists, a, z, codes, term, documents, j, end, places, sums):
    """Add a block's contribution to the scores of the documents j .. end - 1, by reading all its postings."""
    for i in range(j, end):
        places[_offset_of(documents[i])] = i
    for x in range(np.uint64(a), np.uint64(z)):
        place = np.int64(places[lists.postings[x] & np.uint16(OFFSET_MASK)])
        if j <= place < end:
            _score_found(lists, x, codes, term, documents, place, sums)


@njit_inlined
def _score_list(lists, first, last, codes, weight, w, s, documents, ends, places, sums):
    """Add one term's part to the scores of ascending documents; False if there is damage.

    In each range few documents are looked up, and for many the whole block is read.
    """
    j, k = np.int64(0), w.constants[s]
    term = weight, w.linear[s], w.norms[s], k[0], k[1], k[2], k[3]
    r = first
    while r < last and j < documents.size:
        doc_range, end = np.int64(documents[j]) >> RANGE_BITS, np.int64(ends[j])
        while r < last and lists.ranges[r] < doc_range:
            r += 1
        if r < last and lists.ranges[r] == doc_range:
            a, z = block_bounds(lists, r)
            if z < a:
                return False
            if is_bitmap(lists, a, z):
                for i in range(j, end):
                    value = value_in_bitmap(lists.postings, a, z, _offset_of(documents[i]))
                    if value:
                        sums[i] += _part_of(np.float64(value), codes[documents[i]], term)
            elif (end - j) * PROBE < z - a:
                _look_up(lists, a, z, codes, term, documents, j, end, sums)
            else:
                _read_through(lists, a, z, codes, term, documents, j, end, places, sums)
        j = end
    return True


@njit
def _score_part(small, large, lengths, terms, w, documents, ends, places, sums):
    """Score as many documents as `ends` has room for."""
    first = 0
    for j in range(documents.size):
        sums[j] = 0.0
        if documents[j] >> np.uint32(RANGE_BITS) != documents[first] >> np.uint32(RANGE_BITS):
            ends[first] = j
            first = j
    ends[first] = documents.size
    sound = True
    for i in range(terms.weights.size):
        s, weight, blocks = terms.spaces[i], terms.weights[i], terms.blocks[i]
        for kind in range(2):
            lists, a, z = small if kind == 0 else large, blocks[2 * kind], blocks[2 * kind + 1]
            sound &= _score_list(lists, a, z, lengths[s], weight, w, s, documents, ends, places, sums)
    for j in range(documents.size):
        sound &= np.isfinite(sums[j])
    return sound


@njit
def score_documents(small, large, lengths, terms, w, documents, scoring):
    """Score ascending documents exactly; False if there is damage."""
    size, ends = max(scoring.ends.size, 1), scoring.ends
    for a in range(0, documents.size, size):
        part, sums = documents[a : a + size], scoring.scores[a : a + size]
        if not _score_part(small, large, lengths, terms, w, part, ends, scoring.places, sums):
            return False
    return True


@njit
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
