"""Tables that weigh queries where no network reads them: arrays in a folder, under a hash of what they hold."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vizsla.described import DescriptionError, fields_from_data
from vizsla.errors import InputError
from vizsla.neural.checkpoints.network import ABOUT
from vizsla.neural.weights import WEIGHTS, read_tensors, write_arrays
from vizsla.plain_data import parse_settings


@dataclass(frozen=True)
class QueryTable(ABC):
    """A table in a folder with a row for each word piece of a vocabulary; `width`: how many there are."""

    folder: Path = field(compare=False)
    digest: str
    width: int

    reads: ClassVar[str]
    """What the description of the folder says that a table of this kind reads."""

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
