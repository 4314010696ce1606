"""Quantisers: how real weights become integers. Every convention that is in use has a name here.

| name | step | rounding | where it is used |
|---|---|---|---|
| `range:5:256:ceil` | w / 5 * 256 | up | uniCOIL's own scripts |
| `range:5:256:even` | w / 5 * 256 | nearest, halves to even | Pyserini's encoders |
| `range:5:256:half-up` | w / 5 * 256 | nearest, halves up | Anserini's ONNX encoders |
| `range:1:100:even` | w * 100 | nearest, halves to even | Tevatron's and naver's SPLADE |
| `range:1:100:ceil` | w * 100 | up | Tevatron's uniCOIL |
| `minmax:8` | 1 + (w - minimum) / (maximum - minimum) * 255 | down | Anserini's 8-bit BM25 impacts, 1 to 256 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from vizsla.errors import VizslaError
from vizsla.numbers import number_text, whole_number
from vizsla.vectors.sparse import SparseVectors

_MAX_LEVELS, _MAX_BITS = (1 << 31) - 1, 32  # whole numbers are kept in 32 bits
_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "even": np.rint,
    "half-up": lambda w: np.floor(w + 0.5),
}


@dataclass(frozen=True)
class Quantiser:
    """`offset + round((w - minimum) / span * levels)`: parsed from text, compared, printed back, stored.

    >>> q = Quantiser.parse("range:5:256:ceil")
    >>> q.quantise(np.array([0.0, 1.0, 2.5])).tolist(), str(q)
    ([0, 52, 128], 'range:5:256:ceil')
    >>> b8 = Quantiser.parse("minmax:8").fit(np.array([0.5, 3.0, 5.5]))
    >>> b8.quantise(np.array([0.5, 3.0, 5.5])).tolist(), str(b8)
    ([1, 128, 256], 'minmax:8:0.5:5.5')
    """

    kind: str
    span: float
    levels: float
    rounding: str
    minimum: float = 0.0
    maximum: float = 0.0
    offset: int = 0
    fitted: bool = True

    def __post_init__(self) -> None:
        numbers = self.span, self.levels, self.minimum
        sound = all(map(math.isfinite, numbers)) and self.span >= 0 and 0 < self.levels <= _MAX_LEVELS
        if not sound or (self.kind == "range" and not self.span):
            raise VizslaError(
                f"a quantiser's range is finite and above 0, and it has 1 to {_MAX_LEVELS:,} levels, not {self}"
            )

    @classmethod
    def parse(cls, text: str) -> Quantiser:
        """A quantiser from its text form; `minmax:8` still has to be fitted."""
        kind, *options = text.split(":")
        try:
            if kind == "range" and len(options) == 3 and options[2] in _ROUNDINGS:
                return cls("range", float(options[0]), float(options[1]), options[2])
            if kind == "minmax" and len(options) in (1, 3):
                levels = float(2 ** min(whole_number(options[0]), _MAX_BITS) - 1)
                quantiser = cls("minmax", 1.0, levels, "floor", offset=1, fitted=False)
                if len(options) == 1:
                    return quantiser
                return quantiser._over(float(options[1]), float(options[2]))
        except ValueError:
            pass
        raise VizslaError(
            f"{text!r} is not a quantiser; expected range:SPAN:LEVELS:ROUNDING with a rounding of "
            f"{', '.join(_ROUNDINGS)}, or minmax:BITS"
        )

    def __str__(self) -> str:
        if self.kind == "range":
            return f"range:{number_text(self.span)}:{number_text(self.levels)}:{self.rounding}"
        bits = int(self.levels + 1).bit_length() - 1
        return f"minmax:{bits}:{self.minimum!r}:{self.maximum!r}" if self.fitted else f"minmax:{bits}"

    def fit(self, weights: np.ndarray) -> Quantiser:
        """The quantiser for these weights; one with a fixed range stays as it is."""
        if self.kind != "minmax":
            return self
        if weights.size == 0:
            raise VizslaError("a minmax quantiser needs at least one weight to be fitted")
        return self._over(float(weights.min()), float(weights.max()))

    def _over(self, minimum: float, maximum: float) -> Quantiser:
        return replace(self, minimum=minimum, maximum=maximum, span=maximum - minimum, fitted=True)

    def quantise(self, weights: np.ndarray) -> np.ndarray:
        """Whole numbers from 0 on, one for each weight."""
        if not self.fitted:
            raise VizslaError(f"the quantiser {self} has to be fitted before it is used")
        step = (weights - self.minimum) / self.span * self.levels if self.span else np.full(len(weights), self.levels)
        whole: np.ndarray = np.maximum(self.offset + _ROUNDINGS[self.rounding](step), 0)
        return whole.astype(np.uint32)

    def quantise_rows(self, vectors: SparseVectors) -> SparseVectors:
        """Vectors of whole numbers; weights that become 0 are dropped."""
        values = self.quantise(vectors.values)
        positive = values > 0
        pointers = np.concatenate([[0], np.cumsum(positive)])[vectors.pointers]
        return SparseVectors(vectors.vocabulary, pointers, vectors.indices[positive], values[positive])
