"""Tables for queries that no network reads: a weight, or a short sparse vector, for each piece of a vocabulary."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vizsla.errors import InputError
from vizsla.lazy import cached_property
from vizsla.neural.network import ABOUT
from vizsla.neural.weights import WEIGHTS, read_tensors, write_arrays
from vizsla.plain_data import DescriptionError, fields_from_data, parse_settings


@dataclass(frozen=True)
class QueryTable(ABC):
    """A table in a folder with a row for each word piece of a vocabulary; `width`: how many there are."""

    folder: Path = field(compare=False)
    digest: str
    width: int

    reads: ClassVar[str]
    """The kind of table, as the description in the folder names it."""

    @classmethod
    def write_table(cls, folder: Path, width: int, arrays: Mapping[str, np.ndarray]) -> Self:
        """Write the arrays of a table, which have been checked."""
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / WEIGHTS, dict(arrays))
        digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
        about = {"reads": cls.reads, "digest": digest, "width": width}
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", "utf-8")
        return cls(folder, digest, width)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The table that was written to a folder."""
        try:
            about = fields_from_data(cls, parse_settings((folder / ABOUT).read_text("utf-8")), ("folder",), reads="str")
        except (OSError, ValueError, DescriptionError) as e:
            raise InputError(f"this does not describe a table of weights ({e})", file=str(folder / ABOUT)) from None
        return cls(folder, about["digest"], about["width"])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """What the table holds, by name."""
        arrays = read_tensors(self.folder / WEIGHTS)
        self.check(arrays)
        return arrays

    @abstractmethod
    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuse arrays that are no table of this width."""

    @abstractmethod
    def rows(self, ids: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """The terms of each query, given as the numbers of its pieces, and their weights."""

    def save(self, folder: Path) -> str:
        """Copy the table into a folder; returns the name it has there."""
        name = self.digest[:12]
        if (folder / name).resolve() != self.folder.resolve():
            self.write_table(folder / name, self.width, self.arrays)
            for file in (WEIGHTS, ABOUT):
                with (folder / name / file).open("rb") as copied:
                    os.fsync(copied.fileno())
        return name

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "arrays"}


ARRAY = "weight"


@dataclass(frozen=True)
class TermWeights(QueryTable):
    """A table of weights in a folder, one for each piece of a vocabulary. A query is the set of its pieces.

    The weights were learned together with the document network, or computed from a corpus, such as idf.

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


_STARTS, _TERMS, _WEIGHTS, _HIGHEST = "starts", "terms", "weights", "highest"
_LEVELS = 255
_NUMBERS = 1 << 16  # of terms: two bytes each


@dataclass(frozen=True)
class PieceVectors(QueryTable):
    """A table of sparse vectors in a folder, one for each piece of a vocabulary; weights have 8 bits.

    Each row is the vector that a network gave one piece by itself. A query gets the terms of all its pieces, each with
    its highest weight.

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
