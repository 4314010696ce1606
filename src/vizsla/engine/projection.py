"""Random projection of sparse rows: every term is a random vector of signs, derived from a hash of the term.

Two such directions of n signs are nearly orthogonal. So inner products are unchanged on average, with an error of about
the product of both lengths over the square root of n (Achlioptas, 2003). There is no table: the signs are the bits of
a hash, the same in every process and on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from vizsla.kernels import njit

BITS = 64
"""Signs that one hash gives; widths are multiples of it."""
_SIGNS = np.float32(1) - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
"""[256, 8] the signs that a byte stands for, so that eight numbers are added at once."""


def term_keys(terms: Iterable[str]) -> np.ndarray:
    """A 64-bit hash of each term, from which its signs are drawn."""
    joined = b"".join(blake2b(t.encode("utf-8", "surrogatepass"), digest_size=8).digest() for t in terms)
    return np.frombuffer(joined, "<u8").astype(np.uint64)


def projected(pointers: np.ndarray, keys: np.ndarray, values: np.ndarray, width: int) -> np.ndarray:
    """[rows, width] of rows in CSR form, `keys` being those of the terms that the `values` belong to.

    >>> rows = projected(np.array([0, 1, 2]), term_keys(["dog", "cat"]), np.array([2.0, 3.0]), 64)
    >>> (rows @ rows.T).round(3).diagonal().tolist()
    [4.0, 9.0]
    """
    out = np.zeros((len(pointers) - 1, width), np.float32)
    _project(pointers.astype(np.int64), keys, (values / np.sqrt(width)).astype(np.float32), out)
    return out


@njit
def _mixed(key):
    """The bits of a number, mixed (the last steps of splitmix64)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@njit("const int64[:], const uint64[:], const float32[:], float32[:,:]")
def _project(pointers, keys, values, out):
    words = out.shape[1] // BITS
    for row in range(len(pointers) - 1):
        for entry in range(pointers[row], pointers[row + 1]):
            value = values[entry]
            for word in range(words):
                bits = _mixed(keys[entry] + np.uint64(word + 1) * np.uint64(0x9E3779B97F4A7C15))
                for byte in range(8):
                    signs = _SIGNS[(bits >> np.uint64(8 * byte)) & np.uint64(255)]
                    first = word * BITS + 8 * byte
                    for i in range(8):
                        out[row, first + i] += signs[i] * value
