"""A short sparse vector for each word piece: how queries are weighed and expanded where no network reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.checkpoints.query_table import QueryTable
from vizsla.neural.weights import WEIGHTS

_STARTS, _TERMS, _WEIGHTS, _HIGHEST = "starts", "terms", "weights", "highest"
_LEVELS = 255
_NUMBERS = 1 << 16  # of terms: two bytes each


@dataclass(frozen=True)
class PieceVectors(QueryTable):
    """A table of sparse vectors in a folder, one for each piece of a vocabulary; weights have 8 bits.

    A network wrote it: each row is what it makes of one piece by itself. A query gets the terms of all its pieces, each
    with its highest weight.

    >>> import tempfile
    >>> terms, weights = np.array([[0, 1], [1, 0], [2, 1]]), np.array([[0.0, 0.0], [5.1, 1.0], [2.0, 3.0]])
    >>> table = PieceVectors.write(Path(tempfile.mkdtemp()), terms, weights)
    >>> table.rows([[1, 2, 1], [0]])
    [{1: 5.1, 0: 1.0, 2: 2.0}, {}]
    """

    reads: ClassVar[str] = "pieces"

    @classmethod
    def write(cls, folder: Path, terms: np.ndarray, weights: np.ndarray) -> PieceVectors:
        """Write a table from [pieces, some] terms and their weights; those of weight 0 are left out."""
        if terms.shape != weights.shape or terms.ndim != 2 or not len(terms):
            raise InputError(f"a table has a row of terms for each piece, and this has the shape {terms.shape}")
        if len(terms) > _NUMBERS:
            raise InputError(f"a table has at most {_NUMBERS:,} pieces, and this has {len(terms):,}")
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise InputError("the weight of a term is a number of 0 or more, and some here are not", file=str(folder))
        highest = float(weights.max(initial=0.0)) or 1.0
        levels = np.rint(weights * (_LEVELS / highest)).astype(np.uint8)
        kept = levels > 0
        arrays: dict[str, np.ndarray] = {
            _STARTS: np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32),
            _TERMS: terms[kept].astype(np.uint16),
            _WEIGHTS: levels[kept],
            _HIGHEST: np.array([highest], np.float32),
        }
        return cls.write_table(folder, len(terms), arrays)

    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        try:
            starts, terms, weights, highest = (arrays[name] for name in (_STARTS, _TERMS, _WEIGHTS, _HIGHEST))
            fits = (
                starts.shape == (self.width + 1,)
                and terms.shape == weights.shape == (int(starts[-1]),)
                and highest.shape == (1,)
                and starts[0] == 0
                and bool((np.diff(starts) >= 0).all())
                and int(terms.max(initial=0)) < self.width
            )
        except KeyError:
            fits = False
        if not fits:
            raise InputError(f"there is no table of {self.width} vectors here", file=str(self.folder / WEIGHTS))

    def rows(self, ids: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """The terms of each query, given as the numbers of its pieces, with the highest weight of each."""
        starts, terms, levels = (self.arrays[name] for name in (_STARTS, _TERMS, _WEIGHTS))
        step = float(self.arrays[_HIGHEST][0]) / _LEVELS
        queries = []
        for row in ids:
            best: dict[int, int] = {}
            for piece in dict.fromkeys(row):
                own = slice(starts[piece], starts[piece + 1])
                for term, level in zip(terms[own].tolist(), levels[own].tolist(), strict=True):
                    if level > best.get(term, 0):
                        best[term] = level
            queries.append({term: round(level * step, 6) for term, level in best.items()})
        return queries
