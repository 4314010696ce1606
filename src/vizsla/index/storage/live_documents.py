"""Which documents of a segment live, and in how many of them its terms occur.

Files record this as of some commit: a byte for each document, a number for each term. Both are as large as the segment,
so a commit that deletes few documents does not rewrite them. It *lists* the deleted rows with the statistics of the
segment in the database, and readers subtract them: from the live documents, and from the document frequencies of the
terms that they look up. When the list is long, the next commit writes new files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import Segment
from vizsla.engine.deletions import frequencies_in_rows
from vizsla.index.storage.arrays import Facts, read_array, write_array
from vizsla.lazy import cached_property

ALIVE, FREQUENCIES = FILES = "alive", "frequencies"
LISTED = "deleted"
"""The key in the statistics of a segment under which deleted rows are listed."""
_LEAST, _MOST, _SHARE = 32, 1024, 64


def most_listed(count: int) -> int:
    """How many rows of a segment with so many documents are listed at most.

    >>> most_listed(50), most_listed(10_000), most_listed(1_000_000)
    (32, 156, 1024)
    """
    return min(max(count // _SHARE, _LEAST), _MOST)


def are_listed(statistics: Mapping[str, Any], count: int) -> bool:
    """Whether the deleted rows listed in the statistics of a segment are valid row numbers, ascending."""
    rows = statistics.get(LISTED, [])
    if not isinstance(rows, list) or not all(type(row) is int for row in rows):
        return False
    return not rows or (rows[0] >= 0 and rows[-1] < count and all(a < b for a, b in pairwise(rows)))


class LiveDocuments:
    """The live documents of a segment."""

    def __init__(
        self,
        path: Path,
        segment: str,
        facts: Mapping[str, Facts],
        listed: Sequence[int],
        before: LiveDocuments | None = None,
    ) -> None:
        """`listed`: the rows that were deleted after the files were written. `before`: of the same segment at another
        commit, whose files stay mapped if they are the same.
        """
        self._facts = {kind: facts[kind] for kind in FILES if kind in facts}
        self.files: dict[str, np.ndarray]
        if before is not None and before._facts == self._facts:
            self.files = before.files
        else:
            self.files = {kind: read_array(path, segment, entry) for kind, entry in self._facts.items()}
        self.listed = np.array(listed, np.int64)
        self._count: int = facts["sizes"]["shape"][1]

    @cached_property
    def alive(self) -> np.ndarray | None:
        """Which documents live; None if all do."""
        return self.alive_without(self.listed)

    def alive_without(self, rows: np.ndarray) -> np.ndarray | None:
        """Which documents are live according to the files and remain so if some rows are deleted; None if all are."""
        before = self.files.get(ALIVE)
        if len(rows) == 0:
            return before
        alive = np.ones(self._count, np.bool_) if before is None else np.array(before)
        alive[rows] = False
        return alive

    def fits(self, segment: Segment) -> bool:
        """Whether the mask has as many documents as the segment."""
        return ALIVE not in self.files or len(self.files[ALIVE]) == len(segment)

    def frequencies(self, segment: Segment, terms: np.ndarray) -> np.ndarray:
        """In how many live documents terms occur, given by their numbers."""
        found = segment.frequencies(terms, self.files.get(FREQUENCIES))
        return found - frequencies_in_rows(segment, terms, self.listed) if len(self.listed) else found


def write_live_documents(folder: Path, generation: int, alive: np.ndarray, frequencies: np.ndarray) -> dict[str, Facts]:
    """Write which documents of a segment are alive at a generation, and the document frequencies of its terms."""
    arrays = {ALIVE: alive, FREQUENCIES: frequencies}
    return {name: write_array(folder / f"{name}-{generation}.npy", array) for name, array in arrays.items()}
