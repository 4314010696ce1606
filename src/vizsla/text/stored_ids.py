"""The ids of documents in arrays: those of any rows are read at once, and rows are found by ids.

Ids often count on: `d7`, `d8`, `d9`. Such a *run* is stored as its first id and its length. To find an id, all first
ids are sorted by what stands before their number, and then by their number. So no id is stored twice.

The number of an id is what its last digits say: up to 18 of them, without zeros in front, which count to what stands
before. An id without a digit at its end has the number -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vizsla.kernels import njit_no_alloc
from vizsla.text.stored_texts import DamagedTextsError, StoredTexts, text_begin

SHORT = 1024
"""Up to so many ids are stored one by one, and are sorted when one of them is looked for."""
_DIGITS = 18
_PLACE_BITS = 12
_END = 10  # a line break stands between ids that are read together


class StoredIds:
    """The ids of rows 0 .. n - 1. An id may be there more than once; the caller knows which row counts.

    >>> ids = StoredIds.of(StoredTexts.of(["d7", "d8", "cat", "d9", "d8"]))
    >>> ids.at(np.array([2, 1])), ids.find(["d8", "dog", "cat"])
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
        starts = _mark_firsts(texts.data, keys.begins, keys.ends, keys.numbers, firsts)
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
        if _are_sorted(self.texts.data, keys.begins, keys.ends, keys.numbers, order) < len(order):
            return False
        counts = np.diff(self._runs.astype(np.int64))
        return bool((counts > 0).all()) and not bool((counts[keys.numbers[: len(counts)] < 0] > 1).any())

    def overlap(self) -> bool:
        """Whether an id is there twice, in a run or as one."""
        keys = _Keys(self.texts)
        return bool(_overlap(self.texts.data, keys.begins, keys.ends, keys.numbers, self._runs, self.order))

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
        size = _measure(
            texts.data, texts.sizes, texts.starts, self._runs, places, bits, rows.astype(np.int64, copy=False),
            begins, ends, numbers,
        )  # fmt: skip
        if size < 0:
            raise DamagedTextsError
        joined = np.empty(size, np.uint8)
        return joined, ends, _gather(texts.data, begins, ends, numbers, joined)

    def find(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        """The rows of some ids: pairs of the place of an id among these and a row, ascending."""
        if len(self) == 0 or not ids:
            return []
        texts, wanted = self.texts, StoredTexts.of(ids)
        found = np.empty((len(ids), 2), np.int64)
        sound = _find(
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
        if not _split_all(texts.data, texts.sizes, self.begins, self.ends, self.numbers):
            raise DamagedTextsError


def _sorted(texts: StoredTexts, keys: _Keys | None = None) -> np.ndarray:
    """Texts in the order of what stands before their number, of their number, and of their place."""
    keys = keys or _Keys(texts)
    kind = _kind(len(texts))
    order, work = np.arange(len(texts), dtype=kind), np.empty(len(texts), kind)
    in_work = _sort(texts.data, keys.begins, keys.ends, keys.numbers, order, work)
    return work if in_work else order


def _kind(count: int) -> type[np.unsignedinteger] | type[np.signedinteger]:
    return np.uint32 if count < 1 << 32 else np.int64


def _readonly(array: np.ndarray) -> np.ndarray:
    """One kind of array, so that kernels are compiled once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@njit_no_alloc
def _split(data, begin, end):
    """Where the number of the text from `begin` to `end` begins, and the number."""
    p = end
    while p > begin and end - p < _DIGITS and 48 <= data[p - 1] <= 57:
        p -= 1
    if p == end:
        return end, np.int64(-1)
    while p < end - 1 and data[p] == 48:
        p += 1
    number = np.int64(0)
    for q in range(p, end):
        number = number * 10 + np.int64(data[q]) - 48
    return p, number


@njit_no_alloc
def _split_all(data, sizes, begins, ends, numbers):
    """Put into `begins`, `ends` and `numbers` where each text and its number begin, and the number."""
    place = np.int64(0)
    for i in range(sizes.size):
        begins[i] = place
        place += np.int64(sizes[i])
        if place > data.size:
            return False
        ends[i], numbers[i] = _split(data, begins[i], place)
    return True


@njit_no_alloc
def _compare(a, a_begin, a_end, a_number, b, b_begin, b_end, b_number):
    """Below 0, 0 or above 0, as one text comes before another, is equal, or comes after it."""
    shared = min(a_end - a_begin, b_end - b_begin)
    for i in range(shared):
        x, y = a[a_begin + i], b[b_begin + i]
        if x != y:
            return -1 if x < y else 1
    if a_end - a_begin != b_end - b_begin:
        return -1 if a_end - a_begin < b_end - b_begin else 1
    if a_number != b_number:
        return -1 if a_number < b_number else 1
    return 0


@njit_no_alloc
def _sort(data, begins, ends, numbers, order, work):
    """Sort texts by merging; returns whether the result lies in `work` and not in `order`."""
    width, count, in_work = 1, order.size, False
    while width < count:
        source, target = (work, order) if in_work else (order, work)
        for start in range(0, count, 2 * width):
            a, b, middle, end = start, start + width, min(start + width, count), min(start + 2 * width, count)
            for place in range(start, end):
                first = b >= end
                if not first and a < middle:
                    x, y = source[a], source[b]
                    first = _compare(data, begins[x], ends[x], numbers[x], data, begins[y], ends[y], numbers[y]) <= 0
                if first:
                    target[place] = source[a]
                    a += 1
                else:
                    target[place] = source[b]
                    b += 1
        in_work = not in_work
        width *= 2
    return in_work


@njit_no_alloc
def _are_sorted(data, begins, ends, numbers, order):
    """How many texts come in the right order, from the first on; all, if they are sorted."""
    for i in range(1, order.size):
        x, y = order[i - 1], order[i]
        compared = _compare(data, begins[x], ends[x], numbers[x], data, begins[y], ends[y], numbers[y])
        if compared > 0:
            return i
    return order.size


@njit_no_alloc
def _mark_firsts(data, begins, ends, numbers, firsts):
    """Mark the texts that do not count on from the one before; returns how many."""
    total = 0
    for i in range(begins.size):
        first = i == 0 or numbers[i - 1] < 0 or numbers[i] != numbers[i - 1] + 1
        if not first:
            # With the same number, only what stands before can differ.
            first = _compare(data, begins[i - 1], ends[i - 1], 0, data, begins[i], ends[i], 0) != 0
        firsts[i] = first
        total += first
    return total


@njit_no_alloc
def _overlap(data, begins, ends, numbers, runs, order):
    """Whether an id that is not empty is in two runs; without `runs` each has one row."""
    for i in range(1, order.size):
        x, y = order[i - 1], order[i]
        count = np.int64(runs[x + 1]) - np.int64(runs[x]) if runs.size else 1
        is_empty = numbers[x] < 0 and begins[x] == ends[x]
        near = not is_empty and numbers[y] < numbers[x] + count
        if near and _compare(data, begins[x], ends[x], 0, data, begins[y], ends[y], 0) == 0:
            return True
    return False


@njit_no_alloc
def _digits(number):
    """How many digits a number has."""
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit_no_alloc
def _run_of(runs, places, bits, row):
    """The run of a row that is before the end of all runs."""
    low, high = np.int64(places[row >> bits]), np.int64(places[(row >> bits) + 1]) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if np.int64(runs[middle]) <= row:
            low = middle
        else:
            high = middle
    return low


@njit_no_alloc
def _measure(data, sizes, starts, runs, places, bits, rows, begins, ends, numbers):
    """Put into `begins`, `ends` and `numbers` where the first ids of the runs of some rows begin, where each id ends in
    what is read of them, and what number it ends with; -1 for the first id itself.

    Returns how many bytes they have, with a line break between any two; -1 if a row is not there, or there is damage.
    """
    total = 0
    for x in range(rows.size):
        row = rows[x]
        if row < 0 or row >= np.int64(runs[runs.size - 1]):
            return -1
        run = _run_of(runs, places, bits, row)
        further = row - np.int64(runs[run])
        begin = text_begin(data, sizes, starts, run)
        if begin < 0 or further < 0:
            return -1
        size, numbers[x], begins[x] = np.int64(sizes[run]), -1, begin
        if further > 0:
            end, number = _split(data, begin, begin + size)
            if number < 0:
                return -1
            numbers[x] = number + further
            size = end - begin + _digits(numbers[x])
        ends[x] = total + size
        total = ends[x] + 1
    return total - 1 if total else 0


@njit_no_alloc
def _gather(data, begins, ends, numbers, out):
    """Put the measured ids into `out`, with a line break between any two; returns the line breaks inside of ids."""
    breaks, at = 0, 0
    for x in range(begins.size):
        end = ends[x] if numbers[x] < 0 else ends[x] - _digits(numbers[x])
        for place in range(begins[x], begins[x] + end - at):
            out[at] = data[place]
            breaks += data[place] == _END
            at += 1
        number = numbers[x]
        for place in range(ends[x] - 1, end - 1, -1):
            out[place] = 48 + number % 10
            number //= 10
        at = ends[x]
        if x + 1 < begins.size:
            out[at] = _END
        at += 1
    return breaks


@njit_no_alloc
def _find(data, sizes, starts, runs, order, wanted, wanted_sizes, wanted_starts, found):
    """Put into `found` where each text is, and how often: its row with `runs`, its place in `order` without them.

    Returns False if the arrays are damaged.
    """
    for i in range(wanted_sizes.size):
        begin = text_begin(wanted, wanted_sizes, wanted_starts, i)
        end, number = _split(wanted, begin, begin + np.int64(wanted_sizes[i]))
        after = _place(data, sizes, starts, order, wanted, begin, end, number, 1)
        if after < 0:
            return False
        found[i, 0] = found[i, 1] = 0
        if runs.size == 0:
            before = _place(data, sizes, starts, order, wanted, begin, end, number, 0) if after > 0 else 0
            if before < 0:
                return False
            found[i, 0], found[i, 1] = before, after - before
        elif after > 0:
            run = np.int64(order[after - 1])
            first = text_begin(data, sizes, starts, run)
            first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
            further = number - first_number
            inside = 0 <= further < np.int64(runs[run + 1]) - np.int64(runs[run])
            if inside and _compare(data, first, first_end, 0, wanted, begin, end, 0) == 0:
                found[i, 0], found[i, 1] = np.int64(runs[run]) + further, 1
    return True


@njit_no_alloc
def _place(data, sizes, starts, order, wanted, begin, end, number, after):
    """How many texts come before one, or with `after` = 1 before it or with it; -1 if the arrays are damaged."""
    low, high = 0, order.size
    while low < high:
        middle = (low + high) >> 1
        run = np.int64(order[middle])
        first = text_begin(data, sizes, starts, run)
        if first < 0:
            return -1
        first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
        if _compare(data, first, first_end, first_number, wanted, begin, end, number) < after:
            low = middle + 1
        else:
            high = middle
    return low
