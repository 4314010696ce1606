"""The insertion numbers of a segment's documents as a file.

Documents that were added one after the other have neighbouring numbers. A long array of them is stored as *runs*: the
first number of each run, and how many it has. So a segment of a million documents takes a few bytes instead of four
million.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vizsla.errors import CollectionError
from vizsla.index.storage.arrays import Facts, read_array, write_array

NUMBERS, RUNS = "numbers", "number_runs"
KINDS = (NUMBERS, RUNS)
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {NUMBERS: (1, ("<u4", "<i8")), RUNS: (2, ("<i8",))}
"""The number of dimensions and the allowed types of each array."""
_SHORT = 1024  # numbers that are not worth runs


def are_complete(facts: Mapping[str, Facts]) -> bool:
    """Whether a segment has its numbers in one of the two files."""
    return (NUMBERS in facts) != (RUNS in facts)


def to_runs(numbers: np.ndarray) -> np.ndarray:
    """Ascending numbers as runs, [r, 2]: the first of each run, and how many it has.

    >>> to_runs(np.array([3, 4, 5, 9, 11, 12])).tolist()
    [[3, 3], [9, 1], [11, 2]]
    """
    wide = numbers.astype(np.int64)
    breaks = np.flatnonzero(np.diff(wide) != 1) + 1
    starts = np.append(0, breaks)
    return np.stack([wide[starts], np.diff(np.append(starts, len(wide)))], axis=1)


def from_runs(runs: np.ndarray) -> np.ndarray:
    """The numbers of runs, in four bytes as long as they fit.

    >>> from_runs(np.array([[3, 3], [9, 1], [11, 2]])).tolist()
    [3, 4, 5, 9, 11, 12]
    """
    firsts, counts = runs[:, 0], runs[:, 1]
    kind = np.uint32 if int(firsts[-1]) + int(counts[-1]) <= 1 << 32 else np.int64
    if len(runs) == 1:
        return np.arange(firsts[0], firsts[0] + counts[0], dtype=kind)
    shifts = firsts - (np.cumsum(counts) - counts)
    numbers: np.ndarray = np.arange(counts.sum()) + np.repeat(shifts, counts)
    return numbers.astype(kind)


def write_numbers(folder: Path, numbers: np.ndarray) -> dict[str, Facts]:
    """Write the numbers of a segment's documents, ascending; returns the description of the file."""
    if len(numbers) > _SHORT:
        runs = to_runs(numbers)
        if runs.nbytes < numbers.nbytes:
            return {RUNS: write_array(folder / f"{RUNS}.npy", runs)}
    return {NUMBERS: write_array(folder / f"{NUMBERS}.npy", numbers)}


def read_numbers(path: Path, segment: str, facts: Mapping[str, Facts], count: int) -> np.ndarray:
    """The numbers of a segment's documents, `count` of them."""
    if NUMBERS in facts:
        return read_array(path, segment, facts[NUMBERS])
    runs = read_array(path, segment, facts[RUNS])
    sound = runs.shape[1] == 2 and len(runs) > 0 and bool(((runs >= 0) & (runs < 1 << 60)).all())
    if not sound or sum(runs[:, 1].tolist()) != count:
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return from_runs(runs)
