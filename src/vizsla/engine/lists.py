"""Inverted lists, packed: two bytes a posting, cut into runs by windows of documents.

Documents are taken in windows of 16,384, so a posting needs 14 bits to name its document inside a window. In *small*
lists the other two bits hold the value, 1 to 4: nearly all counts of words are that small. *Large* lists hold any
value in an array beside the postings. A term can have a list of each kind; a document is in one of the two.

A run is what a list holds of one window. Runs of a term lie one after the other, those of windows without a posting
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from vizsla.kernels import kernel, still

BITS = 14
WINDOW = 1 << BITS
OFFSET = WINDOW - 1
SMALL = 4
"""The largest value that rides in the two bits an offset leaves free."""


class DamagedSegmentError(Exception):
    """A segment's arrays contradict each other; whoever knows its name should say so."""


class Runs(NamedTuple):
    """The runs of all lists of one kind; see `Lists`."""

    windows: np.ndarray
    starts: np.ndarray
    postings: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Lists:
    """The inverted lists of one kind."""

    terms: np.ndarray
    """[t] uint32: the term numbers that have a list, ascending."""
    runs: np.ndarray
    """[t + 1] uint32: where each term's runs start."""
    windows: np.ndarray
    """[r] uint16: the window of each run, ascending within a term."""
    starts: np.ndarray
    """[r + 1] uint32: where each run's postings start."""
    postings: np.ndarray
    """[p] uint16: the document's place in its window, ascending in a run; in small lists the value less one above."""
    values: np.ndarray
    """[p] what large lists store; empty in small lists."""
    tops: np.ndarray
    """[t] float64: the largest value of each large list; empty in small lists."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.postings)

    @property
    def all_runs(self) -> Runs:
        return Runs(self.windows, self.starts, self.postings, self.values)

    def places(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these terms stand in `terms`, and whether they are there at all."""
        if len(self.terms) == 0:
            return np.zeros(len(terms), np.int64), np.zeros(len(terms), np.bool_)
        wanted = terms.astype(self.terms.dtype)  # searchsorted would copy `terms` to the wider type; -1 is no term
        at = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return at, self.terms[at] == terms

    def find(self, terms: np.ndarray, runs: np.ndarray, tops: np.ndarray) -> None:
        """Where the runs of these terms start and end, and their largest values where they have any."""
        if not _find(self.terms, self.runs, self.windows, self.tops, terms, runs, tops):
            raise DamagedSegmentError

    def frequencies(self, terms: np.ndarray) -> np.ndarray:
        """How long the lists of these terms are; 0 for a term without one."""
        runs, lengths = np.empty((len(terms), 2), np.int64), np.empty(len(terms), np.int64)
        self.find(terms, runs, np.empty(len(terms)))
        if not _measure(self.starts, runs, lengths, len(self.postings)):
            raise DamagedSegmentError
        return lengths

    def bytes_of(self, terms: np.ndarray) -> int:
        """What the lists of these terms take."""
        at, found = self.places(terms)
        here = at[found]
        first, last = self.runs[here].astype(np.int64), self.runs[here + 1].astype(np.int64)
        postings = int((self.starts[last].astype(np.int64) - self.starts[first]).sum())
        per_term = self.terms.itemsize + self.runs.itemsize + (self.tops.itemsize if len(self.tops) else 0)
        per_run = self.windows.itemsize + self.starts.itemsize
        per_posting = self.postings.itemsize + (self.values.itemsize if len(self.values) else 0)
        return len(here) * per_term + int((last - first).sum()) * per_run + postings * per_posting

    def list_of(self, term: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents, below `size`, of one term, and its values there."""
        (at,), (found,) = self.places(np.array([term]))
        _, documents, values = self.unpack(size, at, at + int(found))
        return documents, values

    def fit(self) -> bool:
        """Whether the arrays can belong together, by their shapes and last entries alone."""
        return (
            len(self.runs) == len(self.terms) + 1
            and len(self.starts) == len(self.windows) + 1
            and int(self.runs[-1]) == len(self.windows)
            and int(self.starts[-1]) == len(self.postings)
        )

    def check(self) -> None:
        """Refuse lists and runs that do not lie end to end."""
        if not self.fit() or self.runs[0] or self.starts[0] or _descend(self.runs) or _descend(self.starts):
            raise DamagedSegmentError

    def unpack(self, size: int, first: int = 0, last: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lists of places first .. last - 1 in full: where each starts, documents below `size`, values."""
        runs = self.runs[first : None if last is None else last + 1].astype(np.int64)
        if len(runs) < 2:
            return np.zeros(1, np.int64), np.zeros(0, np.uint32), np.zeros(0, self.value_type)
        if _descend(runs) or runs[-1] >= len(self.starts) or runs[-1] > len(self.windows):
            raise DamagedSegmentError
        starts = self.starts[runs[0] : runs[-1] + 1].astype(np.int64)
        if _descend(starts) or starts[-1] > len(self.postings):
            raise DamagedSegmentError
        count = int(starts[-1] - starts[0])
        documents, values = np.empty(count, np.uint32), np.empty(count, self.value_type)
        if not _unpack(runs, self.windows, self.starts, self.postings, self.values, size, documents, values):
            raise DamagedSegmentError
        return starts[runs - runs[0]] - starts[0], documents, values

    @property
    def value_type(self) -> np.dtype:
        return self.values.dtype if len(self.values) else np.dtype(np.uint8)


def freeze(record: object) -> None:
    """Make a record's arrays one kind for numba: plain, C order, read-only."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            array = np.asarray(value).view()
            array.flags.writeable = False
            object.__setattr__(record, field.name, array)


def _descend(numbers: np.ndarray) -> bool:
    return bool((numbers[1:] < numbers[:-1]).any())


@still
def _find(terms, runs, windows, tops, asked, out, out_tops):
    for i in range(asked.size):
        first, last = 0, terms.size
        while first < last:
            middle = (first + last) >> 1
            if terms[middle] < asked[i]:
                first = middle + 1
            else:
                last = middle
        out[i, 0] = out[i, 1] = 0
        if first < terms.size and terms[first] == asked[i]:
            out[i, 0], out[i, 1] = runs[first], runs[first + 1]
            if not out[i, 0] <= out[i, 1] <= windows.size:
                return False
            if tops.size:
                out_tops[i] = tops[first]
    return True


@still
def _measure(starts, runs, lengths, most):
    for i in range(lengths.size):
        a, z = runs[i]
        lengths[i] = np.int64(starts[z]) - np.int64(starts[a]) if a < z else 0
        if not 0 <= lengths[i] <= most:
            return False
    return True


@kernel
def _unpack(runs, windows, starts, postings, given, size, documents, values):
    base = np.int64(starts[runs[0]])
    for r in range(runs[0], runs[-1]):
        window = np.int64(windows[r]) << BITS
        for x in range(starts[r], starts[r + 1]):
            posting = np.int64(postings[x])
            d = window + (posting & OFFSET)
            if d >= size:
                return False
            documents[x - base] = d
            values[x - base] = given[x] if given.size else (posting >> BITS) + 1
    return True


@kernel
def _count(pointers, documents, values, small, lists, runs):
    """How many postings and runs of one kind each list has."""
    for t in range(pointers.size - 1):
        window = np.int64(-1)
        for x in range(pointers[t], pointers[t + 1]):
            if (1 <= values[x] <= SMALL and values[x] == np.uint32(values[x])) == small:
                lists[t] += 1
                w = np.int64(documents[x]) >> BITS
                runs[t] += w != window
                window = w


@kernel
def _pack(pointers, documents, values, small, windows, starts, postings, out):
    at, run = 0, 0
    for t in range(pointers.size - 1):
        window = np.int64(-1)
        for x in range(pointers[t], pointers[t + 1]):
            if (1 <= values[x] <= SMALL and values[x] == np.uint32(values[x])) == small:
                d = np.int64(documents[x])
                if d >> BITS != window:
                    window = d >> BITS
                    windows[run] = window
                    starts[run] = at
                    run += 1
                posting = d & OFFSET
                if small:
                    posting |= (np.int64(values[x]) - 1) << BITS
                else:
                    out[at] = values[x]
                postings[at] = posting
                at += 1
    starts[run] = at


def pack(terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray) -> tuple[Lists, Lists]:
    """Lists in full, documents ascending, as small and large ones.

    >>> small, large = pack(np.array([3, 9]), np.array([0, 2, 3]), np.array([0, 20_000, 1]), np.array([1, 2, 7]))
    >>> small.terms.tolist(), small.windows.tolist(), small.postings.tolist()
    ([3], [0, 1], [0, 20000])
    >>> large.terms.tolist(), large.postings.tolist(), large.values.tolist()
    ([9], [1], [7])
    """
    return _packed(terms, pointers, documents, values, True), _packed(terms, pointers, documents, values, False)


def _packed(terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray, small: bool) -> Lists:
    lists, runs = np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
    _count(pointers, documents, values, small, lists, runs)
    there = lists > 0
    count, run_count = int(lists.sum()), int(runs.sum())
    windows, starts = np.empty(run_count, np.uint16), np.empty(run_count + 1, np.uint32)
    postings, out = np.empty(count, np.uint16), np.empty(0 if small else count, values.dtype)
    _pack(pointers, documents, values, small, windows, starts, postings, out)
    ends = np.append(0, np.cumsum(lists[there]))[:-1]
    tops = np.maximum.reduceat(out, ends).astype(np.float64) if len(out) else np.zeros(0)
    return Lists(
        terms[there].astype(np.uint32), np.append(0, np.cumsum(runs[there])).astype(np.uint32), windows, starts,
        postings, out, tops,
    )  # fmt: skip
