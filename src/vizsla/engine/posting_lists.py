"""Posting lists, packed: two bytes a posting, cut into blocks by document ranges.

A document range has 16,384 documents, so a posting needs 14 bits to name its document inside a range. In *small*
lists the other two bits hold the value, 1 to 4: nearly all counts of words are that small. *Large* lists hold any
value in an array beside the postings. A term can have a list of each kind; a document is in one of the two.

A block is the part of a list that belongs to one range. The blocks of a term lie one after the other; a range without
a posting has no block.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vizsla.kernels import njit_no_alloc

RANGE_BITS = 14
RANGE_SIZE = 1 << RANGE_BITS
OFFSET_MASK = RANGE_SIZE - 1
MAX_SMALL = 4
"""The largest value that rides in the two bits an offset leaves free."""


class DamagedSegmentError(Exception):
    """A segment's arrays contradict each other; the caller, who knows the segment's name, reports it."""


class Blocks(NamedTuple):
    """The blocks of all lists of one kind; see `PostingLists`."""

    ranges: np.ndarray
    starts: np.ndarray
    postings: np.ndarray
    values: np.ndarray


class Directory(NamedTuple):
    """Where the posting lists of terms are; see `PostingLists`."""

    terms: np.ndarray
    block_starts: np.ndarray
    ranges: np.ndarray
    maxima: np.ndarray


@dataclass(frozen=True, eq=False)
class PostingLists:
    """The posting lists of one kind, small or large."""

    terms: np.ndarray
    """[t] uint32: the term numbers that have a list, ascending."""
    block_starts: np.ndarray
    """[t + 1] uint32: where each term's blocks start."""
    ranges: np.ndarray
    """[r] uint16: the range of each block, ascending within a term."""
    starts: np.ndarray
    """[r + 1] uint32: where each block's postings start."""
    postings: np.ndarray
    """[p] uint16: the document's place in its range, ascending in a block; in small lists the value minus one above."""
    values: np.ndarray
    """[p] what large lists store; empty in small lists."""
    maxima: np.ndarray
    """[t] float64: the largest value of each large list; empty in small lists."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.postings)

    @cached_property
    def directory(self) -> Directory:
        """Where the lists of terms are, as the kernels read it."""
        return Directory(self.terms, self.block_starts, self.ranges, self.maxima)

    @cached_property
    def all_blocks(self) -> Blocks:
        """All blocks, as the kernels read them."""
        return Blocks(self.ranges, self.starts, self.postings, self.values)

    def places(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these terms stand in `self.terms`, and whether they have a list."""
        if len(self.terms) == 0:
            return np.zeros(len(terms), np.int64), np.zeros(len(terms), np.bool_)
        wanted = terms.astype(self.terms.dtype)  # searchsorted would copy `terms` to the wider type; -1 is no term
        at = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return at, self.terms[at] == terms

    def find(self, terms: np.ndarray, blocks: np.ndarray, maxima: np.ndarray) -> None:
        """Put where the blocks of these terms start and end into `blocks`, and their largest values into `maxima`."""
        if not find_blocks(self.terms, self.block_starts, self.ranges, self.maxima, terms, blocks, maxima):
            raise DamagedSegmentError

    def frequencies(self, terms: np.ndarray) -> np.ndarray:
        """How long the lists of these terms are; 0 for a term without one."""
        blocks, lengths = np.empty((len(terms), 2), np.int64), np.empty(len(terms), np.int64)
        self.find(terms, blocks, np.empty(len(terms)))
        if not _measure(self.starts, blocks, lengths, len(self.postings)):
            raise DamagedSegmentError
        return lengths

    def bytes_of(self, terms: np.ndarray) -> int:
        """How many bytes the lists of these terms take."""
        places, has_list = self.places(terms)
        present = places[has_list]
        first, last = self.block_starts[present].astype(np.int64), self.block_starts[present + 1].astype(np.int64)
        postings = int((self.starts[last].astype(np.int64) - self.starts[first]).sum())
        per_term = self.terms.itemsize + self.block_starts.itemsize + (self.maxima.itemsize if len(self.maxima) else 0)
        per_block = self.ranges.itemsize + self.starts.itemsize
        per_posting = self.postings.itemsize + (self.values.itemsize if len(self.values) else 0)
        return len(present) * per_term + int((last - first).sum()) * per_block + postings * per_posting

    def list_of(self, term: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents, below `size`, of one term, and its values there."""
        (place,), (has_list,) = self.places(np.array([term]))
        _, documents, values = self.unpack(size, place, place + int(has_list))
        return documents, values

    def fit(self) -> bool:
        """Whether the arrays can belong together, by their shapes and last entries alone."""
        return (
            len(self.block_starts) == len(self.terms) + 1
            and len(self.starts) == len(self.ranges) + 1
            and int(self.block_starts[-1]) == len(self.ranges)
            and int(self.starts[-1]) == len(self.postings)
        )

    def check(self) -> None:
        """Refuse lists and blocks that do not lie end to end."""
        if (
            not self.fit()
            or self.block_starts[0]
            or self.starts[0]
            or _descend(self.block_starts)
            or _descend(self.starts)
        ):
            raise DamagedSegmentError

    def unpack(self, size: int, first: int = 0, last: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lists of places first .. last - 1 in full: where each starts, documents below `size`, values."""
        blocks = self.block_starts[first : None if last is None else last + 1].astype(np.int64)
        if len(blocks) < 2:
            return np.zeros(1, np.int64), np.zeros(0, np.uint32), np.zeros(0, self.value_type)
        if _descend(blocks) or blocks[-1] >= len(self.starts) or blocks[-1] > len(self.ranges):
            raise DamagedSegmentError
        starts = self.starts[blocks[0] : blocks[-1] + 1].astype(np.int64)
        if _descend(starts) or starts[-1] > len(self.postings):
            raise DamagedSegmentError
        count = int(starts[-1] - starts[0])
        documents, values = np.empty(count, np.uint32), np.empty(count, self.value_type)
        if not _unpack(blocks, self.ranges, self.starts, self.postings, self.values, size, documents, values):
            raise DamagedSegmentError
        return starts[blocks - blocks[0]] - starts[0], documents, values

    def within(self, doc_range: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The postings of one range of documents, by term: terms, places of documents in the range, values."""
        blocks = np.flatnonzero(self.ranges == doc_range)
        lists = np.searchsorted(self.block_starts, blocks, side="right") - 1
        starts, ends = self.starts[blocks].astype(np.int64), self.starts[blocks + 1].astype(np.int64)
        counts = ends - starts
        if (counts < 0).any() or (ends > len(self.postings)).any() or (lists >= len(self.terms)).any():
            raise DamagedSegmentError
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        found = self.postings[at]
        values = self.values[at] if len(self.values) else (found >> RANGE_BITS).astype(np.uint8) + np.uint8(1)
        return np.repeat(self.terms[lists], counts), found & np.uint16(OFFSET_MASK), values

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


@njit_no_alloc
def find_blocks(terms, blocks, ranges, maxima, wanted, out, out_maxima):
    for i in range(wanted.size):
        first, last = 0, terms.size
        while first < last:
            middle = (first + last) >> 1
            if terms[middle] < wanted[i]:
                first = middle + 1
            else:
                last = middle
        out[i, 0] = out[i, 1] = 0
        if first < terms.size and terms[first] == wanted[i]:
            out[i, 0], out[i, 1] = blocks[first], blocks[first + 1]
            if not out[i, 0] <= out[i, 1] <= ranges.size:
                return False
            if maxima.size:
                out_maxima[i] = maxima[first]
    return True


@njit_no_alloc
def _measure(starts, blocks, lengths, max_length):
    for i in range(lengths.size):
        a, z = blocks[i]
        lengths[i] = np.int64(starts[z]) - np.int64(starts[a]) if a < z else 0
        if not 0 <= lengths[i] <= max_length:
            return False
    return True


@njit_no_alloc
def _unpack(blocks, ranges, starts, postings, stored_values, size, documents, values):
    base = np.int64(starts[blocks[0]])
    for r in range(blocks[0], blocks[-1]):
        range_start = np.int64(ranges[r]) << RANGE_BITS
        for x in range(starts[r], starts[r + 1]):
            posting = np.int64(postings[x])
            d = range_start + (posting & OFFSET_MASK)
            if d >= size:
                return False
            documents[x - base] = d
            values[x - base] = stored_values[x] if stored_values.size else (posting >> RANGE_BITS) + 1
    return True


@njit_no_alloc
def _count(pointers, documents, values, small, lists, blocks):
    """How many postings and blocks of one kind each list has."""
    for t in range(pointers.size - 1):
        doc_range = np.int64(-1)
        for x in range(pointers[t], pointers[t + 1]):
            if (1 <= values[x] <= MAX_SMALL and values[x] == np.uint32(values[x])) == small:
                lists[t] += 1
                w = np.int64(documents[x]) >> RANGE_BITS
                blocks[t] += w != doc_range
                doc_range = w


@njit_no_alloc
def _pack(pointers, documents, values, small, ranges, starts, postings, out):
    at, block = 0, 0
    for t in range(pointers.size - 1):
        doc_range = np.int64(-1)
        for x in range(pointers[t], pointers[t + 1]):
            if (1 <= values[x] <= MAX_SMALL and values[x] == np.uint32(values[x])) == small:
                d = np.int64(documents[x])
                if d >> RANGE_BITS != doc_range:
                    doc_range = d >> RANGE_BITS
                    ranges[block] = doc_range
                    starts[block] = at
                    block += 1
                posting = d & OFFSET_MASK
                if small:
                    posting |= (np.int64(values[x]) - 1) << RANGE_BITS
                else:
                    out[at] = values[x]
                postings[at] = posting
                at += 1
    starts[block] = at


def pack(
    terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray
) -> tuple[PostingLists, PostingLists]:
    """Unpacked lists, documents ascending, as small and as large posting lists.

    >>> small, large = pack(np.array([3, 9]), np.array([0, 2, 3]), np.array([0, 20_000, 1]), np.array([1, 2, 7]))
    >>> small.terms.tolist(), small.ranges.tolist(), small.postings.tolist()
    ([3], [0, 1], [0, 20000])
    >>> large.terms.tolist(), large.postings.tolist(), large.values.tolist()
    ([9], [1], [7])
    """
    return _packed(terms, pointers, documents, values, True), _packed(terms, pointers, documents, values, False)


def _packed(
    terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray, small: bool
) -> PostingLists:
    lists, blocks = np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
    _count(pointers, documents, values, small, lists, blocks)
    present = lists > 0
    count, block_count = int(lists.sum()), int(blocks.sum())
    ranges, starts = np.empty(block_count, np.uint16), np.empty(block_count + 1, np.uint32)
    postings, out = np.empty(count, np.uint16), np.empty(0 if small else count, values.dtype)
    _pack(pointers, documents, values, small, ranges, starts, postings, out)
    ends = np.append(0, np.cumsum(lists[present]))[:-1]
    maxima = np.maximum.reduceat(out, ends).astype(np.float64) if len(out) else np.zeros(0)
    return PostingLists(
        terms[present].astype(np.uint32), np.append(0, np.cumsum(blocks[present])).astype(np.uint32), ranges, starts,
        postings, out, maxima,
    )  # fmt: skip
