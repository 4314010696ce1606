"""Products of stored vectors with a few query vectors in 32 bits, by one thread: a tile of them at a time.

For so few query vectors this is as fast as BLAS, whose own threads would compete with those of the search.
"""

from __future__ import annotations

import numpy as np

from vizsla.kernels import njit_fastsum

TILE = 4
"""Query vectors per tile; `padded` adds vectors of zeros up to a multiple of it."""


def padded(query: np.ndarray) -> np.ndarray:
    """Query vectors in 32 bits, filled up with zeros to whole tiles."""
    full = np.zeros((-(-len(query) // TILE) * TILE, query.shape[1]), np.float32)
    full[: len(query)] = query
    return full


@njit_fastsum("const float32[:,:], const float32[:,:], float32[:,:]")
def multiply(rows, query, out):
    """Put the products of rows with padded query vectors into `out` [rows, query vectors]: two rows by four vectors."""
    for t in range(0, rows.shape[0] - 1, 2):
        one, two = rows[t], rows[t + 1]
        for q in range(0, query.shape[0], 4):
            q0, q1, q2, q3 = query[q], query[q + 1], query[q + 2], query[q + 3]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0)
            for j in range(query.shape[1]):
                x, y = one[j], two[j]
                a0 += x * q0[j]
                a1 += x * q1[j]
                a2 += x * q2[j]
                a3 += x * q3[j]
                b0 += y * q0[j]
                b1 += y * q1[j]
                b2 += y * q2[j]
                b3 += y * q3[j]
            out[t, q], out[t, q + 1], out[t, q + 2], out[t, q + 3] = a0, a1, a2, a3
            out[t + 1, q], out[t + 1, q + 1], out[t + 1, q + 2], out[t + 1, q + 3] = b0, b1, b2, b3
    if rows.shape[0] % 2:
        last = rows.shape[0] - 1
        for q in range(query.shape[0]):
            total = np.float32(0)
            for j in range(query.shape[1]):
                total += rows[last, j] * query[q, j]
            out[last, q] = total
    return True
