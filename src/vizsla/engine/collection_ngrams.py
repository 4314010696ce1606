"""The n-grams of a whole collection: the suffix arrays of its segments together, without deleted documents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.engine.suffix_array import Occurrences, SuffixArray
from vizsla.lazy import cached_property

Place = tuple[Occurrences, ...]
"""Where an n-gram occurs: its range in the suffix array of each segment."""


class CollectionNgrams:
    """Counts n-grams and says how they go on. The same whatever segments the documents are in.

    >>> arrays = [SuffixArray.of([[5, 6, 0], [5, 7, 0]]).built(), SuffixArray.of([[5, 6, 0]]).built()]
    >>> ngrams = CollectionNgrams(arrays, [np.array([True, False]), None])
    >>> place = ngrams.find([5])
    >>> ngrams.count(place), np.flatnonzero(ngrams.next_tokens(place, 9)).tolist()
    (2, [6])
    """

    def __init__(self, arrays: Sequence[SuffixArray], alive: Sequence[np.ndarray | None], tokens: int = 0) -> None:
        """`alive`: which documents of each segment live, None for all. `tokens`: how many tokens these have."""
        self._arrays, self._alive, self.tokens = arrays, alive, tokens

    @cached_property
    def _dead(self) -> list[np.ndarray | None]:
        """The ranks of the places in deleted documents, for each segment."""
        pairs = zip(self._arrays, self._alive, strict=True)
        return [None if mask is None or mask.all() else array.ranks_of(np.flatnonzero(~mask)) for array, mask in pairs]

    @property
    def everywhere(self) -> Place:
        """The n-gram of no tokens."""
        return tuple(array.all for array in self._arrays)

    def find(self, ngram: Sequence[int] | np.ndarray, within: Place | None = None) -> Place:
        """Where an n-gram occurs, or one that continues another by these tokens."""
        pairs = zip(self._arrays, within or self.everywhere, strict=True)
        return tuple(array.find(ngram, found) for array, found in pairs)

    def count(self, place: Place) -> int:
        """How often an n-gram occurs in living documents."""
        return sum(a.count(found, dead) for a, found, dead in zip(self._arrays, place, self._dead, strict=True))

    def next_tokens(self, place: Place, size: int) -> np.ndarray:
        """[size] which tokens follow an n-gram in a living document."""
        allowed = np.zeros(size, np.bool_)
        for array, found, dead in zip(self._arrays, place, self._dead, strict=True):
            array.mark_next(found, allowed, dead)
        return allowed
