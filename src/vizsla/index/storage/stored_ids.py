"""The ids of documents in arrays: those of any rows are read at once, and rows are found by ids.

Ids are texts in one array of bytes. Each text has its size; where every 64th begins is stored, so that any text is
found without reading all sizes. Ids are often consecutive: `d7`, `d8`, `d9`. Such a *run* is stored as its first id and
its length. To find an id, all first ids are sorted by what stands before their number, and then by their number. So no
id is stored twice.

The number of an id is what its last digits say: up to 18 of them, without zeros in front, which count to what stands
before. An id without a digit at its end has the number -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import overload

import numpy as np

from vizsla.kernels import njit
from vizsla.lazy import cached_property

_STEP_BITS = 6
_STEP = 1 << _STEP_BITS
"""The start of every STEP-th text is stored."""
_SIZE_TYPES = ("uint8", "uint16", "uint32")
"""The types of the array of sizes; kernels are compiled for each of them."""
SHORT = 1024
"""Up to this many ids are stored one by one, and are sorted when an id is first looked up."""
_PLACE_BITS = 12
_DIGITS = 18
_LAST_ASCII = 127
_END = 10  # a line break stands between ids that are read together


class DamagedTextsError(Exception):
    """The arrays of stored texts contradict each other; the caller, who knows their files, reports it."""


@dataclass(frozen=True, eq=False)
class StoredTexts:
    """Texts 0 .. n - 1.

    >>> texts = StoredTexts.of(["dog", "", "caf\u00e9"])
    >>> len(texts), texts.sizes.tolist(), texts.take(np.array([2, 0])).data.tobytes().decode()
    (3, [3, 0, 5], 'caf\u00e9dog')
    """

    data: np.ndarray
    """uint8: the texts in UTF-8, end to end."""
    sizes: np.ndarray
    """[n] uint8, uint16 or uint32: how many bytes each text has."""
    starts: np.ndarray
    """[n / 64, rounded up] int64: where the texts 0, 64, 128 and so on begin."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> StoredTexts:
        """Texts as arrays; half a surrogate pair cannot be stored."""
        joined = "".join(texts)
        if joined.isascii():
            sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        else:
            sizes = np.array([len(text) if text.isascii() else len(text.encode()) for text in texts], np.int64)
        return cls.packed(np.frombuffer(joined.encode(), np.uint8), sizes)

    @classmethod
    def packed(cls, data: np.ndarray, sizes: np.ndarray) -> StoredTexts:
        """Texts that lie end to end, given their sizes in 64 bits."""
        largest = int(sizes.max(initial=0))
        kind = np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32
        starts = (np.cumsum(sizes) - sizes)[::_STEP]
        return cls(data, sizes.astype(kind), starts.astype(np.int64))

    @classmethod
    def concatenated(cls, parts: Sequence[StoredTexts]) -> StoredTexts:
        """The texts of all parts, one part after the other."""
        data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)])
        return cls.packed(
            data, np.concatenate([np.zeros(0, np.int64), *(part.sizes for part in parts)], dtype=np.int64)
        )

    def __post_init__(self) -> None:
        for name in ("data", "sizes", "starts"):  # one kind of array, so that kernels are compiled once
            array = np.asarray(getattr(self, name)).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.sizes)

    def fit(self) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and last entries."""
        if len(self.starts) != -(-len(self) // _STEP):
            return False
        last = len(self) - len(self) % _STEP if len(self) % _STEP else max(len(self) - _STEP, 0)
        end = int(self.starts[-1]) + int(self.sizes[last:].sum(dtype=np.int64)) if len(self) else 0
        return end == len(self.data)

    def take(self, rows: np.ndarray) -> StoredTexts:
        """The texts of some rows as arrays of their own."""
        begins = np.cumsum(self.sizes, dtype=np.int64) - self.sizes
        sizes, begins = self.sizes[rows].astype(np.int64), begins[rows]
        data = np.empty(int(sizes.sum()), np.uint8)
        if not _copy(self.data, begins, sizes, data):
            raise DamagedTextsError
        return StoredTexts.packed(data, sizes)


@njit
def _text_begin(data, sizes, starts, row):
    """Where the text of a row begins; -1 if the row is not there, or there is damage."""
    if row < 0 or row >= sizes.size or row >> _STEP_BITS >= starts.size:
        return -1
    begin = np.int64(starts[row >> _STEP_BITS])
    for other in range(row >> _STEP_BITS << _STEP_BITS, row):
        begin += np.int64(sizes[other])
    return begin if 0 <= begin <= data.size - np.int64(sizes[row]) else -1


@njit("const uint8[:], const int64[:], const int64[:], uint8[:]")
def _copy(data, begins, sizes, out):
    """Copy texts end to end; returns False if one of them is not there."""
    at = np.int64(0)
    for x in range(begins.size):
        if begins[x] < 0 or begins[x] + sizes[x] > data.size:
            return False
        for i in range(sizes[x]):
            out[at + i] = data[begins[x] + i]
        at += sizes[x]
    return True


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
        """Ids, with consecutive ones stored as runs if that is shorter."""
        if len(texts) <= SHORT:
            return cls(texts)
        keys = _Keys(texts)
        firsts = np.empty(len(texts), np.bool_)
        starts = _mark_firsts(texts.data, keys.begins, keys.ends, keys.numbers, firsts)
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
        """The runs, sorted by the prefix and then by the number of their first ids."""
        return _readonly(_sorted(self.texts) if self._stored_order is None else self._stored_order)

    @cached_property
    def _places(self) -> tuple[np.ndarray, int]:
        """The runs of every 2 ** bits-th row, and `bits`.

        They narrow the binary search for the run of a row.
        """
        bits = max(len(self).bit_length() - _PLACE_BITS, 0)
        rows = np.arange((len(self) >> bits) + 2) << bits
        runs = np.searchsorted(self._runs, rows, side="right") - 1
        return np.clip(runs, 0, len(self.texts) - 1).astype(np.int64), bits

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
        """The arrays and numbers that `_measure` takes."""
        texts = self.texts
        places, bits = (np.zeros(0, np.int64), 0) if self.runs is None else self._places
        return texts.data, texts.sizes, texts.starts, self._runs, places, bits, len(self)

    def fit(self) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and last entries."""
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
        """Whether any id occurs twice, by itself or inside a run."""
        keys = _Keys(self.texts)
        return bool(_overlap(self.texts.data, keys.begins, keys.ends, keys.numbers, self._runs, self.order))

    def at(self, rows: np.ndarray) -> list[str]:
        """The ids of some rows, in their order."""
        return ids_at([(self, 0, rows.astype(np.int64, copy=False))])

    def find(self, wanted: StoredTexts) -> list[tuple[int, int]]:
        """The rows of some ids: pairs of the place of an id among these and a row, ascending."""
        found = self._found(wanted)
        pairs: list[tuple[int, int]] = []
        for i in np.flatnonzero(found[:, 1]).tolist():
            first, count = found[i].tolist()
            rows = [first] if self.runs is not None else sorted(self.order[first : first + count].tolist())
            pairs += [(i, row) for row in rows]
        if any(row >= len(self) for _, row in pairs):
            raise DamagedTextsError
        return pairs

    def rows_of(self, wanted: StoredTexts) -> np.ndarray:
        """[ids] the row of each id, -1 for none; of several rows with an id the last.

        >>> ids = StoredIds.of(StoredTexts.of(["d7", "d8", "cat", "d9", "d8"]))
        >>> ids.rows_of(StoredTexts.of(["d8", "dog", "cat"])).tolist()
        [4, -1, 2]
        """
        found = self._found(wanted)
        rows, known = np.full(len(wanted), -1, np.int64), found[:, 1] > 0
        if self.runs is not None:
            rows[known] = found[known, 0]
        elif known.any():
            rows[known] = self.order[found[known].sum(1) - 1]  # equal ids are sorted by row
        return rows

    def _found(self, wanted: StoredTexts) -> np.ndarray:
        """[ids, 2] the row of each id, or its first place in `order` without runs; and how many rows have it."""
        texts = self.texts
        found = np.zeros((len(wanted), 2), np.int64)
        if len(self) and len(wanted):
            sound = _find(
                texts.data, texts.sizes, texts.starts, self._runs, self.order, wanted.data,
                wanted.sizes.astype(np.int64), wanted.starts, found,
            )  # fmt: skip
            if not sound:
                raise DamagedTextsError
        return found

    def copied(self, rows: np.ndarray) -> StoredTexts:
        """The ids of some rows one by one, as arrays."""
        if self.runs is None:
            return self.texts.take(rows)
        joined, ends, *_ = _read([(self, 0, rows.astype(np.int64, copy=False))], np.array([0, len(rows)]))
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
    """The ids of rows that are spread over several parts, in their order; every part gets all row numbers.

    >>> dogs, cats = (StoredIds.of(StoredTexts.of([f"{name}{i}" for i in range(3)])) for name in ("dog", "cat"))
    >>> rows = np.array([2, 4, 0])
    >>> ids_at([(dogs, 0, rows), (cats, 3, rows)])
    ['dog2', 'cat1', 'dog0']
    """
    return id_lists(parts, np.array([0, len(parts[0][2])]))[0]


