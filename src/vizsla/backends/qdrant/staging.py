"""Changes that wait for a commit: analysed documents and deletions, in their order, in a file of this machine."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

import numpy as np

from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.models import SAMPLE
from vizsla.plain_data import parse_json

IN_MEMORY = 32 << 20
"""Bytes of changes that are kept in memory; more go to a file."""


@dataclass(frozen=True)
class Deletion:
    """Documents to delete, by id."""

    ids: tuple[str, ...]


Change = AnalysedBatch | Deletion


@dataclass
class Mark:
    """A place among the changes, to go back to."""

    end: int
    count: int
    there: dict[str, bool]
    lengths: dict[str, tuple[int, int, int]]
    sample: int


@dataclass
class Staging:
    """Changes in the order they were made. The file has no name, so it is gone with this process."""

    file: IO[bytes] | None = None
    count: int = 0
    there: dict[str, bool] = field(default_factory=dict)
    """By id whether a document is there after these changes."""
    lengths: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By namespace: documents, their total length, the longest; of all that were added."""
    sample: list[dict[str, Any]] = field(default_factory=list)
    """The fields of the first documents, for models whose weights are fitted to some."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What is noted with the commit, by name; None removes a note."""

    def add(self, batch: AnalysedBatch, namespaces: tuple[str, ...]) -> None:
        """Stage documents."""
        self._append(batch)
        self.there.update(dict.fromkeys(batch.ids, True))
        first = islice(batch.stored, SAMPLE - len(self.sample))
        self.sample += [parse_json(fields or "{}") for _, _, fields in first]
        for name, rows in zip(namespaces, batch.namespaces, strict=True):
            documents, total, longest = self.lengths.get(name, (0, 0, 0))
            sizes = rows.lengths
            self.lengths[name] = (
                documents + int(np.count_nonzero(sizes)),
                total + int(sizes.sum(dtype=np.int64)),
                max(longest, int(sizes.max(initial=0))),
            )

    def delete(self, ids: tuple[str, ...]) -> None:
        """Stage deletions."""
        self._append(Deletion(ids))
        self.there.update(dict.fromkeys(ids, False))

    def _append(self, change: Change) -> None:
        if self.file is None:
            self.file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (see close)
        self.file.seek(0, 2)
        pickle.dump(change, self.file, pickle.HIGHEST_PROTOCOL)
        self.count += 1

    def changes(self) -> Iterator[Change]:
        """All changes in their order."""
        at = 0
        for _ in range(self.count):
            assert self.file is not None
            self.file.seek(at)
            change: Any = pickle.load(self.file)
            at = self.file.tell()
            yield change

    def mark(self) -> Mark:
        """Where the changes end now."""
        return Mark(
            0 if self.file is None else self.file.seek(0, 2),
            self.count,
            dict(self.there),
            dict(self.lengths),
            len(self.sample),
        )

    def go_back(self, mark: Mark) -> None:
        """Forget all that was staged after a mark."""
        if self.file is not None:
            self.file.seek(mark.end)
            self.file.truncate()
        self.count, self.there, self.lengths = mark.count, mark.there, mark.lengths
        del self.sample[mark.sample :]

    def close(self) -> None:
        """Forget everything."""
        if self.file is not None:
            self.file.close()
