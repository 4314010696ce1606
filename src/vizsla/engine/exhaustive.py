"""Search by scoring every document that shares a term with the query: slow, simple, and for weights of any sign."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import RANGE_BITS, RANGE_SIZE
from vizsla.engine.scores import TERMS, add_exactly
from vizsla.engine.segment import SEGMENTS
from vizsla.engine.stop_flag import must_stop
from vizsla.engine.topk import merge_topk
from vizsla.engine.weighting import WEIGHTINGS
from vizsla.kernels import njit


class RangeScratch(NamedTuple):
    """Memory for the scores of a range of documents."""

    sums: np.ndarray
    touched: np.ndarray
    scores: np.ndarray
    documents: np.ndarray

    @classmethod
    def make(cls) -> RangeScratch:
        size = RANGE_SIZE
        return cls(np.zeros(size), np.zeros(size, np.bool_), np.empty(size), np.empty(size, np.uint32))


@njit(
    *(
        f"{segment}, {TERMS}, {WEIGHTINGS}, RangeScratch(float64[:], bool[:], float64[:], uint32[:]), "
        "SortScratch(float32[:], uint32[:], uint32[:], uint32[:], int64[:], TopK(float32[:], int64[:])), "
        "TopK(float32[:], int64[:]), int64, uint8[:]"
        for segment in SEGMENTS
    )
)
def search_exhaustively(segment, terms, w, memory, scratch, topk, count, stop):
    """Merge a segment's documents into the top k; returns how many it has then, or -1 for damage or if stopped.

    `memory`: its sums and marks are zeros before, and after unless it returns -1.
    """
    sums, touched, scores, documents = memory.sums, memory.touched, memory.scores, memory.documents
    for doc_range in range(segment.lengths.shape[1] >> RANGE_BITS):
        sound = not must_stop(stop)
        for i in range(terms.weights.size):
            s, weight, blocks = terms.spaces[i], terms.weights[i], terms.blocks[i]
            codes = segment.lengths[s]
            sound &= add_exactly(segment.small, blocks[0], blocks[1], doc_range, codes, weight, w, s, sums, touched)
            sound &= add_exactly(segment.large, blocks[2], blocks[3], doc_range, codes, weight, w, s, sums, touched)
        size = 0
        for offset in range(RANGE_SIZE):
            document = (doc_range << RANGE_BITS) + offset
            if touched[offset]:
                sound &= document < segment.documents
                if sound and (segment.allowed.size == 0 or segment.allowed[document]):
                    sound &= sums[offset] != -np.inf  # deleted documents may have lengths that no live one has
                    documents[size], scores[size] = document, sums[offset]
                    size += 1
        if not sound:
            return -1
        count = merge_topk(topk, count, scores[:size], documents, segment.first, scratch)
        sums[:] = 0.0
        touched[:] = False
    return count
