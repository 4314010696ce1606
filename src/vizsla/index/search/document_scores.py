"""Passages scored together with their documents: what a document scores as a whole is added to each of its passages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vizsla.engine import Query, TopDocuments
from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.searcher import Searcher
from vizsla.lazy import cached_property

_DEEPER = 4  # how many times deeper the next search is if more passages may be among the best


class DocumentScores:
    """What documents score for a query by the parts of a model that read whole documents.

    These parts have one row for each document, its first passage, and so the statistics of documents.
    """

    def __init__(self, searcher: Searcher, bound: BoundModel, query: Query) -> None:
        """`bound`: the parts that read whole documents; `query`: what they encoded."""
        self._searcher = searcher
        self._bound = bound
        self._query = query

    def of(self, passages: np.ndarray) -> np.ndarray:
        """The score of the document of each passage, given by its insertion number; 0 for one that is not found."""
        firsts = self._searcher.rows.numbers
        own = firsts[np.searchsorted(firsts, passages, side="right") - 1]
        different, places = np.unique(own, return_inverse=True)
        found = self._searcher.top_k_among(self._query, self._bound, different, len(different))
        scores = np.zeros(len(different), np.float32)
        scores[np.searchsorted(different, found.numbers)] = found.scores
        return scores[places]

    @cached_property
    def highest(self) -> float:
        """The highest score of any document."""
        (best,) = self._searcher.top_k([self._query], self._bound, 1)
        return max(0.0, float(best.scores[0])) if len(best) else 0.0

    def added_to(self, rank: Callable[[int], TopDocuments]) -> Callable[[int], TopDocuments]:
        """What gives the best n passages by the sum, from what gives them by their own scores alone.

        It looks at more passages until no other can be among the best, even one of the best document.
        """
        most = max(self._searcher.snapshot.stored_count, 1)

        def best(n: int) -> TopDocuments:
            depth = min(max(2 * n, 100), most)
            while True:
                found = rank(depth)
                scores = found.scores.astype(np.float32) + self.of(found.numbers)
                order = np.lexsort((found.numbers, -scores))[:n]
                is_all = len(found) < depth or depth == most
                if is_all or scores[order[-1]] > found.scores[-1] + np.float32(self.highest):
                    return TopDocuments(found.numbers[order], scores[order])
                depth = min(depth * _DEEPER, most)

        return best
