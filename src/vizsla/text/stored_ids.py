"""The ids of documents in arrays: those of any rows are read at once, and rows are found by ids.

Ids often count on: `d7`, `d8`, `d9`. Such a *run* is stored as its first id and its length. To find an id, all first
ids are sorted by what stands before their number, and then by their number. So no id is stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vizsla.text import id_kernels
from vizsla.text.stored_texts import DamagedTextsError, StoredTexts

SHORT = 1024
"""Up to so many ids are stored one by one, and are sorted when one of them is looked for."""
_PLACE_BITS = 12


class StoredIds:
    """The ids of rows 0 .. n - 1. An id may be there more than once; the caller knows which row counts.

    >>> ids = StoredIds.of(StoredTexts.of(["d7", "d8", "cat", "d9", "d8"]))
    >>> ids.at(np.array([2, 1])), ids.find(StoredTexts.of(["d8", "dog", "cat"]))
    (['cat', 'd8'], [(0, 1), (0, 4), (2, 2)])
    """

    def __init__(self, texts: StoredTexts, runs: np.ndarray | None = None, order: np.ndarray | None = None) -> None:
        """`texts`: the first ids of runs. `runs`: where each begins, and the number of rows; None if each has one row.

        `order`: the runs in the order of their first ids; None to sort them at the first use.
        """
        self.texts = texts
        self.runs = runs
        self._runs = _readonly(np.zeros(0, np.uint32) if runs is None else runs)
        self._stored_order = order

    @classmethod
    def of(cls, texts: StoredTexts) -> StoredIds:
        """Ids one by one as arrays that are as short as they get."""
        if len(texts) <= SHORT:
            return cls(texts)
        keys = _Keys(texts)
        firsts = np.empty(len(texts), np.bool_)
        starts = id_kernels.mark_firsts(texts.data, keys.begins, keys.ends, keys.numbers, firsts)
        if 2 * starts <= len(texts):
            rows = np.flatnonzero(firsts)
            first_texts = texts.take(rows)
            short = cls(first_texts, np.append(rows, len(texts)).astype(np.uint32), _sorted(first_texts))
            if not short.overlap():
                return short
        return cls(texts, None, _sorted(texts, keys))

    def __len__(self) -> int:
        return len(self.texts) if self.runs is None else int(self.runs[-1])

    @cached_property
    def order(self) -> np.ndarray:
        """The runs in the order of what stands before their number, and then of their number."""
        return _readonly(_sorted(self.texts) if self._stored_order is None else self._stored_order)

    @cached_property
    def _places(self) -> tuple[np.ndarray, int]:
        """The runs of some rows at equal distances, and how many bits of a row's number do not count there.

        So the run of a row is looked for among few.
        """
        bits = max(len(self).bit_length() - _PLACE_BITS, 0)
        rows = np.arange((len(self) >> bits) + 2) << bits
        runs = np.searchsorted(self._runs, rows, side="right") - 1
        return np.clip(runs, 0, len(self.texts) - 1).astype(np.int64), bits

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
        """The arrays and numbers that `id_kernels.measure` takes."""
        texts = self.texts
        places, bits = (np.zeros(0, np.int64), 0) if self.runs is None else self._places
        return texts.data, texts.sizes, texts.starts, self._runs, places, bits, len(self)

    def fit(self) -> bool:
        """Whether the arrays can belong together, by their shapes and last entries alone."""
        if not self.texts.fit() or (self._stored_order is not None and len(self._stored_order) != len(self.texts)):
            return False
        return self.runs is None or (len(self.runs) == len(self.texts) + 1 and int(self.runs[0]) == 0)

    def is_sound(self) -> bool:
        """Whether all runs follow one another, and all of them are found by their ids."""
        order = np.asarray(self.order)
        if not np.array_equal(np.sort(order), np.arange(len(self.texts))):
            return False
        keys = _Keys(self.texts)
        if id_kernels.are_sorted(self.texts.data, keys.begins, keys.ends, keys.numbers, order) < len(order):
            return False
        counts = np.diff(self._runs.astype(np.int64))
        return bool((counts > 0).all()) and not bool((counts[keys.numbers[: len(counts)] < 0] > 1).any())

    def overlap(self) -> bool:
        """Whether an id is there twice, in a run or as one."""
        keys = _Keys(self.texts)
        return bool(id_kernels.overlap(self.texts.data, keys.begins, keys.ends, keys.numbers, self._runs, self.order))

    def at(self, rows: np.ndarray) -> list[str]:
        """The ids of some rows, in their order."""
        return ids_at([(self, 0, rows.astype(np.int64, copy=False))])

    def find(self, wanted: StoredTexts) -> list[tuple[int, int]]:
        """The rows of some ids: pairs of the place of an id among these and a row, ascending."""
        if len(self) == 0 or len(wanted) == 0:
            return []
        texts = self.texts
        found = np.empty((len(wanted), 2), np.int64)
        sound = id_kernels.find(
            texts.data, texts.sizes, texts.starts, self._runs, self.order, wanted.data, wanted.sizes.astype(np.int64),
            wanted.starts, found,
        )  # fmt: skip
        if not sound:
            raise DamagedTextsError
        pairs: list[tuple[int, int]] = []
        for i in np.flatnonzero(found[:, 1]).tolist():
            first, count = found[i].tolist()
            rows = [first] if self.runs is not None else sorted(self.order[first : first + count].tolist())
            pairs += [(i, row) for row in rows]
        if any(row >= len(self) for _, row in pairs):
            raise DamagedTextsError
        return pairs

    def copied(self, rows: np.ndarray) -> StoredTexts:
        """The ids of some rows one by one, as arrays."""
        if self.runs is None:
            return self.texts.take(rows)
        joined, (_, ends, _), _ = _read([(self, 0, rows.astype(np.int64, copy=False))])
        kept = np.ones(len(joined), np.bool_)
        kept[ends - 1] = False  # the line breaks
        return StoredTexts.packed(joined[kept], np.diff(ends, prepend=0) - 1)

    def rows_ending(self, end: bytes) -> np.ndarray:
        """The rows whose ids end with some bytes, of which the last is a 0, ascending: such an id begins a run."""
        ends, sizes = np.cumsum(self.texts.sizes, dtype=np.int64), self.texts.sizes
        chosen = np.flatnonzero(sizes >= len(end))
        for i, byte in enumerate(reversed(end), 1):
            chosen = chosen[self.texts.data[ends[chosen] - i] == byte]
        return chosen if self.runs is None else self.runs[chosen].astype(np.int64)


Rows = tuple[StoredIds, int, np.ndarray]
"""Ids, the number of their first row, and the numbers of rows in 64 bits, here or elsewhere."""


def ids_at(parts: Sequence[Rows]) -> list[str]:
    """The ids of rows that lie in several parts, in their order. All parts have the same rows, each by its numbers.

    >>> dogs, cats = (StoredIds.of(StoredTexts.of([f"{name}{i}" for i in range(3)])) for name in ("dog", "cat"))
    >>> rows = np.array([2, 4, 0])
    >>> ids_at([(dogs, 0, rows), (cats, 3, rows)])
    ['dog2', 'cat1', 'dog0']
    """
    joined, measured, breaks = _read(parts)
    if breaks or len(joined) == 0:
        return StoredTexts.cut(joined, measured[1] - 1, breaks)
    try:
        return str(joined.data[:-1], "utf-8").split("\n")
    except UnicodeDecodeError:
        raise DamagedTextsError from None


def _read(parts: Sequence[Rows]) -> tuple[np.ndarray, np.ndarray, int]:
    """The ids of rows with a line break after each, how they were measured, and the line breaks inside of ids."""
    count = len(parts[0][2])
    measured, missing, breaks = np.zeros((3, count), np.int64), count, 0
    parts = [(ids, first, np.ascontiguousarray(rows)) for ids, first, rows in parts]
    for ids, first, rows in parts:
        found = id_kernels.measure(*ids.arrays, first, rows, measured)
        if found < 0:
            raise DamagedTextsError
        missing -= found
    if missing:
        raise DamagedTextsError
    joined = np.empty(id_kernels.add_up(measured), np.uint8)
    for ids, first, rows in parts:
        inside = id_kernels.gather(ids.arrays[0], ids.arrays[-1], first, rows, measured, joined)
        if inside < 0:
            raise DamagedTextsError
        breaks += inside
    return joined, measured, breaks


class _Keys:
    """Of all texts where they begin, where their number begins, and their number."""

    def __init__(self, texts: StoredTexts) -> None:
        self.begins, self.ends, self.numbers = np.empty((3, len(texts)), np.int64)
        if not id_kernels.split_all(texts.data, texts.sizes, self.begins, self.ends, self.numbers):
            raise DamagedTextsError


def _sorted(texts: StoredTexts, keys: _Keys | None = None) -> np.ndarray:
    """Texts in the order of what stands before their number, of their number, and of their place."""
    keys = keys or _Keys(texts)
    order, work = np.arange(len(texts), dtype=np.uint32), np.empty(len(texts), np.uint32)
    in_work = id_kernels.sort(texts.data, keys.begins, keys.ends, keys.numbers, order, work)
    return work if in_work else order


def _readonly(array: np.ndarray) -> np.ndarray:
    """One kind of array, so that kernels are compiled once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
