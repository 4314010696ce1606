"""The ids of documents in arrays: those of any rows are read at once, and rows are found by ids.

Ids often count on: `d7`, `d8`, `d9`. Such a *run* is stored as its first id and its length. To find an id, all first
ids are sorted by what stands before their number, and then by their number. So no id is stored twice.
"""

from __future__ import annotations

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
            short = cls(first_texts, np.append(rows, len(texts)).astype(_kind(len(texts))), _sorted(first_texts))
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
        if self.runs is None:
            return self.texts.at(rows)
        return StoredTexts.cut(*self._read(rows))

    def _read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The ids of some rows with a line break between any two, where each ends, and the line breaks inside."""
        texts = self.texts
        begins, ends, numbers = np.empty((3, len(rows)), np.int64)
        places, bits = self._places
        size = id_kernels.measure(
            texts.data, texts.sizes, texts.starts, self._runs, places, bits, rows.astype(np.int64, copy=False),
            begins, ends, numbers,
        )  # fmt: skip
        if size < 0:
            raise DamagedTextsError
        joined = np.empty(size, np.uint8)
        return joined, ends, id_kernels.gather(texts.data, begins, ends, numbers, joined)

    def find(self, wanted: StoredTexts) -> list[tuple[int, int]]:
        """The rows of some ids: pairs of the place of an id among these and a row, ascending."""
        if len(self) == 0 or len(wanted) == 0:
            return []
        texts = self.texts
        found = np.empty((len(wanted), 2), np.int64)
        sound = id_kernels.find(
            texts.data, texts.sizes, texts.starts, self._runs, self.order, wanted.data, wanted.sizes, wanted.starts,
            found,
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
        joined, ends, _ = self._read(rows)
        kept = np.ones(len(joined), np.bool_)
        kept[ends[:-1]] = False  # the line breaks
        return StoredTexts.packed(joined[kept], np.diff(ends, prepend=-1) - 1)

    def rows_ending(self, end: bytes) -> np.ndarray:
        """The rows whose ids end with some bytes, of which the last is a 0, ascending: such an id begins a run."""
        ends, sizes = np.cumsum(self.texts.sizes, dtype=np.int64), self.texts.sizes
        chosen = np.flatnonzero(sizes >= len(end))
        for i, byte in enumerate(reversed(end), 1):
            chosen = chosen[self.texts.data[ends[chosen] - i] == byte]
        return chosen if self.runs is None else self.runs[chosen].astype(np.int64)


class _Keys:
    """Of all texts where they begin, where their number begins, and their number."""

    def __init__(self, texts: StoredTexts) -> None:
        self.begins, self.ends, self.numbers = np.empty((3, len(texts)), np.int64)
        if not id_kernels.split_all(texts.data, texts.sizes, self.begins, self.ends, self.numbers):
            raise DamagedTextsError


def _sorted(texts: StoredTexts, keys: _Keys | None = None) -> np.ndarray:
    """Texts in the order of what stands before their number, of their number, and of their place."""
    keys = keys or _Keys(texts)
    kind = _kind(len(texts))
    order, work = np.arange(len(texts), dtype=kind), np.empty(len(texts), kind)
    in_work = id_kernels.sort(texts.data, keys.begins, keys.ends, keys.numbers, order, work)
    return work if in_work else order


def _kind(count: int) -> type[np.unsignedinteger] | type[np.signedinteger]:
    return np.uint32 if count < 1 << 32 else np.int64


def _readonly(array: np.ndarray) -> np.ndarray:
    """One kind of array, so that kernels are compiled once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
