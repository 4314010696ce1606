"""The weight of a posting from its stored value: for every model four constants and a table of length norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import MAX_SMALL

MAX_CODES = 1024  # length codes that bounds distinguish; longer documents are bounded like the last one


@dataclass(frozen=True, eq=False)
class Weighting:
    """The weight of a stored value v in a document whose length code is c.

    Saturating (the whole BM25 family), with n = norms[c]:

        scale * (v + shift * n) / (v + slope * n) + floor

    Linear (learned weights), where `norms` is None: scale * v.

    A longer document's code is higher and its norm not lower, so its weights are not larger.
    """

    scale: float = 1.0
    shift: float = 0.0
    slope: float = 0.0
    floor: float = 0.0
    norms: np.ndarray | None = None

    def weigh(self, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The weights of many postings, by the same operations in the same order as the kernels."""
        v = values.astype(np.float64)
        if self.norms is None:
            return self.scale * v
        n: np.ndarray = self.norms[codes]
        return self.scale * (v + self.shift * n) / (v + self.slope * n) + self.floor

    def values_of(self, weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The values that have these weights, the inverse of `weigh`; not a number where all values weigh the same.

        >>> bm25 = Weighting(slope=0.9, norms=np.ones(1))
        >>> bm25.values_of(bm25.weigh(np.array([1, 7]), np.array([0, 0])), np.array([0, 0])).round(9).tolist()
        [1.0, 7.0]
        """
        w = weights.astype(np.float64)
        if self.norms is None:
            return w / self.scale
        n: np.ndarray = self.norms[codes]
        y = (w - self.floor) / self.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            values: np.ndarray = n * (y * self.slope - self.shift) / (1 - y)
        return values

    def small_weights(self, width: int) -> np.ndarray:
        """[width, 4] the weights of the values 1 to 4 for each of the first length codes; what is left is 0."""
        out = np.zeros((width, MAX_SMALL))
        codes = np.arange(min(1 if self.norms is None else len(self.norms), width))
        for value in range(1, MAX_SMALL + 1):
            out[: len(codes), value - 1] = self.weigh(np.full(len(codes), value), codes)
        return out


class Weightings(NamedTuple):
    """The weightings of all namespaces, as arrays for the kernels."""

    linear: np.ndarray
    """[s] bool."""
    constants: np.ndarray
    """[s, 4] scale, shift, slope, floor."""
    norms: np.ndarray
    """[s, c] by length code."""
    small: np.ndarray
    """[s, 4 * width] the weights of small values, at 4 * length code + value - 1."""
    last_codes: np.ndarray
    """[s] the last length code that is in `small`."""

    @classmethod
    def pack(cls, weightings: list[Weighting]) -> Weightings:
        codes = [1 if w.norms is None else len(w.norms) for w in weightings]
        norms = np.ones((len(weightings), max(codes)))
        for row, w in zip(norms, weightings, strict=True):
            if w.norms is not None:
                row[: len(w.norms)] = w.norms
        width = min(max(codes), MAX_CODES)
        return cls(
            np.array([w.norms is None for w in weightings], np.bool_),
            np.array([[w.scale, w.shift, w.slope, w.floor] for w in weightings], np.float64),
            norms,
            np.stack([w.small_weights(width).ravel() for w in weightings]),
            np.array([min(c, width) - 1 for c in codes], np.int64),
        )


WEIGHTINGS = "Weightings(const bool[:], const float64[:,:], const float64[:,:], const float64[:,:], const int64[:])"
"""Its type for kernels."""
