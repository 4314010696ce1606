"""Token vectors of every type as the kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import read_only
from vizsla.engine.residual_rows import ResidualRows
from vizsla.engine.vector_rows import ScaledRows, VectorRows, widen
from vizsla.kernels import njit

_FLOATS, _HALVES, _SCALED, _RESIDUAL = 0, 1, 2, 3


class StoredRows(NamedTuple):
    """Token vectors as they are stored; arrays that a storage type does not use are empty."""

    kind: int
    starts: np.ndarray
    """[documents + 1] where the tokens of each document begin."""
    tokens: int
    floats: np.ndarray
    halves: np.ndarray
    """16-bit floats, as bits."""
    codes: np.ndarray
    """Numbers in 8 bits."""
    packed: np.ndarray
    """Residuals in 2 or 4 bits."""
    scales: np.ndarray
    table: np.ndarray
    """[256, numbers in a byte] the residuals that a byte stands for."""
    centroids: np.ndarray
    """In 32 bits."""
    assigned: np.ndarray


STORED_ROWS = (
    "StoredRows(int64, const int64[:], int64, const float32[:,:], const uint16[:,:], const int8[:,:], "
    "const uint8[:,:], const float32[:], const float32[:,:], const float32[:,:], const uint16[:])"
)
"""Its type for kernels."""


def stored_rows(vectors: VectorRows, starts: np.ndarray) -> StoredRows:
    """The arrays of token vectors for the kernels."""
    none = np.zeros((0, 1), np.float32)
    floats, halves, codes, packed = none, none.astype(np.uint16), none.astype(np.int8), none.astype(np.uint8)
    scales, table, centroids, assigned = none[:, 0], none, none, np.zeros(0, np.uint16)
    if isinstance(vectors, ScaledRows):
        kind, codes, scales = _SCALED, vectors.codes, vectors.scales
    elif isinstance(vectors, ResidualRows):
        kind, packed, scales, assigned = _RESIDUAL, vectors.codes, vectors.scales, vectors.assigned
        table, centroids = vectors.codec.byte_table, vectors.codec.wide_centroids
    elif vectors.dtype == np.float16:
        kind, halves = _HALVES, np.ascontiguousarray(vectors).view(np.uint16)
    else:
        kind, floats = _FLOATS, vectors
    arrays: tuple[np.ndarray, ...] = (floats, halves, codes, packed, scales, table, centroids, assigned)
    return StoredRows(kind, read_only(starts), len(vectors), *map(read_only, arrays))


@njit
def read_row(rows, t, bits, row):
    """Put a token's vector into `row`; `bits` is the same memory as whole numbers. False if its centroid is missing."""
    if rows.kind == _HALVES:
        widen(rows.halves[t], bits, row)
    elif rows.kind == _FLOATS:
        for j in range(row.size):
            row[j] = rows.floats[t, j]
    elif rows.kind == _SCALED:
        for j in range(row.size):
            row[j] = np.float32(rows.codes[t, j]) * rows.scales[t]
    else:
        if rows.assigned[t] >= rows.centroids.shape[0]:
            return False
        _read_residual(rows.centroids[rows.assigned[t]], rows.packed[t], rows.table, rows.scales[t], row)
    return True


@njit
def _read_residual(centroid, codes, table, scale, row):
    """The sum of a centroid and the residuals that codes stand for, scaled; inner loops have a fixed length."""
    whole = row.size // table.shape[1]
    if table.shape[1] == 4:
        for b in range(whole):
            residual = table[codes[b]]
            for i in range(4):
                row[4 * b + i] = (centroid[4 * b + i] + residual[i]) * scale
    else:
        for b in range(whole):
            residual = table[codes[b]]
            for i in range(2):
                row[2 * b + i] = (centroid[2 * b + i] + residual[i]) * scale
    for j in range(whole * table.shape[1], row.size):
        row[j] = (centroid[j] + table[codes[whole], j - whole * table.shape[1]]) * scale