class IdLists(Sequence[list[str]]):
    """The ids of several rankings, which were read together; those of a ranking become texts when somebody looks.

    >>> dogs = StoredIds.of(StoredTexts.of(["dog0", "dog1", "dog2"]))
    >>> ids = id_lists([(dogs, 0, np.array([2, 0, 1]))], np.array([0, 2, 2, 3]))
    >>> len(ids), ids[0], ids[1], ids[2]
    (3, ['dog2', 'dog0'], [], ['dog1'])
    """

    __slots__ = ("_characters", "_cuts", "_texts")

    def __init__(self, read: np.ndarray | list[str], cuts: np.ndarray) -> None:
        """`read`: the characters of ids in ASCII, with a line break after each; or ids as texts.

        `cuts`: where the ids of each ranking begin in `read`, and where the last end.
        """
        self._characters: memoryview | None = read.data if isinstance(read, np.ndarray) else None
        self._texts: list[str] = [] if isinstance(read, np.ndarray) else read
        self._cuts: list[int] = cuts.tolist()

    def __len__(self) -> int:
        return len(self._cuts) - 1

    @overload
    def __getitem__(self, at: int) -> list[str]: ...
    @overload
    def __getitem__(self, at: slice) -> list[list[str]]: ...
    def __getitem__(self, at: int | slice) -> list[str] | list[list[str]]:
        if isinstance(at, slice):
            return list(self)[at]
        i = range(len(self))[at]
        return self._between(self._cuts[i], self._cuts[i + 1])

    def __iter__(self) -> Iterator[list[str]]:
        return starmap(self._between, pairwise(self._cuts))

    def _between(self, a: int, z: int) -> list[str]:
        if self._characters is None:
            return self._texts[a:z]
        return str(self._characters[a : z - 1], "ascii").split("\n") if a < z else []


