"""Helpers for the arrays of a segment: they are read-only, and what is read from a disk may be damaged."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from dataclasses import fields

import numpy as np

_ALIGNMENT = 64
_OWN_PAGES = 1 << 20


class DamagedSegmentError(Exception):
    """A segment's arrays contradict each other; the caller, who knows the segment's name, reports it."""


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array, read-only."""
    plain = np.asarray(array).view()
    plain.flags.writeable = False
    return plain


def aligned(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """An empty array that begins at a multiple of 64 bytes, where kernels that work in it are faster.

    >>> aligned((2, 3), np.float32).shape, aligned((5,), np.uint16).ctypes.data % 64
    ((2, 3), 0)
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def in_own_pages(count: int, dtype: np.dtype | type[np.generic]) -> np.ndarray:
    """An empty array; the system gets the memory of a large one back as soon as nobody uses it.

    What malloc gives for an array often stays with the process when the array is gone.

    >>> in_own_pages(1 << 20, np.uint16).shape
    (1048576,)
    """
    size = count * np.dtype(dtype).itemsize
    if size < _OWN_PAGES:
        return np.empty(count, dtype)
    options = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    return np.frombuffer(mmap.mmap(-1, size, **options), dtype)


def give_back_memory() -> None:
    """Give the system the memory back that malloc keeps though nobody uses it, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers of an array, ascending.

    np.unique hashes whole numbers: it takes ten times as long, and it aborts Python if a daemon thread is
    inside when Python exits.

    >>> distinct(np.array([3, 1, 3, 2])).tolist()
    [1, 2, 3]
    """
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def freeze(record: object) -> None:
    """Make the arrays of a dataclass read-only."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(record, field.name, read_only(value))
