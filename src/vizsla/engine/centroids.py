"""Centroids of token vectors: learnt by k-means, and the nearest one of each vector.

If there are many centroids, a vector is not compared with all of them. The centroids are clustered around a few coarse
centroids, and a vector is only compared with those near its coarse centroid. The result is nearly always the nearest
centroid; where it is not, the residual is a little larger.
"""

from __future__ import annotations

import math

import numpy as np

from vizsla.engine.threads import in_threads, processors
from vizsla.kernels import njit

MAX_CENTROIDS = 1 << 18
_PER_CENTROID = 32  # vectors that a centroid is learnt from
_ITERATIONS = 6
_BLOCK = 1 << 14  # vectors that are compared together
_FEW = 2048  # centroids up to which all are compared
_NEAR = 1024  # centroids that are compared where there are more
_CHOSEN = 512  # vectors that a thread gets at least
_SEED = 0


def default_centroids(tokens: int) -> int:
    """The number of centroids for `tokens` vectors: a power of two near 16 sqrt(tokens), with 8 vectors or more each.

    >>> [default_centroids(n) for n in (0, 100, 100_000, 12_000_000)]
    [1, 8, 4096, 32768]
    """
    wanted = min(16 * math.sqrt(tokens), tokens / 8, MAX_CENTROIDS)
    return 1 << int(math.log2(max(wanted, 1)))


def sample_places(tokens: int, centroids: int) -> np.ndarray:
    """The positions of the sample that centroids are learnt from, ascending; deterministic."""
    wanted = max(_PER_CENTROID * centroids, 1 << 14)
    if tokens <= wanted:
        return np.arange(tokens)
    return np.sort(np.random.default_rng(_SEED).choice(tokens, wanted, replace=False))


def learn_centroids(sample: np.ndarray, count: int) -> np.ndarray:
    """[at most count, width] the centroids of some vectors by k-means; the same ones every time.

    If there are no more vectors than centroids, the vectors are the centroids. A centroid that loses all its vectors is
    replaced by a random vector.
    """
    rows = np.ascontiguousarray(sample, np.float32)
    if len(rows) <= count:
        return rows.copy()
    rng = np.random.default_rng(_SEED)
    centroids = rows[np.sort(rng.choice(len(rows), count, replace=False))]
    for _ in range(_ITERATIONS):
        sums, counts = np.zeros(centroids.shape, np.float64), np.zeros(count, np.int64)
        _add_rows(rows, nearest_centroids(rows, centroids), sums, counts)
        lost = np.flatnonzero(counts == 0)
        centroids = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        centroids[lost] = rows[rng.choice(len(rows), len(lost), replace=len(lost) > len(rows))]
    return centroids


@njit("const float32[:,:], const int64[:], float64[:,:], int64[:]")
def _add_rows(rows, assigned, sums, counts):
    for t in range(rows.shape[0]):
        counts[assigned[t]] += 1
        for j in range(rows.shape[1]):
            sums[assigned[t], j] += np.float64(rows[t, j])


def nearest_centroids(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """[vectors] the number of the nearest centroid of each."""
    return NearestCentroids(centroids)(rows)


class NearestCentroids:
    """Finds the nearest centroids of vectors; what depends on the centroids alone is computed once."""

    def __init__(self, centroids: np.ndarray) -> None:
        self._centroids = np.ascontiguousarray(centroids, np.float32)
        self._coarse: np.ndarray | None = None
        if len(centroids) > _FEW:
            rng = np.random.default_rng(_SEED)
            groups = 1 << round(math.log2(math.sqrt(len(centroids))))
            self._coarse = self._centroids[np.sort(rng.choice(len(centroids), groups, replace=False))]
            for _ in range(_ITERATIONS):
                own = _nearest(self._centroids, self._coarse)
                sums, counts = np.zeros(self._coarse.shape, np.float64), np.zeros(groups, np.int64)
                _add_rows(self._centroids, own, sums, counts)
                self._coarse = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], self._coarse)
                self._coarse = self._coarse.astype(np.float32)
            distances = self._coarse @ self._centroids.T - _half_squares(self._centroids)
            self._near = np.argpartition(-distances, _NEAR, axis=1)[:, :_NEAR]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """[vectors] the number of the nearest centroid of each."""
        rows = np.ascontiguousarray(rows, np.float32)
        if self._coarse is None:
            return _nearest(rows, self._centroids)
        assigned = np.empty(len(rows), np.int64)
        cells = _nearest(rows, self._coarse)
        order = np.argsort(cells, kind="stable")
        ends = np.searchsorted(cells[order], np.arange(len(self._coarse) + 1))
        for cell in np.flatnonzero(np.diff(ends)).tolist():
            own, near = order[ends[cell] : ends[cell + 1]], self._near[cell]
            assigned[own] = near[_nearest(rows[own], self._centroids[near])]
        return assigned


def _nearest(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The nearest centroid of each vector, compared with all."""
    assigned, half = np.empty(len(rows), np.int64), _half_squares(centroids)
    for a in range(0, len(rows), _BLOCK):
        products, own = rows[a : a + _BLOCK] @ centroids.T, assigned[a : a + _BLOCK]

        def choose(first: int, last: int, products: np.ndarray = products, own: np.ndarray = own) -> None:
            some = products[first:last]
            some -= half
            some.argmax(axis=1, out=own[first:last])

        in_threads(choose, len(own), processors(), _CHOSEN)
    return assigned


def _half_squares(centroids: np.ndarray) -> np.ndarray:
    """[centroids] half their squared norms: x . c minus this is highest for the centroid c that is nearest to x."""
    half: np.ndarray = np.einsum("ij,ij->i", centroids, centroids) / np.float32(2)
    return half
