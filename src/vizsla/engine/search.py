"""Exact top k over segments, by accumulation in windows of documents.

The score of a document is the sum, in 64-bit floats and in the order of the query's terms, of query weight
times document weight, rounded to 32 bits at the end. A hit shares at least one term with the query, even one of
weight 0. Hits come by descending score; equal scores by ascending insertion number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine.segment import DamagedSegmentError, Segment
from vizsla.engine.weighting import Weightings
from vizsla.kernels import kernel

WINDOW = 8192  # documents whose accumulators are summed up together: 64 KiB, inside the second-level cache
CHUNK = 64
SAFELY_POSITIVE = 1e-200  # below it a product could vanish in 64-bit floats, and a hit with it


@dataclass(frozen=True, eq=False)
class Query:
    """Term numbers, the namespace each belongs to, and their weights, in the order they are summed."""

    terms: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Hits:
    """Insertion numbers and scores, best first."""

    numbers: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)


@kernel
def _add_list(sums, base, limit, at, end, documents, values, codes, weight, linear, constants, norms):
    """Add one term's postings below `limit` to the window's sums; gives where the next window goes on.

    A document before the window or a length code beyond the table is damage; it must not be followed.
    """
    scale, shift, slope, floor = constants[0], constants[1], constants[2], constants[3]
    if linear:
        while at < end and documents[at] < limit:
            d = np.int64(documents[at])
            if d < base:
                return -1
            sums[d - base] += weight * (scale * values[at])
            at += 1
    else:
        while at < end and documents[at] < limit:
            d = np.int64(documents[at])
            code = codes[d]
            if d < base or code >= norms.size:
                return -1
            v = np.float64(values[at])
            n = norms[code]
            sums[d - base] += weight * (scale * (v + shift * n) / (v + slope * n) + floor)
            at += 1
    return at


@kernel
def _better(score, number, than_score, than_number):
    return score > than_score or (score == than_score and number < than_number)


@kernel
def _sift_up(scores, numbers, i):
    while i > 0:
        parent = (i - 1) // 2
        if not _better(scores[parent], numbers[parent], scores[i], numbers[i]):
            return
        scores[parent], scores[i] = scores[i], scores[parent]
        numbers[parent], numbers[i] = numbers[i], numbers[parent]
        i = parent


@kernel
def _sift_down(scores, numbers):
    i, k = 0, scores.size
    while True:
        child = 2 * i + 1
        if child >= k:
            return
        if child + 1 < k and _better(scores[child], numbers[child], scores[child + 1], numbers[child + 1]):
            child += 1
        if not _better(scores[i], numbers[i], scores[child], numbers[child]):
            return
        scores[child], scores[i] = scores[i], scores[child]
        numbers[child], numbers[i] = numbers[i], numbers[child]
        i = child


@kernel
def _offer(scores, numbers, size, score, number):
    """Offer a hit to the heap of the best, its worst on top; gives how many it holds."""
    if size < scores.size:
        scores[size] = score
        numbers[size] = number
        _sift_up(scores, numbers, size)
        return size + 1
    if _better(score, number, scores[0], numbers[0]):
        scores[0] = score
        numbers[0] = number
        _sift_down(scores, numbers)
    return size


@kernel
def _next_window(starts, ends, documents):
    """The first document of the next window that any list reaches into; -1 when all lists are done."""
    first = np.int64(-1)
    for i in range(starts.size):
        if starts[i] < ends[i]:
            d = np.int64(documents[starts[i]])
            if first < 0 or d < first:
                first = d
    return first if first < 0 else first - first % WINDOW


@kernel
def _collect(sums, touched, signed, base, count, numbers, allowed, best_scores, best_numbers, size):
    """Offer a window's documents to the heap. Chunks whose best sum cannot enter are passed over."""
    for a in range(0, count, CHUNK):
        z = min(a + CHUNK, count)
        if not signed:
            most = sums[a]
            for j in range(a, z):
                most = max(most, sums[j])
            if most == 0 or (size == best_scores.size and np.float32(most) < best_scores[0]):
                continue
        for j in range(a, z):
            if (touched[j] if signed else sums[j] > 0) and (allowed.size == 0 or allowed[base + j]):
                score = np.float32(sums[j])
                size = _offer(best_scores, best_numbers, size, score, numbers[base + j])
    return size


@kernel
def _search_segment(
    starts, ends, weights, spaces, signed, numbers, lengths, documents, values, linear, constants, norms,
    allowed, sums, touched, best_scores, best_numbers, size,
):  # fmt: skip
    """Offer every document of a segment that shares a term with the query to the heap of the best.

    Gives how many the heap holds, or -1 when the segment is damaged.
    """
    base = _next_window(starts, ends, documents)
    while base >= 0:
        limit = min(base + WINDOW, numbers.size)
        if limit <= base:
            return -1
        for i in range(starts.size):
            s = spaces[i]
            at = _add_list(
                sums, base, limit, starts[i], ends[i], documents, values, lengths[s],
                weights[i], linear[s], constants[s], norms[s],
            )  # fmt: skip
            if at < 0:
                return -1
            if signed:
                for x in range(starts[i], at):
                    touched[documents[x] - base] = True
            starts[i] = at
        count = limit - base
        size = _collect(sums, touched, signed, base, count, numbers, allowed, best_scores, best_numbers, size)
        sums[:count] = 0
        if signed:
            touched[:count] = False
        after = _next_window(starts, ends, documents)
        if 0 <= after <= base:
            return -1
        base = after
    return size


_ALL = np.zeros(0, np.bool_)


def search(
    segments: Sequence[Segment],
    query: Query,
    weightings: Weightings,
    k: int,
    allowed: Sequence[np.ndarray | None] | None = None,
) -> Hits:
    """The best k documents over all segments, the same as by scoring every document.

    `allowed`: for each segment a mask of its documents, or None where all may be found. Document
    weights are positive. With a query weight of 0 or less a sum of 0 or less can be a hit, so documents are told from
    the untouched by a mark of their own.
    """
    if not np.isfinite(query.weights).all():
        raise ValueError("query weights must be finite numbers")
    terms, spaces, weights = query.terms, query.spaces, query.weights
    k = min(k, sum(map(len, segments)))
    scores, numbers = np.empty(k, np.float32), np.empty(k, np.int64)
    sums, touched = np.zeros(WINDOW), np.zeros(WINDOW, np.bool_)
    signed = bool((weights < SAFELY_POSITIVE).any())
    size = 0
    for i, segment in enumerate(segments):
        starts, ends = segment.lists(terms)
        mask = allowed[i] if allowed is not None else None
        if k == 0 or not (ends > starts).any():
            continue
        size = _search_segment(
            starts, ends, weights, spaces, signed, segment.numbers, segment.lengths, segment.documents,
            segment.values, weightings.linear, weightings.constants, weightings.norms,
            _ALL if mask is None else mask, sums, touched, scores, numbers, size,
        )  # fmt: skip
        if size < 0:
            raise DamagedSegmentError
    order = np.lexsort((numbers[:size], -scores[:size]))
    return Hits(numbers[order], scores[order])
