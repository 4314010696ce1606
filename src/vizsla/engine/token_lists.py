"""For each centroid the documents that have a token near it: where a search of token vectors looks first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, read_only
from vizsla.kernels import njit


@dataclass(frozen=True, eq=False)
class TokenLists:
    """Inverted lists of documents by centroid."""

    centroids: np.ndarray
    """[centroids, width] 16- or 32-bit floats."""
    assigned: np.ndarray
    """[tokens] the number of each token's centroid."""
    starts: np.ndarray
    """[centroids + 1] where the list of each centroid begins."""
    documents: np.ndarray
    """The documents of all lists, ascending in each."""

    @classmethod
    def build(cls, centroids: np.ndarray, assigned: np.ndarray, token_starts: np.ndarray) -> TokenLists:
        """The lists of documents whose tokens begin at `token_starts`."""
        if len(assigned) and int(assigned.max()) >= len(centroids):
            raise DamagedSegmentError
        begins, memory = read_only(np.asarray(token_starts, np.int64)), np.empty(len(centroids), np.int64)
        starts, own = np.zeros(len(centroids) + 1, np.int64), read_only(assigned)
        documents = np.empty(_count(own, begins, memory, starts), np.uint32)
        _invert(own, begins, memory, starts[:-1].copy(), documents)
        return cls(centroids, assigned, starts, documents)

    @property
    def nbytes(self) -> int:
        """What the lists and centroids take; the centroids of tokens may belong to the vectors."""
        return self.starts.nbytes + self.documents.nbytes + self.centroids.nbytes

    def fits(self, tokens: int, width: int) -> bool:
        """Whether the arrays can belong together, by their shapes and ends alone."""
        return (
            self.centroids.ndim == 2
            and self.centroids.shape[1] == width
            and len(self.assigned) == tokens
            and self.starts.shape == (len(self.centroids) + 1,)
            and int(self.starts[0]) == 0
            and int(self.starts[-1]) == len(self.documents)
        )

    @cached_property
    def wide_centroids(self) -> np.ndarray:
        """The centroids in 32 bits; damaged lists are refused once, here."""
        if (np.diff(self.starts) < 0).any():
            raise DamagedSegmentError
        return self.centroids.astype(np.float32)

    def are_those_of(self, token_starts: np.ndarray) -> bool:
        """Whether the lists are those of documents whose tokens begin at `token_starts`; makes them again."""
        try:
            again = TokenLists.build(self.centroids, self.assigned, token_starts)
        except DamagedSegmentError:
            return False
        return np.array_equal(again.starts, self.starts) and np.array_equal(again.documents, self.documents)


@njit("const uint16[:], const int64[:], int64[:], int64[:]")
def _count(assigned, token_starts, last, starts):
    """Put into zeros where each list begins, and return how long all are; `last`: memory for each centroid.

    A document that has several tokens near a centroid is in its list once.
    """
    last[:] = -1
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                starts[c + 1] += 1
    for c in range(last.size):
        starts[c + 1] += starts[c]
    return starts[last.size]


@njit("const uint16[:], const int64[:], int64[:], int64[:], uint32[:]")
def _invert(assigned, token_starts, last, free, documents):
    """Fill the lists by a counting sort; `free`: where each goes on, `last`: memory for each centroid."""
    last[:] = -1
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                documents[free[c]] = d
                free[c] += 1
