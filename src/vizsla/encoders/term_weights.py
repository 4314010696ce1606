"""A weight for each piece of a vocabulary: how queries are weighed where no network reads them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.described import DescriptionError, fields_from_data
from vizsla.encoders.network import ABOUT
from vizsla.errors import InputError
from vizsla.networks.weights import WEIGHTS, read_tensors, write_arrays

ARRAY = "weight"


@dataclass(frozen=True)
class TermWeights:
    """A table of weights in a folder, one for each piece of a vocabulary. A query is the set of its pieces.

    It was learnt beside the network of the documents, or counted from a corpus, as idf.

    >>> import tempfile
    >>> weights = TermWeights.write(Path(tempfile.mkdtemp()), np.array([0.0, 2.5, 0.5], np.float32))
    >>> weights.rows([[1, 2, 1], [0]])
    [{1: 2.5, 2: 0.5}, {}]
    """

    folder: Path = field(compare=False)
    digest: str
    width: int

    @classmethod
    def write(cls, folder: Path, values: np.ndarray) -> TermWeights:
        """Write a table; weights are numbers of 0 or more."""
        array = np.ascontiguousarray(values, np.float32)
        if array.ndim != 1 or not len(array):
            raise InputError(f"a table has one weight for each piece, and this has the shape {array.shape}")
        if not np.isfinite(array).all() or (array < 0).any():
            raise InputError("the weight of a piece is a number of 0 or more, and some here are not", file=str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / WEIGHTS, {ARRAY: array})
        made = cls(folder, hashlib.sha256(array.tobytes()).hexdigest(), len(array))
        about = {"reads": "terms", "digest": made.digest, "width": made.width}
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", "utf-8")
        return made

    @classmethod
    def open(cls, folder: Path) -> TermWeights:
        """The table that was written to a folder."""
        try:
            about = fields_from_data(cls, json.loads((folder / ABOUT).read_text("utf-8")), ("folder",), reads="str")
        except (OSError, ValueError, RecursionError, DescriptionError) as e:
            raise InputError(f"this does not describe a table of weights ({e})", file=str(folder / ABOUT)) from None
        return cls(folder, about["digest"], about["width"])

    @cached_property
    def values(self) -> np.ndarray:
        """[pieces] the weights."""
        values = read_tensors(self.folder / WEIGHTS).get(ARRAY)
        if values is None or values.shape != (self.width,):
            raise InputError(f"there is no table of {self.width} weights here", file=str(self.folder / WEIGHTS))
        return values

    def rows(self, ids: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """The pieces of each text and their weights; those of weight 0 are left out."""
        known = self.values
        return [{i: float(known[i]) for i in dict.fromkeys(row) if known[i] > 0} for row in ids]

    def save(self, folder: Path) -> str:
        """Copy the table into a folder; returns the name it has there."""
        name = self.digest[:12]
        if (folder / name).resolve() != self.folder.resolve():
            TermWeights.write(folder / name, self.values)
            for file in (WEIGHTS, ABOUT):
                with (folder / name / file).open("rb") as copied:
                    os.fsync(copied.fileno())
        return name

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "values"}
