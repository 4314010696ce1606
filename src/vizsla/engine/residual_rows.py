"""Token vectors in 2 or 4 bits a number: the nearest centroid, and how far each number is from it.

A number's distance from its centroid falls into one of 4 or 16 buckets, and the bucket's mean stands for it. The sum
of both is scaled to the length that the vector had. Buckets are learnt from a sample of distances: they begin as
quantiles, and are moved until each cut lies between two means (Lloyd).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError
from vizsla.engine.centroids import NearestCentroids
from vizsla.engine.threads import in_threads, processors
from vizsla.kernels import njit
from vizsla.lazy import cached_property

BITS = (2, 4)
_SAMPLED = 1 << 18  # distances that buckets are learnt from
_ITERATIONS = 30
_BLOCK = 1 << 18  # vectors that are encoded together
_ENCODED = 1024  # vectors that a thread gets at least


@dataclass(frozen=True, eq=False)
class ResidualCodec:
    """The centroids and bucket means that vectors are encoded with."""

    centroids: np.ndarray
    """[centroids, width] 16- or 32-bit floats."""
    means: np.ndarray
    """[4 or 16] the residual that each code stands for, ascending."""

    @classmethod
    def learn(cls, centroids: np.ndarray, sample: np.ndarray, bits: int) -> ResidualCodec:
        """Centroids with the buckets of the distances that some vectors have from them."""
        rows = np.asarray(sample, np.float32)
        held = narrow(centroids)
        wide = held.astype(np.float32)
        distances = (rows - wide[NearestCentroids(wide)(rows)]).reshape(-1)
        if len(distances) > _SAMPLED:
            distances = np.random.default_rng(0).choice(distances, _SAMPLED, replace=False)
        return cls(held, _bucket_means(np.sort(distances.astype(np.float64)), 1 << bits))

    @property
    def bits(self) -> int:
        return 2 if len(self.means) == 4 else 4

    def same_as(self, other: ResidualCodec) -> bool:
        """Whether codes mean the same in both."""
        return self is other or (
            np.array_equal(self.means, other.means) and np.array_equal(self.centroids, other.centroids)
        )

    @cached_property
    def nearest(self) -> NearestCentroids:
        """Finds the nearest centroids."""
        return NearestCentroids(self.wide_centroids)

    @cached_property
    def wide_centroids(self) -> np.ndarray:
        """The centroids in 32 bits."""
        return self.centroids.astype(np.float32)

    @cached_property
    def byte_table(self) -> np.ndarray:
        """[256, numbers in a byte] the residuals that a byte stands for."""
        shifts = np.arange(0, 8, self.bits)
        table: np.ndarray = self.means[(np.arange(256)[:, None] >> shifts) & ((1 << self.bits) - 1)]
        return table

    def encode(self, rows: np.ndarray) -> ResidualRows:
        """Vectors in codes."""
        return self.encode_blocks(lambda a, z: rows[a:z], len(rows))

    def encode_blocks(self, read: Callable[[int, int], np.ndarray], count: int) -> ResidualRows:
        """Vectors in codes, read from a to z some at a time."""
        assigned, scales = np.empty(count, np.int64), np.zeros(count, np.float32)
        codes = np.zeros((count, code_bytes(self.centroids.shape[1], self.bits)), np.uint8)
        wide, cuts = self.wide_centroids, (self.means[1:] + self.means[:-1]) / np.float32(2)
        for a in range(0, count, _BLOCK):
            part = slice(a, min(a + _BLOCK, count))
            block = np.ascontiguousarray(read(a, part.stop), np.float32)
            assigned[part] = self.nearest(block)
            own = block, assigned[part], codes[part], scales[part]

            def encode(first: int, last: int, own: tuple[np.ndarray, ...] = own) -> None:
                rows, near, packed, lengths = (array[first:last] for array in own)
                _encode(rows, near, wide, cuts, self.means, self.bits, packed, lengths)

            in_threads(encode, len(block), processors(), _ENCODED)
        return ResidualRows(self, assigned.astype(number_dtype(len(self.centroids))), codes, scales)


@dataclass(frozen=True, eq=False)
class ResidualRows:
    """Vectors in 2 or 4 bits a number; `rows[a:z]` are the numbers they stand for, in 32 bits."""

    codec: ResidualCodec
    assigned: np.ndarray
    """[n] the number of each vector's centroid."""
    codes: np.ndarray
    """[n, bytes] the buckets of its numbers, packed, the first number in the lowest bits."""
    scales: np.ndarray
    """[n] the factor that gives it its length."""

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: slice | np.ndarray | int) -> np.ndarray:
        if isinstance(which, int):
            row: np.ndarray = self[which : which + 1][0]
            return row
        assigned, codes, scales = self.assigned[which], self.codes[which], self.scales[which]
        out = np.empty((len(assigned), self.shape[1]), np.float32)
        codec = self.codec
        if not _decode(assigned, codes, scales, codec.wide_centroids, codec.means, codec.bits, out):
            raise DamagedSegmentError
        return out

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.codes), self.codec.centroids.shape[1]

    @property
    def ndim(self) -> int:
        centroids, bits = self.codec.centroids, self.codec.bits
        fits = centroids.ndim == 2 and len(self.assigned) == len(self.scales) == len(self.codes)
        fits = fits and self.codes.shape[1:] == (code_bytes(centroids.shape[1], bits),)
        return 2 if fits and len(self.codec.means) == 1 << bits and (len(centroids) > 0 or len(self) == 0) else 0

    @property
    def nbytes(self) -> int:
        return self.assigned.nbytes + self.codes.nbytes + self.scales.nbytes

    @cached_property
    def max_norm(self) -> float:
        """No vector is longer than this."""
        if not len(self):
            return 0.0
        centroids = self.codec.centroids.astype(np.float64)
        longest = np.sqrt(np.einsum("ij,ij->i", centroids, centroids).max(initial=0.0))
        farthest = np.abs(self.codec.means.astype(np.float64)).max() * np.sqrt(centroids.shape[1])
        return float(self.scales.max()) * float(longest + farthest) * (1 + 1e-5)

    def select(self, a: int, z: int, which: np.ndarray) -> ResidualRows:
        """The rows from a to z that a mask names, as they are stored."""
        return ResidualRows(self.codec, self.assigned[a:z][which], self.codes[a:z][which], self.scales[a:z][which])


