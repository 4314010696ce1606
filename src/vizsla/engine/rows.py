"""Dense vectors as they are stored: in 32 or 16 bits a number, or in 8 with a factor for each vector.

A vector in 8 bits is scaled by its own largest number, so that it needs no other to be read: segments are merged
without a loss, and nothing is learned from documents that may go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.kernels import reordered, still

MOST_CODE = 127
"""The largest number of a vector in 8 bits, before it is scaled."""
_FEW = 4  # questions up to which fewer bits are multiplied as they are read
_SHIFT = np.float32(2.0**112)


@dataclass(frozen=True, eq=False)
class Scaled:
    """Vectors in 8 bits; `rows[which]` are the numbers they stand for.

    >>> rows = stored(np.array([[1.0, -0.5, 0.0]], np.float32), "sq8")
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
        found: np.ndarray = self.codes[which].astype(np.float32) * self.scales[which, ..., None]
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return self.codes.ndim if len(self.scales) == len(self.codes) else 0

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


Rows = np.ndarray | Scaled
"""[n, dimensions] vectors in the form they are stored in."""


def form_of(rows: Rows) -> str:
    """The name of the form vectors are stored in."""
    return "sq8" if isinstance(rows, Scaled) else str(rows.dtype)


def stored(rows: Rows, form: str) -> Rows:
    """The same vectors in another form, or as they are where they have it."""
    if form_of(rows) == form:
        return rows
    plain = rows[:].astype(np.float32, copy=False)
    if form == "sq8":
        scales = np.abs(plain).max(axis=1, initial=0.0) / np.float32(MOST_CODE)
        parts = np.divide(plain, scales[:, None], out=np.zeros_like(plain), where=scales[:, None] > 0)
        return Scaled(np.clip(np.rint(parts), -MOST_CODE, MOST_CODE).astype(np.int8), scales.astype(np.float32))
    with np.errstate(over="ignore"):
        made: np.ndarray = plain.astype(form)
    if not np.isfinite(made).all():
        raise VizslaError(f"some numbers of these vectors are too large for {form}; store them in float32 or sq8")
    return made


def some_of(rows: Rows, a: int, z: int, which: np.ndarray) -> Rows:
    """Those of the rows from a to z that a mask of them names, in the form they have."""
    if isinstance(rows, Scaled):
        return Scaled(rows.codes[a:z][which], rows.scales[a:z][which])
    found: np.ndarray = rows[a:z][which]
    return found


def products(asked: np.ndarray, rows: Rows, a: int, z: int) -> np.ndarray:
    """[questions, z - a] inner products with the rows from a to z, in 32 bits."""
    found: np.ndarray
    if isinstance(rows, Scaled):
        codes = rows.codes[a:z]
        if len(asked) <= _FEW:
            found = np.empty((len(asked), z - a), np.float32)
            _multiply(asked, codes, found)
        else:
            found = asked @ codes.astype(np.float32).T
        found *= rows.scales[a:z]
        return found
    block = rows[a:z]
    if block.dtype == np.float16:
        if len(asked) <= _FEW:
            found = np.empty((len(asked), z - a), np.float32)
            _multiply_halves(asked, np.ascontiguousarray(block).view(np.uint16), found)
            return found
        block = _widened(block)
    found = asked @ block.astype(np.float32, copy=False).T
    return found


@reordered
def _multiply(asked, codes, out):
    for i in range(codes.shape[0]):
        for q in range(asked.shape[0]):
            total = np.float32(0)
            for j in range(codes.shape[1]):
                total += asked[q, j] * np.float32(codes[i, j])
            out[q, i] = total


def _widened(block: np.ndarray) -> np.ndarray:
    """Finite 16-bit numbers in 32 bits: numpy's own way takes several times as long."""
    bits = np.empty(block.shape, np.uint32)
    flat = bits.reshape(-1)
    _widen(np.ascontiguousarray(block).view(np.uint16).reshape(-1), flat, flat.view(np.float32))
    return bits.view(np.float32)


@still
def _widen(narrow, bits, wide):
    """Sign and fraction to where 32 bits have them, and the exponent, which is then too small by 112, put right.

    `bits` and `wide` are the same memory. This is no reordered kernel: the factor must not leave its place.
    """
    for i in range(narrow.size):
        sign, rest = np.uint32(narrow[i] & np.uint16(0x8000)), np.uint32(narrow[i] & np.uint16(0x7FFF))
        bits[i] = (sign << np.uint32(16)) | (rest << np.uint32(13))
    for i in range(narrow.size):
        wide[i] *= _SHIFT


@reordered
def _multiply_halves(asked, codes, out):
    bits = np.empty(codes.shape[1], np.uint32)
    row = bits.view(np.float32)
    for i in range(codes.shape[0]):
        _widen(codes[i], bits, row)
        for q in range(asked.shape[0]):
            total = np.float32(0)
            for j in range(row.size):
                total += asked[q, j] * row[j]
            out[q, i] = total
