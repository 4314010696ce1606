"""Vectors as they are stored: in 32 or 16 bits a number, in 8 with a factor for each vector, or in residual codes.

A vector in 8 bits is scaled by its own largest component, independently of all others: segments are merged without
loss, and no scale depends on documents that may be deleted later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vizsla.engine.arrays import aligned
from vizsla.engine.residual_rows import ResidualRows
from vizsla.errors import VizslaError
from vizsla.kernels import njit, njit_fastsum

MAX_CODE = 127
"""The largest number of a vector in 8 bits, before it is scaled."""
_FEW = 4  # up to this many queries, vectors in 8 or 16 bits are multiplied without widening them first
_SHIFT = np.float32(2.0**112)


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Vectors in 8 bits; `rows[which]` are the numbers they stand for.

    >>> rows = convert_rows(np.array([[1.0, -0.5, 0.0]], np.float32), "sq8")
    >>> rows.codes.tolist(), rows[:].round(2).tolist()
    ([[127, -64, 0]], [[1.0, -0.5, 0.0]])
    """

    codes: np.ndarray
    """[n, dimensions] whole numbers from -127 to 127."""
    scales: np.ndarray
    """[n] what a code of 1 stands for."""

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: slice | np.ndarray | int) -> np.ndarray:
        rows: np.ndarray = self.codes[which].astype(np.float32) * self.scales[which, ..., None]
        return rows

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return self.codes.ndim if len(self.scales) == len(self.codes) else 0

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


VectorRows = np.ndarray | ScaledRows | ResidualRows
"""[n, dimensions] vectors as they are stored."""


def storage_of(rows: VectorRows) -> str:
    """The type vectors are stored in: float32, float16, sq8, or residual2 and residual4 for token vectors."""
    if isinstance(rows, ResidualRows):
        return f"residual{rows.codec.bits}"
    return "sq8" if isinstance(rows, ScaledRows) else str(rows.dtype)


def convert_rows(rows: VectorRows, storage: str) -> VectorRows:
    """The same vectors, stored in another type: float32, float16 or sq8."""
    if storage_of(rows) == storage:
        return rows
    plain = rows[:].astype(np.float32, copy=False)
    if storage == "sq8":
        scales = np.abs(plain).max(axis=1, initial=0.0) / np.float32(MAX_CODE)
        parts = np.divide(plain, scales[:, None], out=np.zeros_like(plain), where=scales[:, None] > 0)
        return ScaledRows(np.clip(np.rint(parts), -MAX_CODE, MAX_CODE).astype(np.int8), scales.astype(np.float32))
    with np.errstate(over="ignore"):
        converted: np.ndarray = plain.astype(storage)
    if not np.isfinite(converted).all():
        raise VizslaError(f"some numbers of these vectors are too large for {storage}; store them in float32 or sq8")
    return converted


def select_rows(rows: VectorRows, a: int, z: int, which: np.ndarray) -> VectorRows:
    """The rows from a to z that a mask names, as they are stored."""
    if isinstance(rows, ScaledRows):
        return ScaledRows(rows.codes[a:z][which], rows.scales[a:z][which])
    if isinstance(rows, ResidualRows):
        return rows.select(a, z, which)
    selected: np.ndarray = rows[a:z][which]
    return selected


def products(queries: np.ndarray, rows: VectorRows, a: int, z: int) -> np.ndarray:
    """[queries, z - a] inner products with the rows from a to z, in 32 bits."""
    scores: np.ndarray
    if isinstance(rows, ScaledRows):
        codes = rows.codes[a:z]
        if len(queries) <= _FEW:
            scores = np.empty((len(queries), z - a), np.float32)
            _multiply(queries, codes, scores)
        else:
            scores = queries @ wide_rows(rows, a, z).T
        scores *= rows.scales[a:z]
        return scores
    if isinstance(rows, np.ndarray) and rows.dtype == np.float16 and len(queries) <= _FEW:
        scores, bits = np.empty((len(queries), z - a), np.float32), aligned((rows.shape[1],), np.uint32)
        codes = np.ascontiguousarray(rows[a:z]).view(np.uint16)
        _multiply_halves(queries, codes, bits, bits.view(np.float32), scores)
        return scores
    scores = queries @ wide_rows(rows, a, z).T
    return scores


@njit_fastsum("const float32[:,:], const int8[:,:], float32[:,:]")
def _multiply(queries, codes, out):
    for i in range(codes.shape[0]):
        for q in range(queries.shape[0]):
            total = np.float32(0)
            for j in range(codes.shape[1]):
                total += queries[q, j] * np.float32(codes[i, j])
            out[q, i] = total


def wide_rows(rows: VectorRows, a: int, z: int) -> np.ndarray:
    """The rows from a to z in 32 bits; those in 8 bits before they are scaled."""
    if isinstance(rows, ScaledRows):
        return rows.codes[a:z].astype(np.float32)
    if isinstance(rows, ResidualRows):
        return rows[a:z]
    chunk = rows[a:z]
    return _widened(chunk) if chunk.dtype == np.float16 else chunk.astype(np.float32, copy=False)


def _widened(chunk: np.ndarray) -> np.ndarray:
    """Finite 16-bit numbers in 32 bits: numpy's own way takes several times as long."""
    bits = np.empty(chunk.shape, np.uint32)
    flat = bits.reshape(-1)
    widen(np.ascontiguousarray(chunk).view(np.uint16).reshape(-1), flat, flat.view(np.float32))
    return bits.view(np.float32)


@njit("const uint16[:], uint32[:], float32[:]")
def widen(narrow, bits, wide):
    """Convert float16 to float32: shift sign and fraction, and multiply by 2 ** 112 to correct the exponent.

    `bits` and `wide` are the same memory. This must not be an `njit_fastsum` kernel: the factor must not be reordered.
    """
    for i in range(narrow.size):
        sign, rest = np.uint32(narrow[i] & np.uint16(0x8000)), np.uint32(narrow[i] & np.uint16(0x7FFF))
        bits[i] = (sign << np.uint32(16)) | (rest << np.uint32(13))
    for i in range(narrow.size):
        wide[i] *= _SHIFT


@njit_fastsum("const float32[:,:], const uint16[:,:], uint32[:], float32[:], float32[:,:]")
def _multiply_halves(queries, codes, bits, row, out):
    """Products with vectors in 16 bits; `bits` and `row`: the same memory for one of them."""
    for i in range(codes.shape[0]):
        widen(codes[i], bits, row)
        for q in range(queries.shape[0]):
            total = np.float32(0)
            for j in range(row.size):
                total += queries[q, j] * row[j]
            out[q, i] = total
