"""The top k so far, and merging more documents into it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.kernels import njit

DIGIT = 256


class TopK(NamedTuple):
    """Scores, descending, and places of documents; arrays of size k, of which the first `count` are filled."""

    scores: np.ndarray
    places: np.ndarray


class SortScratch(NamedTuple):
    """Memory to sort and merge in."""

    scores: np.ndarray
    keys: np.ndarray
    order: np.ndarray
    other: np.ndarray
    counts: np.ndarray
    topk: TopK

    @classmethod
    def of_size(cls, candidates: int, k: int) -> SortScratch:
        scores = np.empty(candidates, np.float32)
        return cls(
            scores,
            scores.view(np.uint32),
            np.empty(candidates, np.uint32),
            np.empty(candidates, np.uint32),
            np.empty(DIGIT, np.int64),
            TopK(np.empty(k, np.float32), np.empty(k, np.int64)),
        )


@njit
def _sort_digit(keys, order, other, counts, shift, size):
    """One round of a radix sort: `order` by one digit of the keys into `other`, otherwise left as it is."""
    counts[:] = 0
    for j in range(size):
        counts[(keys[order[j]] >> shift) & np.uint32(DIGIT - 1)] += 1
    total = 0
    for d in range(DIGIT):
        counts[d], total = total, total + counts[d]
    for j in range(size):
        d = (keys[order[j]] >> shift) & np.uint32(DIGIT - 1)
        other[counts[d]] = order[j]
        counts[d] += 1


@njit
def _sort_descending(scratch, size):
    """Put the places of the first scores into `scratch.order`, highest first, equal ones as they come.

    The bits of a float, read as a whole number, sort like the float once negative ones are turned around.
    """
    keys, order, other, counts = scratch.keys, scratch.order, scratch.other, scratch.counts
    for j in range(size):
        bits = keys[j]
        keys[j] = bits if bits >> np.uint32(31) else ~bits & np.uint32(0x7FFFFFFF)
        order[j] = j
    _sort_digit(keys, order, other, counts, np.uint32(0), size)
    _sort_digit(keys, other, order, counts, np.uint32(8), size)
    _sort_digit(keys, order, other, counts, np.uint32(16), size)
    _sort_digit(keys, other, order, counts, np.uint32(24), size)


@njit
def merge_topk(topk, count, scores, documents, first, scratch):
    """Merge new documents, ascending and all later than those so far, into the top k; returns how many it has now.

    `first`: the place of document 0 among those of all segments.
    """
    size, k = scores.size, topk.scores.size
    for j in range(size):
        scratch.scores[j] = np.float32(scores[j]) + np.float32(0)  # turns -0.0 into 0.0
    _sort_descending(scratch, size)
    old, new, to = 0, 0, 0
    while to < k and (old < count or new < size):
        j = scratch.order[new] if new < size else 0
        if old < count and (new == size or topk.scores[old] >= np.float32(scores[j])):
            scratch.topk.scores[to], scratch.topk.places[to] = topk.scores[old], topk.places[old]
            old += 1
        else:
            scratch.topk.scores[to], scratch.topk.places[to] = scores[j], first + np.int64(documents[j])
            new += 1
        to += 1
    for j in range(to):
        topk.scores[j], topk.places[j] = scratch.topk.scores[j], scratch.topk.places[j]
    return to
