"""Terms and their numbers in a hash table of kernels: many are looked up, or added, at once and without the GIL."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from vizsla.kernels import njit

_HASH_SEED, _HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, over bytes


class TermTable:
    """Terms in the order of first sight; it only grows. Any thread may add some.

    >>> table = TermTable()
    >>> table.numbers(["dog", "cat", "dog"]).tolist(), table.numbers(["cat", "bark"]).tolist(), table.terms
    ([0, 1, 0], [1, 2], ['dog', 'cat', 'bark'])
    """

    def __init__(self) -> None:
        self.terms: list[str] = []
        self._lock = threading.Lock()
        self._data = np.empty(1 << 16, np.uint8)
        self._bounds = np.zeros(1 << 13, np.int64)
        self._tags = np.empty(1 << 13, np.uint32)
        self._slots = np.zeros(1 << 14, np.uint32)

    @property
    def bytes(self) -> int:
        """About how much memory the terms take."""
        count = len(self.terms)
        return 80 * count + 2 * int(self._bounds[count])

    def numbers(self, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms; an unknown one gets the next number."""
        return self.numbers_of(*utf8(terms))

    def numbers_of(self, data: np.ndarray, bounds: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
        """The numbers of terms as `utf8` gives them; `order`: in which order they are looked up and numbered."""
        count = len(bounds) - 1
        order = np.arange(count) if order is None else order
        numbers = np.empty(count, np.int32)
        with self._lock:
            before = len(self.terms)
            self._make_room(count, len(data))
            table = self._data, self._bounds, self._tags, self._slots
            self.terms += self._texts(before, _find_or_add(data, bounds, order, before, *table, numbers))
        return numbers

    def _texts(self, first: int, end: int) -> list[str]:
        """The terms from one number to another."""
        cuts = self._bounds[first : end + 1]
        data, places = self._data[cuts[0] : cuts[-1]].tobytes(), (cuts - cuts[0]).tolist()
        text = data.decode("utf-8", "surrogatepass")
        if len(text) == len(data):
            return [text[a:z] for a, z in pairwise(places)]
        return [data[a:z].decode("utf-8", "surrogatepass") for a, z in pairwise(places)]

    def _make_room(self, count: int, size: int) -> None:
        """Have room for so many terms and bytes more."""
        count += len(self.terms)
        size += int(self._bounds[len(self.terms)])
        self._data = _grown(self._data, size)
        self._bounds, self._tags = _grown(self._bounds, count + 1), _grown(self._tags, count)
        if 2 * count > len(self._slots):
            self._slots = np.zeros(1 << (2 * count).bit_length(), np.uint32)
            _fill(self._tags, len(self.terms), self._slots)


def utf8(terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Terms in UTF-8 end to end, halves of surrogate pairs as they are, and where each begins, and the last ends."""
    encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
    bounds = np.append(0, np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded))))
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    """An array with room for `size` items, with the same items at its beginning."""
    if len(array) >= size:
        return array
    out = np.zeros(max(2 * len(array), size), array.dtype)
    out[: len(array)] = array
    return out


@njit
def _tag_of(data, at, stop):
    h = np.uint64(_HASH_SEED)
    for x in range(at, stop):
        h = (h ^ np.uint64(data[x])) * np.uint64(_HASH_FACTOR)
    return np.uint32((h ^ (h >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@njit
def _same(data, at, size, others, start):
    x = 0
    while x < size and data[at + x] == others[start + x]:
        x += 1
    return x == size


@njit("const uint8[:], const int64[:], const int64[:], int64, uint8[:], int64[:], uint32[:], uint32[:], int32[:]")
def _find_or_add(data, bounds, order, count, known, ends, tags, slots, numbers):
    """Put the numbers of terms, in this order, into `numbers`; new ones, not among the first `count`, are added.

    Term n is known[ends[n]:ends[n + 1]] and has its hash in `tags`; `slots` is a hash table of n + 1. Returns how many
    terms there are now.
    """
    mask = slots.size - 1
    for i in range(numbers.size):
        at, size = bounds[order[i]], bounds[order[i] + 1] - bounds[order[i]]
        tag = _tag_of(data, at, at + size)
        slot = np.int64(tag) & mask
        while True:
            n = np.int64(slots[slot]) - 1
            if n < 0:
                for x in range(size):
                    known[ends[count] + x] = data[at + x]
                ends[count + 1] = ends[count] + size
                tags[count] = tag
                slots[slot] = count + 1
                numbers[i] = count
                count += 1
                break
            if tags[n] == tag and ends[n + 1] - ends[n] == size and _same(data, at, size, known, ends[n]):
                numbers[i] = n
                break
            slot = (slot + 1) & mask
    return count


@njit("const uint32[:], int64, uint32[:]")
def _fill(tags, count, slots):
    """Fill an empty hash table of n + 1."""
    mask = slots.size - 1
    for n in range(count):
        slot = np.int64(tags[n]) & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = n + 1
