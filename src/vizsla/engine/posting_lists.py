"""Posting lists, packed: two bytes a posting or less, cut into blocks by document ranges.

A term can have a *small* list, of values from 1 to 4, and a *large* one; a document is in one of the two. Where few
values are that small, as in learned weights, the large list has them all, so that a search reads one list. A block is
the part of a list that belongs to one range, see `blocks.py`. The blocks of a term lie one after the other; a range
without a posting has no block. `list_directory.py` says where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, freeze, in_own_pages
from vizsla.engine.blocks import (
    BLOCKS,
    MAX_SMALL,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    VALUE_TYPES,
    WORDS,
    Blocks,
    block_bounds,
    is_bitmap,
    number_at,
    unpack_bitmap,
    with_bitmaps,
)
from vizsla.engine.list_directory import MAX_RANGES, BlockTable, ListDirectory, open_lists
from vizsla.engine.threads import in_threads_by_size
from vizsla.kernels import njit
from vizsla.lazy import cached_property


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
    """[p] uint16: the document's offset in its range, ascending in a block; small lists have value - 1 in the top bits.
    Blocks of small lists with many postings are bitmaps."""
    values: np.ndarray
    """[p] what large lists store; empty, and of bytes, in small lists."""
    maxima: np.ndarray
    """[t] float64: the largest value of each large list; empty in small lists."""

    def __post_init__(self) -> None:
        if len(self.values) == 0:  # kernels are compiled for one type of small lists
            object.__setattr__(self, "values", np.zeros(0, np.uint8))
        freeze(self)

    @classmethod
    def of_plain(cls, table: BlockTable, postings: np.ndarray, values: np.ndarray, maxima: np.ndarray) -> PostingLists:
        """Lists whose blocks are all plain; those of small ones that have many postings become bitmaps."""
        if len(values) == 0:
            starts, postings = with_bitmaps(table.starts, postings)
            table = table._replace(starts=starts)
        return cls(ListDirectory.pack(table), postings, values, maxima)

    def __len__(self) -> int:
        """How many postings there are."""
        return self._count

    @cached_property
    def _count(self) -> int:
        return len(self.values) or self.directory.count_postings()

    @property
    def terms(self) -> np.ndarray:
        """The numbers of the terms that have a list, ascending; they are read from the directory."""
        return self.directory.unpack().terms

    def open(
        self, terms: np.ndarray, range_count: int, blocks: np.ndarray, maxima: np.ndarray, column: int = 0
    ) -> Blocks:
        """The blocks of some terms, of a segment with `range_count` document ranges.

        Where they start and end is put into two columns of `blocks`, and the largest values into `maxima`.
        """
        places, counts = self.directory.find(terms)
        size = int(np.minimum(counts, range_count).sum()) + len(terms) + 1
        found = Blocks(np.empty(size, np.uint16), np.empty(size, np.uint32), self.postings, *self.value_bytes)
        where, out = (self.directory.groups, self.directory.records), (found.ranges, found.starts, places)
        if not open_lists(*where, terms, len(self.postings), range_count, *out, blocks, column):
            raise DamagedSegmentError
        if len(self.maxima):
            present = places >= 0
            maxima[present] = self.maxima[places[present]]
        return found

    def frequencies(self, terms: np.ndarray) -> np.ndarray:
        """How many postings these terms have; 0 for a term without a list."""
        return self.directory.find(terms)[1]

    def bytes_of(self, terms: np.ndarray) -> int:
        """About how many bytes the lists of these terms take, with their share of the directory."""
        places, counts = self.directory.find(terms)
        lists = int((places >= 0).sum())
        directory = self.directory.nbytes * lists // max(len(self.directory), 1)
        postings = (self.postings.nbytes + self.values.nbytes) * int(counts.sum()) // max(len(self), 1)
        return directory + lists * (self.maxima.itemsize if len(self.maxima) else 0) + postings

    def list_of(self, term: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents, below `size`, of one term, and its values there."""
        wanted, blocks = np.array([term], np.int64), np.empty((1, 2), np.int64)
        found = self.open(wanted, MAX_RANGES, blocks, np.empty(1))
        return self._unpack(found, np.arange(*blocks[0].tolist()), size, int(self.frequencies(wanted)[0]))[:2]

    def fit(self) -> bool:
        """Whether the arrays are consistent, judging only by their shapes and last entries."""
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
        documents, values, _ = self._unpack(self.blocks(table), np.arange(len(table.ranges)), size, len(self))
        return np.append(0, np.cumsum(table.counts)), documents, values

    def within(self, doc_range: int, table: BlockTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The postings of one range of documents, by term: terms, places of documents in the range, values.

        `table`: the directory in plain arrays.
        """
        wanted = np.flatnonzero(table.ranges == doc_range)
        lists = np.searchsorted(table.block_starts, wanted, side="right") - 1
        places = table.starts[wanted + 1].astype(np.int64) - table.starts[wanted]
        size = int(np.where((places >= WORDS) & (len(self.values) == 0), RANGE_SIZE, places).sum())
        documents, values, counts = self._unpack(self.blocks(table), wanted, MAX_RANGES * RANGE_SIZE, size)
        return np.repeat(table.terms[lists], counts), (documents & OFFSET_MASK).astype(np.uint16), values

    def blocks(self, table: BlockTable) -> Blocks:
        """All blocks, for kernels; `table`: the directory in plain arrays."""
        return Blocks(table.ranges, table.starts, self.postings, *self.value_bytes)

    @property
    def value_bytes(self) -> tuple[np.ndarray, int]:
        """The values as `Blocks` has them."""
        return self.values.view(np.uint8), VALUE_TYPES.index(self.values.dtype.name)

    def _unpack(
        self, blocks: Blocks, wanted: np.ndarray, size: int, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The documents and values of some blocks, and the number of postings of each block."""
        documents, values = np.empty(count, np.uint32), np.empty(count, self.values.dtype)
        counts, memory = np.empty(len(wanted), np.int64), np.empty(RANGE_SIZE, np.uint16)
        found = _unpack_blocks(blocks, wanted, size, memory, documents, values, counts)
        if found < 0:
            raise DamagedSegmentError
        return documents[:found], values[:found], counts


@njit
def _unpack_plain(postings, a, z, lists, doc_range, size, at, documents, values):
    """Put a plain block's documents and values into arrays from a place on; False if one is not below `size`."""
    base = np.int64(doc_range) << RANGE_BITS
    for x in range(a, z):
        posting = np.int64(postings[x])
        d = base + (posting & OFFSET_MASK)
        if d >= size:
            return False
        documents[at + x - a] = d
        stored = number_at(lists.values, lists.kind, x) if lists.values.size else (posting >> RANGE_BITS) + 1
        values[at + x - a] = stored
    return True


@njit(*(f"{BLOCKS}, const int64[:], int64, uint16[:], uint32[:], {values}[:], int64[:]" for values in VALUE_TYPES))
def _unpack_blocks(lists, wanted, size, memory, documents, values, counts):
    """Put the documents and values of some blocks into arrays; returns how many they are, -1 for damage."""
    at = 0
    for j in range(wanted.size):
        r = wanted[j]
        a, z = block_bounds(lists, r)
        as_bitmap = is_bitmap(lists, a, z)
        count = unpack_bitmap(lists.postings, a, z, memory) if as_bitmap else z - a
        if count < 0 or at + count > documents.size:
            return -1
        if as_bitmap:
            sound = _unpack_plain(memory, 0, count, lists, lists.ranges[r], size, at, documents, values)
        else:
            sound = _unpack_plain(lists.postings, a, z, lists, lists.ranges[r], size, at, documents, values)
        if not sound:
            return -1
        counts[j] = count
        at += count
    return at


@njit
def _fits(value):
    """Whether a small list can hold a value."""
    return 1 <= value <= MAX_SMALL and value == np.uint32(value)


@njit
def _has_small_list(values, a, z):
    """Whether a term with the values[a:z] has a small list: if more than a quarter of them fit into one."""
    count = 0
    for x in range(a, z):
        count += _fits(values[x])
    return 4 * count > z - a


@njit(*(f"const int64[:], const uint32[:], const {values}[:], bool, int64[:], int64[:]" for values in VALUE_TYPES))
def _count(pointers, documents, values, small, lists, blocks):
    """How many postings and blocks of one kind each list has."""
    for t in range(pointers.size - 1):
        doc_range, has_small = np.int64(-1), _has_small_list(values, pointers[t], pointers[t + 1])
        for x in range(pointers[t], pointers[t + 1]):
            if (has_small and _fits(values[x])) == small:
                lists[t] += 1
                w = np.int64(documents[x]) >> RANGE_BITS
                blocks[t] += w != doc_range
                doc_range = w


@njit(
    *(
        f"const int64[:], const uint32[:], const {values}[:], bool, uint16[:], uint32[:], uint16[:], {values}[:]"
        for values in VALUE_TYPES
    )
)
def _pack(pointers, documents, values, small, ranges, starts, postings, out):
    at, block = 0, 0
    for t in range(pointers.size - 1):
        doc_range, has_small = np.int64(-1), _has_small_list(values, pointers[t], pointers[t + 1])
        for x in range(pointers[t], pointers[t + 1]):
            if (has_small and _fits(values[x])) == small:
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


_LEAST = 1 << 18  # postings that a thread packs


def pack(
    terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray
) -> tuple[PostingLists, PostingLists]:
    """Unpacked lists, documents ascending, as small and as large posting lists.

    >>> documents, values = np.array([0, 20_000, 1], np.uint32), np.array([1, 2, 7], np.uint8)
    >>> small, large = pack(np.array([3, 9]), np.array([0, 2, 3]), documents, values)
    >>> small.terms.tolist(), small.table().ranges.tolist(), small.postings.tolist()
    ([3], [0, 1], [0, 20000])
    >>> large.terms.tolist(), large.postings.tolist(), large.values.tolist()
    ([9], [1], [7])
    """
    return _packed(terms, pointers, documents, values, True), _packed(terms, pointers, documents, values, False)


def _packed(
    terms: np.ndarray, pointers: np.ndarray, documents: np.ndarray, values: np.ndarray, small: bool
) -> PostingLists:
    lists, blocks = np.zeros((2, len(terms)), np.int64)

    def count(a: int, z: int) -> None:
        _count(pointers[a : z + 1], documents, values, small, lists[a:z], blocks[a:z])

    if len(documents) < 2 * _LEAST:
        count(0, len(terms))
    else:
        in_threads_by_size(count, pointers, _LEAST)
    ends, block_ends = np.append(0, np.cumsum(lists)), np.append(0, np.cumsum(blocks))
    ranges, starts = np.empty(block_ends[-1], np.uint16), np.full(block_ends[-1] + 1, ends[-1], np.uint32)
    empty = np.empty if len(documents) < 2 * _LEAST else in_own_pages
    postings, out = empty(int(ends[-1]), np.uint16), empty(0 if small else int(ends[-1]), values.dtype)

    def fill(a: int, z: int) -> None:
        own, own_blocks = slice(ends[a], ends[z]), slice(block_ends[a], block_ends[z])
        places = np.empty(block_ends[z] - block_ends[a] + 1, np.uint32)
        _pack(pointers[a : z + 1], documents, values, small, ranges[own_blocks], places, postings[own], out[own])
        starts[own_blocks] = places[:-1] + ends[a]

    if len(documents) < 2 * _LEAST:
        fill(0, len(terms))
    else:
        in_threads_by_size(fill, pointers, _LEAST)
    present = lists > 0
    maxima = np.maximum.reduceat(out, ends[:-1][present]).astype(np.float64) if len(out) else np.zeros(0)
    block_starts = np.append(0, np.cumsum(blocks[present]))
    table = BlockTable.plain(terms[present].astype(np.uint32), block_starts, ranges, starts)
    return PostingLists.of_plain(table, postings, out, maxima)