def id_lists(parts: Sequence[Rows], bounds: np.ndarray) -> IdLists:
    """As `ids_at`, the ids of several rankings: the i-th has the rows from bounds[i] to bounds[i + 1] (int64)."""
    joined, ends, cuts, is_plain = _read(parts, bounds)
    return IdLists(joined, cuts) if is_plain else IdLists(_decoded(joined, ends), bounds)


def _decoded(joined: np.ndarray, ends: np.ndarray) -> list[str]:
    """Ids in any script, perhaps with line breaks inside."""
    data = joined.tobytes()
    try:
        return [data[a : z - 1].decode() for a, z in pairwise([0, *ends.tolist()])]
    except UnicodeDecodeError:
        raise DamagedTextsError from None


def _read(parts: Sequence[Rows], bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """The ids of rows with a line break after each, where each ends, and where those at `bounds` begin.

    Also whether they are ASCII in one line each.
    """
    count = len(parts[0][2])
    measured, missing, others = np.zeros((3, count), np.int64), count, 0
    cuts = np.empty(len(bounds), np.int64)
    for ids, first, rows in parts:
        found = _measure(*ids.arrays, first, np.ascontiguousarray(rows), measured)
        if found < 0:
            raise DamagedTextsError
        missing -= found
    if missing:
        raise DamagedTextsError
    joined = np.empty(_add_up(measured, bounds, cuts), np.uint8)
    for ids, first, rows in parts:
        inside = _gather(ids.arrays[0], ids.arrays[-1], first, np.ascontiguousarray(rows), measured, joined)
        if inside < 0:
            raise DamagedTextsError
        others += inside
    return joined, measured[1], cuts, others == 0


class _Keys:
    """For each text: where it begins, where its number begins, and its number."""

    def __init__(self, texts: StoredTexts) -> None:
        self.begins, self.ends, self.numbers = np.empty((3, len(texts)), np.int64)
        if not _split_all(texts.data, texts.sizes, self.begins, self.ends, self.numbers):
            raise DamagedTextsError


def _sorted(texts: StoredTexts, keys: _Keys | None = None) -> np.ndarray:
    """Texts sorted by prefix, then by number, then by position."""
    keys = keys or _Keys(texts)
    order, work = np.arange(len(texts), dtype=np.uint32), np.empty(len(texts), np.uint32)
    in_work = _sort(texts.data, keys.begins, keys.ends, keys.numbers, order, work)
    return work if in_work else order


def sorted_texts(texts: StoredTexts) -> np.ndarray:
    """The places of texts in the order of their bytes.

    >>> sorted_texts(StoredTexts.of(["b10", "b9", "a"])).tolist()
    [2, 0, 1]
    """
    ends = np.cumsum(texts.sizes, dtype=np.int64)
    order, work = np.arange(len(texts), dtype=np.uint32), np.empty(len(texts), np.uint32)
    in_work = _sort(texts.data, ends - texts.sizes, ends, np.zeros(len(texts), np.int64), order, work)
    return work if in_work else order


def _readonly(array: np.ndarray) -> np.ndarray:
    """One kind of array, so that kernels are compiled once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@njit
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


@njit(*(f"const uint8[:], const {sizes}[:], int64[:], int64[:], int64[:]" for sizes in _SIZE_TYPES))
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


@njit
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


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], uint32[:], uint32[:]")
def _sort(data, begins, ends, numbers, order, work):
    """Sort texts by merging; returns whether the result lies in `work` and not in `order`."""
    width, count, in_work = 1, order.size, False
    while width < count:
        source, target = (work, order) if in_work else (order, work)
        start = 0
        while start < count:
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
            start += 2 * width
        in_work = not in_work
        width *= 2
    return in_work


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], const uint32[:]")
def _are_sorted(data, begins, ends, numbers, order):
    """How many texts come in the right order, from the first on; all, if they are sorted."""
    for i in range(1, order.size):
        x, y = order[i - 1], order[i]
        compared = _compare(data, begins[x], ends[x], numbers[x], data, begins[y], ends[y], numbers[y])
        if compared > 0:
            return i
    return order.size


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], bool[:]")
def _mark_firsts(data, begins, ends, numbers, firsts):
    """Mark the ids that do not continue the run of the previous id; returns how many."""
    total = 0
    for i in range(begins.size):
        first = i == 0 or numbers[i - 1] < 0 or numbers[i] != numbers[i - 1] + 1
        if not first:
            # With the same number, only the prefixes can differ.
            first = _compare(data, begins[i - 1], ends[i - 1], 0, data, begins[i], ends[i], 0) != 0
        firsts[i] = first
        total += first
    return total


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], const uint32[:], const uint32[:]")
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


@njit
def _digits(number):
    """How many digits a number has."""
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit
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


@njit(
    *(
        f"const uint8[:], const {sizes}[:], const int64[:], const uint32[:], const int64[:], int64, int64, int64, "
        "const int64[:], int64[:,:]"
        for sizes in _SIZE_TYPES
    )
)
def _measure(data, sizes, starts, runs, places, bits, count, first, rows, measured):
    """Measure the ids of those rows that are here: put into `measured[0]` where the first ids of their runs begin, into
    `measured[1]` how many bytes each has with a line break after it, and into `measured[2]` what number each ends with;
    -1 for the first id itself.

    `first` is subtracted from all rows. Rows that are then outside 0 .. count - 1 are skipped. Returns how many rows
    were measured; -1 for damage.
    """
    found = 0
    for x in range(rows.size):
        row = rows[x] - first
        if row < 0 or row >= count:
            continue
        run, further = row, np.int64(0)
        if runs.size:
            run = _run_of(runs, places, bits, row)
            further = row - np.int64(runs[run])
        begin = _text_begin(data, sizes, starts, run)
        if begin < 0 or further < 0 or measured[1, x] != 0:  # another part has the row already
            return -1
        size, number = np.int64(sizes[run]), np.int64(-1)
        if further > 0:
            end, number = _split(data, begin, begin + size)
            if number < 0:
                return -1
            number += further
            size = end - begin + _digits(number)
        measured[0, x] = begin
        measured[1, x] = size + 1
        measured[2, x] = number
        found += 1
    return found


@njit("int64[:,:], const int64[:], int64[:]")
def _add_up(measured, bounds, cuts):
    """Replace the sizes of measured ids by their ends (cumulative sums); returns the end of the last one.

    Into `cuts` goes where the ids at `bounds` begin.
    """
    total = np.int64(0)
    for x in range(measured.shape[1]):
        total += measured[1, x]
        measured[1, x] = total
    for i in range(bounds.size):
        cuts[i] = measured[1, bounds[i] - 1] if bounds[i] else np.int64(0)
    return total


@njit("const uint8[:], int64, int64, const int64[:], const int64[:,:], uint8[:]")
def _gather(data, count, first, rows, measured, out):
    """Put the measured ids of those rows that are here into `out`, with a line break after each.

    `measured[1]`: where each ends in `out`, its line break included. Returns how many characters of ids are no ASCII or
    are line breaks, -1 if there is damage.
    """
    others = 0
    for x in range(rows.size):
        if rows[x] < first or rows[x] - first >= count:
            continue
        at = measured[1, x - 1] if x else np.int64(0)
        last = measured[1, x] - 1
        place, number = measured[0, x], measured[2, x]
        end = last if number < 0 else last - _digits(number)
        if place < 0 or place + end - at > data.size:
            return -1
        for to in range(at, end):
            out[to] = data[place]
            others += data[place] == _END or data[place] > _LAST_ASCII
            place += 1
        for to in range(last - 1, end - 1, -1):
            out[to] = 48 + number % 10
            number //= 10
        out[last] = _END
    return others


@njit(
    *(
        f"const uint8[:], const {sizes}[:], const int64[:], const uint32[:], const uint32[:], const uint8[:], "
        "const int64[:], const int64[:], int64[:,:]"
        for sizes in _SIZE_TYPES
    )
)
def _find(data, sizes, starts, runs, order, wanted, wanted_sizes, wanted_starts, found):
    """Put into `found` where each text is, and how often: its row with `runs`, its place in `order` without them.

    Returns False if the arrays are damaged.
    """
    for i in range(wanted_sizes.size):
        begin = _text_begin(wanted, wanted_sizes, wanted_starts, i)
        end, number = _split(wanted, begin, begin + np.int64(wanted_sizes[i]))
        after = _place(data, sizes, starts, order, wanted, begin, end, number, 1)
        if after < 0:
            return False
        found[i, 0] = found[i, 1] = 0
        if after == 0:
            continue
        run = np.int64(order[after - 1])  # of this text, or of one before it
        first = _text_begin(data, sizes, starts, run)
        first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
        further = number - first_number
        count = np.int64(runs[run + 1]) - np.int64(runs[run]) if runs.size else 1
        if further < 0 or further >= count or _compare(data, first, first_end, 0, wanted, begin, end, 0) != 0:
            continue
        if runs.size:
            found[i, 0], found[i, 1] = np.int64(runs[run]) + further, 1
        else:
            before = _place(data, sizes, starts, order, wanted, begin, end, number, 0)
            if before < 0:
                return False
            found[i, 0], found[i, 1] = before, after - before
    return True


@njit
def _place(data, sizes, starts, order, wanted, begin, end, number, after):
    """How many texts come before one, or with `after` = 1 before it or with it; -1 if the arrays are damaged."""
    low, high = 0, order.size
    while low < high:
        middle = (low + high) >> 1
        run = np.int64(order[middle])
        first = _text_begin(data, sizes, starts, run)
        if first < 0:
            return -1
        first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
        if _compare(data, first, first_end, first_number, wanted, begin, end, number) < after:
            low = middle + 1
        else:
            high = middle
    return low
