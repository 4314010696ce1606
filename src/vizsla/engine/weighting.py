"""From what a posting stores to its weight: four constants and a table of lengths, whatever the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Weighting:
    """The weight of a stored value v in a document whose length code is c.

    Saturating (the whole BM25 family), with n = norms[c]:

        scale * (v + shift * n) / (v + slope * n) + floor

    Linear (learned weights), where `norms` is None: scale * v.
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


@dataclass(frozen=True, eq=False)
class Weightings:
    """The weightings of all namespaces, as arrays for the kernels."""

    linear: np.ndarray
    constants: np.ndarray
    norms: np.ndarray

    @classmethod
    def pack(cls, weightings: list[Weighting]) -> Weightings:
        width = max((len(w.norms) for w in weightings if w.norms is not None), default=1)
        norms = np.ones((len(weightings), width))
        for row, w in zip(norms, weightings, strict=True):
            if w.norms is not None:
                row[: len(w.norms)] = w.norms
        return cls(
            np.array([w.norms is None for w in weightings], np.bool_),
            np.array([[w.scale, w.shift, w.slope, w.floor] for w in weightings], np.float64),
            norms,
        )
