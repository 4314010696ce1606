"""Posting lists, packed: two bytes a posting, cut into blocks by document ranges.

A document range has 16,384 documents, so a posting needs 14 bits to name its document inside a range. In *small*
lists the other two bits hold the value, 1 to 4: nearly all counts of words are that small. *Large* lists hold any
value in an array beside the postings. A term can have a list of each kind; a document is in one of the two.

A block is the part of a list that belongs to one range. The blocks of a term lie one after the other; a range without
a posting has no block. `list_directory.py` says where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, freeze
from vizsla.engine.list_directory import MAX_RANGES, BlockTable, ListDirectory, open_lists
from vizsla.kernels import njit_no_alloc

RANGE_BITS = 14
RANGE_SIZE = 1 << RANGE_BITS
OFFSET_MASK = RANGE_SIZE - 1
MAX_SMALL = 4
"""The largest value that rides in the two bits an offset leaves free."""


class Blocks(NamedTuple):
    """Blocks of lists of one kind: those that a query's terms have, with all postings."""

    ranges: np.ndarray
    """[r] uint16: the range of each block."""
    starts: np.ndarray
    """[r + 1] uint32: where each block's postings start; that of the next block is where they end."""
    postings: np.ndarray
    values: np.ndarray


class Directory(NamedTuple):
    """Where the posting lists of terms are, as kernels read it; see `ListDirectory` and `PostingLists`."""

    groups: np.ndarray
    records: np.ndarray
    maxima: np.ndarray


@dataclass(frozen=True, eq=False)
class PostingLists:
    """The posting lists of one kind, small or large."""

    directory: ListDirectory
    """Which terms have a list, and where its blocks are."""
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

    @property
    def terms(self) -> np.ndarray:
        """The numbers of the terms that have a list, ascending; they are read from the directory."""
        return self.directory.unpack().terms

    def open(self, terms: np.ndarray, range_count: int, blocks: np.ndarray, maxima: np.ndarray) -> Blocks:
        """The blocks of some terms, in documents of so many ranges.

        Where they start and end is put into `blocks`, [n, 2], and the largest values into `maxima`.
        """
        places, lengths = self.directory.find(terms)
        size = int(np.minimum(lengths, range_count).sum()) + len(terms) + 1
        found = Blocks(np.empty(size, np.uint16), np.empty(size, np.uint32), self.postings, self.values)
        where = self.directory.groups, self.directory.records
        if not open_lists(*where, terms, len(self), range_count, found.ranges, found.starts, places, blocks):
            raise DamagedSegmentError
        if len(self.maxima):
            present = places >= 0
            maxima[present] = self.maxima[places[present]]
        return found

    def frequencies(self, terms: np.ndarray) -> np.ndarray:
        """How long the lists of these terms are; 0 for a term without one."""
        return self.directory.find(terms)[1]

    def bytes_of(self, terms: np.ndarray) -> int:
        """How many bytes the lists of these terms take, with their share of the directory."""
        places, lengths = self.directory.find(terms)
        count = int((places >= 0).sum())
        directory = self.directory.nbytes * count // max(len(self.directory), 1)
        per_posting = self.postings.itemsize + (self.values.itemsize if len(self.values) else 0)
        return directory + count * (self.maxima.itemsize if len(self.maxima) else 0) + int(lengths.sum()) * per_posting

    def list_of(self, term: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents, below `size`, of one term, and its values there."""
        wanted, blocks = np.array([term], np.int64), np.empty((1, 2), np.int64)
        found = self.open(wanted, MAX_RANGES, blocks, np.empty(1))
        first, last = blocks[0].tolist()
        return self._unpack(found.ranges[first:last], found.starts[first : last + 1], size)

    def fit(self) -> bool:
        """Whether the arrays can belong together, by their shapes and last entries alone."""
        return self.directory.fits(len(self.postings))

    def check(self) -> None:
        """Refuse lists and blocks that do not lie end to end."""
        self.table()

    def table(self) -> BlockTable:
        """The directory in plain arrays; lists and blocks that do not lie end to end are refused."""
        if not self.fit():
            raise DamagedSegmentError
        return self.directory.unpack()

    def unpack(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All lists in full: where each starts, documents below `size`, values."""
        table = self.table()
        documents, values = self._unpack(table.ranges, table.starts, size)
        return table.starts[table.block_starts].astype(np.int64), documents, values

    def _unpack(self, ranges: np.ndarray, starts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents and values of neighbouring blocks; `starts` has one more entry than there are blocks."""
        count = int(starts[-1]) - int(starts[0]) if len(ranges) else 0
        documents, values = np.empty(count, np.uint32), np.empty(count, self.value_type)
        if not _unpack(ranges, starts, self.postings, self.values, size, documents, values):
            raise DamagedSegmentError
        return documents, values

    def within(self, doc_range: int, table: BlockTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The postings of one range of documents, by term: terms, places of documents in the range, values.

        `table`: the directory in plain arrays.
        """
        blocks = np.flatnonzero(table.ranges == doc_range)
        lists = np.searchsorted(table.block_starts, blocks, side="right") - 1
        starts, ends = table.starts[blocks].astype(np.int64), table.starts[blocks + 1].astype(np.int64)
        counts = ends - starts
        at = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        found = self.postings[at]
        values = self.values[at] if len(self.values) else (found >> RANGE_BITS).astype(np.uint8) + np.uint8(1)
        return np.repeat(table.terms[lists], counts), found & np.uint16(OFFSET_MASK), values

    @property
    def value_type(self) -> np.dtype:
        return self.values.dtype if len(self.values) else np.dtype(np.uint8)


@njit_no_alloc
def _unpack(ranges, starts, postings, stored_values, size, documents, values):
    base = np.int64(starts[0])
    for r in range(ranges.size):
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
    >>> small.terms.tolist(), small.table().ranges.tolist(), small.postings.tolist()
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
    block_starts = np.append(0, np.cumsum(blocks[present]))
    table = BlockTable(terms[present].astype(np.uint32), block_starts, ranges, starts)
    return PostingLists(ListDirectory.pack(table), postings, out, maxima)
