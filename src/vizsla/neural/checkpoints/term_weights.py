"""A weight for each piece of a vocabulary: how queries are weighed where no network reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.checkpoints.query_table import QueryTable
from vizsla.neural.weights import WEIGHTS

ARRAY = "weight"


@dataclass(frozen=True)
class TermWeights(QueryTable):
    """A table of weights in a folder, one for each piece of a vocabulary. A query is the set of its pieces.

    It was learnt beside the network of the documents, or counted from a corpus, as idf.

    >>> import tempfile
    >>> weights = TermWeights.write(Path(tempfile.mkdtemp()), np.array([0.0, 2.5, 0.5], np.float32))
    >>> weights.rows([[1, 2, 1], [0]])
    [{1: 2.5, 2: 0.5}, {}]
    """

    reads: ClassVar[str] = "terms"

    @classmethod
    def write(cls, folder: Path, values: np.ndarray) -> TermWeights:
        """Write a table; weights are numbers of 0 or more."""
        array = np.ascontiguousarray(values, np.float32)
        if array.ndim != 1 or not len(array):
            raise InputError(f"a table has one weight for each piece, and this has the shape {array.shape}")
        if not np.isfinite(array).all() or (array < 0).any():
            raise InputError("the weight of a piece is a number of 0 or more, and some here are not", file=str(folder))
        return cls.write_table(folder, len(array), {ARRAY: array})

    @property
    def values(self) -> np.ndarray:
        """[pieces] the weights."""
        return self.arrays[ARRAY]

    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        values = arrays.get(ARRAY)
        if values is None or values.shape != (self.width,):
            raise InputError(f"there is no table of {self.width} weights here", file=str(self.folder / WEIGHTS))

    def rows(self, ids: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """The pieces of each text and their weights; those of weight 0 are left out."""
        known = self.values
        return [{i: float(known[i]) for i in dict.fromkeys(row) if known[i] > 0} for row in ids]
