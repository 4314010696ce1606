"""Search by scoring every document that shares a term with the query: slow, simple, and for weights of any sign."""

from __future__ import annotations

import numpy as np

from vizsla.engine.lists import BITS, WINDOW
from vizsla.engine.ranking import merge_best
from vizsla.engine.scores import add_exactly
from vizsla.kernels import kernel


@kernel
def search_exhaustively(segment, terms, w, ranking, best, count):
    """Bring the best up to date with a segment; gives how many there are, or -1 for damage."""
    sums, touched = np.zeros(WINDOW), np.zeros(WINDOW, np.bool_)
    scores, documents = np.empty(WINDOW), np.empty(WINDOW, np.uint32)
    for window in range(segment.lengths.shape[1] >> BITS):
        sound = True
        for i in range(terms.weights.size):
            s, weight, runs = terms.spaces[i], terms.weights[i], terms.runs[i]
            codes = segment.lengths[s]
            sound &= add_exactly(segment.small, runs[0], runs[1], window, codes, weight, w, s, sums, touched)
            sound &= add_exactly(segment.large, runs[2], runs[3], window, codes, weight, w, s, sums, touched)
        size = 0
        for offset in range(WINDOW):
            document = (window << BITS) + offset
            if touched[offset]:
                sound &= document < segment.documents
                if sound and (segment.allowed.size == 0 or segment.allowed[document]):
                    sound &= sums[offset] != -np.inf  # dead documents may have lengths no living one has
                    documents[size], scores[size] = document, sums[offset]
                    size += 1
        if not sound:
            return -1
        count = merge_best(best, count, scores[:size], documents, segment.first, ranking)
        sums[:] = 0.0
        touched[:] = False
    return count
