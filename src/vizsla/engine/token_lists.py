"""For each centroid the documents that have a token near it: where a search of token vectors looks first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError
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
        starts, documents = _invert(assigned, np.asarray(token_starts, np.int64), len(centroids))
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


@njit
def _invert(assigned, token_starts, centroids):
    """Lists by a counting sort; a document that has several tokens near a centroid is in its list once."""
    starts = np.zeros(centroids + 1, np.int64)
    last = np.full(centroids, -1, np.int64)
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                starts[c + 1] += 1
    for c in range(centroids):
        starts[c + 1] += starts[c]
    free = starts[:-1].copy()
    documents = np.empty(starts[-1], np.uint32)
    last[:] = -1
    for d in range(token_starts.size - 1):
        for t in range(token_starts[d], token_starts[d + 1]):
            c = assigned[t]
            if last[c] != d:
                last[c] = d
                documents[free[c]] = d
                free[c] += 1
    return starts, documents
