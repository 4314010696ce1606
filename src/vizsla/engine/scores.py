"""Exact scores, in 64-bit floats and in the order of the query's terms: the definition every fast path must meet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.lists import BITS, OFFSET, WINDOW
from vizsla.kernels import still

PROBE = 150  # postings read in order in the time it takes to look one document up in a run


class Terms(NamedTuple):
    """The terms of a query in the order they are summed, and where a segment has their runs."""

    weights: np.ndarray
    spaces: np.ndarray
    runs: np.ndarray
    """[n, 4] where the small runs start and end, and the large ones."""


class Scoring(NamedTuple):
    """Memory to score documents in."""

    scores: np.ndarray
    offsets: np.ndarray
    """[WINDOW] where in a window the documents are."""
    places: np.ndarray
    """[WINDOW] all zero between windows: for each place which of the documents it is, from 1."""

    @classmethod
    def of_size(cls, size: int) -> Scoring:
        return cls(np.empty(size), np.empty(WINDOW, np.uint16), np.zeros(WINDOW, np.uint16))


@still
def weight_of(value, code, w, s):
    """The weight of a stored value in a document with a length code; see `Weighting`."""
    if w.linear[s]:
        return w.constants[s, 0] * value
    n = w.norms[s, code]
    return w.constants[s, 0] * (value + w.constants[s, 1] * n) / (value + w.constants[s, 2] * n) + w.constants[s, 3]


@still
def value_at(lists, x):
    """What the posting at x stores."""
    if lists.values.size:
        return np.float64(lists.values[x])
    return np.float64((lists.postings[x] >> np.uint16(BITS)) + np.uint16(1))


@still
def find_run(windows, first, last, window):
    """The first of the runs first .. last - 1 that is not before a window, or `last`."""
    if window < last - first and windows[first + window] == window:  # as where a list leaves no window out
        return first + window
    while first < last:
        middle = (first + last) >> 1
        if windows[middle] < window:
            first = middle + 1
        else:
            last = middle
    return first


@still
def find_posting(postings, a, z, offset):
    """The last posting of a run, a .. z - 1, whose place in the window is not beyond `offset`, or the first.

    No branch depends on the postings, so that several searches overlap in the processor.
    """
    at, size = np.uint64(a), np.uint64(z - a)
    while size > np.uint64(1):
        half = size >> np.uint64(1)
        at += half if (postings[at + half] & np.uint16(OFFSET)) <= offset else np.uint64(0)
        size -= half
    return at


@still
def run_bounds(lists, r):
    """Where a run's postings start and end; the end comes before the start if it is damaged."""
    a, z = np.int64(lists.starts[r]), np.int64(lists.starts[r + 1])
    return (a, z) if a <= z <= lists.postings.size else (np.int64(0), np.int64(-1))


@still
def _score_posting(lists, x, codes, base, weight, w, s):
    """The part of one posting in its document's score; negative infinity if it is damaged."""
    code = codes[base + np.int64(lists.postings[x] & np.uint16(OFFSET))]
    if code >= w.norms.shape[1] and not w.linear[s]:
        return -np.inf
    return weight * weight_of(value_at(lists, x), code, w, s)


@still
def _score_list(lists, first, last, window, codes, weight, w, s, offsets, places, sums):
    """Add one term's part to the scores of some documents of a window.

    Few documents are looked up; for many the run is read through, and `places` tells which posting is of one.
    """
    r = find_run(lists.windows, first, last, window)
    if r == last or lists.windows[r] != window:
        return True
    a, z = run_bounds(lists, r)
    if z < a:
        return False
    postings, base = lists.postings, np.int64(window) << BITS
    if np.int64(offsets.size) * PROBE < z - a:
        for j in range(offsets.size):
            x = find_posting(postings, a, z, offsets[j])
            if (postings[x] & np.uint16(OFFSET)) == offsets[j]:
                sums[j] += _score_posting(lists, x, codes, base, weight, w, s)
    else:
        for x in range(np.uint64(a), np.uint64(z)):
            j = places[postings[x] & np.uint16(OFFSET)]
            if j:
                sums[np.int64(j) - 1] += _score_posting(lists, x, codes, base, weight, w, s)
    return True


@still
def score_documents(small, large, lengths, terms, w, documents, scoring):
    """Score ascending documents exactly; False if there is damage."""
    a = 0
    offsets, places = scoring.offsets, scoring.places
    while a < documents.size:
        window = np.int64(documents[a]) >> BITS
        z = a
        while z < documents.size and np.int64(documents[z]) >> BITS == window:
            offsets[z - a] = documents[z] & np.uint32(OFFSET)
            places[offsets[z - a]] = z - a + 1
            scoring.scores[z] = 0.0
            z += 1
        some, sums = offsets[: z - a], scoring.scores[a:z]
        sound = True
        for i in range(terms.weights.size):
            s, weight, runs = terms.spaces[i], terms.weights[i], terms.runs[i]
            sound &= _score_list(small, runs[0], runs[1], window, lengths[s], weight, w, s, some, places, sums)
            sound &= _score_list(large, runs[2], runs[3], window, lengths[s], weight, w, s, some, places, sums)
        for j in range(z - a):
            places[some[j]] = 0
            sound &= np.isfinite(sums[j])
        if not sound:
            return False
        a = z
    return True


@still
def add_exactly(lists, first, last, window, codes, weight, w, s, sums, touched):
    """Add a term's weights in a window to its sums and mark the documents it has; False if the run is damaged.

    The sum of a document with a length code that is none becomes negative infinity.
    """
    r = find_run(lists.windows, first, last, window)
    if r == last or lists.windows[r] != window:
        return True
    a, z = run_bounds(lists, r)
    sound = z >= a
    for x in range(a, z):
        offset = lists.postings[x] & np.uint16(OFFSET)
        sums[offset] += _score_posting(lists, x, codes, np.int64(window) << BITS, weight, w, s)
        touched[offset] = True
    return sound
