"""Numbers of sorted terms, looked up in bulk: ten million terms take 16 bytes each, and not a hundred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_CHUNK = 100_000  # terms that are held as texts at once


class TermNumbers:
    """Finds the places of terms in an Arrow array by their hashes, and compares the texts.

    >>> import pyarrow
    >>> TermNumbers(pyarrow.array(["bark", "cat", "dog"])).of(["dog", "bird", "bark"]).tolist()
    [2, -1, 0]
    """

    def __init__(self, terms: Any, hashed: Callable[[str], int] = hash) -> None:
        """`terms`: all different. `hashed`: gives a number of 64 bits for a text."""
        self._terms = terms
        self._hashed = hashed
        hashes = np.zeros(len(terms), np.int64)
        for first in range(0, len(terms), _CHUNK):
            some = terms.slice(first, _CHUNK).to_pylist()
            hashes[first : first + len(some)] = [hashed(term) for term in some]
        self._places = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._places]
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        alike = np.unique(self._places[np.concatenate([equal, equal + 1])]).tolist()
        self._alike: dict[str, int] = {terms[place].as_py(): place for place in alike}

    def of(self, terms: Sequence[str]) -> np.ndarray:
        """The place of each term; -1 for those that are not there."""
        found = np.full(len(terms), -1, np.int64)
        if len(self._hashes) == 0 or not terms:
            return found
        hashes = np.array([self._hashed(term) for term in terms], np.int64)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        known = np.flatnonzero(self._hashes[at] == hashes)
        places = self._places[at[known]]
        for row, place, text in zip(known.tolist(), places.tolist(), self._terms.take(places).to_pylist(), strict=True):
            if text == terms[row]:
                found[row] = place
            elif terms[row] in self._alike:
                found[row] = self._alike[terms[row]]
        return found
