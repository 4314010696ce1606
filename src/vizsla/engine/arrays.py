"""What the arrays of a segment have in common: nothing changes them, and they may come damaged from a disk."""

from __future__ import annotations

from dataclasses import fields

import numpy as np


class DamagedSegmentError(Exception):
    """A segment's arrays contradict each other; the caller, who knows the segment's name, reports it."""


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array as one kind for numba, which compiles a kernel for each kind: plain and read-only."""
    plain = np.asarray(array).view()
    plain.flags.writeable = False
    return plain


def freeze(record: object) -> None:
    """Make the arrays of a dataclass read-only."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(record, field.name, read_only(value))