def code_bytes(width: int, bits: int) -> int:
    """How many bytes the codes of a vector take."""
    return -(-width * bits // 8)


def number_dtype(centroids: int) -> type[np.uint16] | type[np.uint32]:
    """The numbers of centroids have two bytes where they fit, else four."""
    return np.uint16 if centroids <= 1 << 16 else np.uint32


def narrow(centroids: np.ndarray) -> np.ndarray:
    """Centroids in 16 bits, unless their numbers are too large or too small for it."""
    highest = float(np.abs(centroids).max(initial=0.0))
    return centroids.astype(np.float16 if 2.0**-6 <= highest < 2.0**15 else np.float32)


def _bucket_means(distances: np.ndarray, count: int) -> np.ndarray:
    """[count] bucket means that quantise sorted numbers with little squared error (Lloyd)."""
    if len(distances) == 0:
        return np.zeros(count, np.float32)
    sums = np.append(0, np.cumsum(distances))
    means = np.quantile(distances, (np.arange(count) + 0.5) / count)
    for _ in range(_ITERATIONS):
        ends = np.concatenate([[0], np.searchsorted(distances, (means[1:] + means[:-1]) / 2), [len(distances)]])
        sizes = np.diff(ends)
        means = np.where(sizes > 0, np.diff(sums[ends]) / np.maximum(sizes, 1), means)
    return np.sort(means).astype(np.float32)


@njit(
    "const float32[:,:], const int64[:], const float32[:,:], const float32[:], const float32[:], int64, uint8[:,:], "
    "float32[:]"
)
def _encode(rows, assigned, centroids, cuts, means, bits, codes, scales):
    per_byte = 8 // bits
    for t in range(rows.shape[0]):
        own, stands_for = 0.0, 0.0
        centroid = centroids[assigned[t]]
        for j in range(rows.shape[1]):
            distance = rows[t, j] - centroid[j]
            code = 0
            for x in range(cuts.size):
                code += distance > cuts[x]
            codes[t, j // per_byte] |= np.uint8(code << (bits * (j % per_byte)))
            decoded = np.float64(centroid[j] + means[code])
            own += np.float64(rows[t, j]) * np.float64(rows[t, j])
            stands_for += decoded * decoded
        scales[t] = np.sqrt(own / stands_for) if stands_for > 0 else 0.0


@njit("const uint16[:], const uint8[:,:], const float32[:], const float32[:,:], const float32[:], int64, float32[:,:]")
def _decode(assigned, codes, scales, centroids, means, bits, out):
    """Decode vectors into `out`; False if one refers to a centroid that does not exist."""
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for t in range(assigned.size):
        if assigned[t] >= centroids.shape[0]:
            return False
        for j in range(out.shape[1]):
            code = (codes[t, j // per_byte] >> np.uint8(bits * (j % per_byte))) & mask
            out[t, j] = (centroids[assigned[t], j] + means[code]) * scales[t]
    return True
