"""The directory of posting lists: where the blocks of each term are, in a few bytes per list.

Most terms of a collection are rare: half of them are in a single document. So a directory is not an array with a
number for each term and each block; it would take more space than the postings of rare terms. It is a sequence of
*records*, one per list, in the order of the term numbers:

    gap, length [, 0, count] [, bytes], blocks

All numbers are varints: seven bits per byte, lowest first; the highest bit means that another byte follows. `gap` is
the difference to the previous term number, `length` the size of the list in 16-bit words: one per posting, except in
bitmaps, see `blocks.py`. A block is twice the difference to the previous document range, plus 1 if its size is one
word; otherwise its size follows. The size of the last block is not stored: it is the rest of the length. `bytes`, the
size of the blocks, is left out if the list has one posting. `count`, the number of postings, follows a 0 if it differs
from the length, because of bitmaps. Every 16 records form a *group*. The array `groups` has the first term number of
each, and the positions of its first record and first posting, so that a search reads at most 16 records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, freeze, read_only
from vizsla.kernels import njit

GROUP = 16
MAX_RANGES = 1 << 16


class BlockTable(NamedTuple):
    """A directory in plain arrays, which is what merges and checks read."""

    terms: np.ndarray
    """[t] uint32: the term numbers that have a list, ascending."""
    block_starts: np.ndarray
    """[t + 1] int64: where each term's blocks start."""
    ranges: np.ndarray
    """[r] uint16: the range of each block, ascending within a term."""
    starts: np.ndarray
    """[r + 1] uint32: where each block's postings start."""
    counts: np.ndarray
    """[t] int64: how many postings each term has."""

    @classmethod
    def plain(cls, terms: np.ndarray, block_starts: np.ndarray, ranges: np.ndarray, starts: np.ndarray) -> BlockTable:
        """A table of lists without bitmaps, in which a posting takes one place."""
        if len(block_starts) == 0 or int(block_starts.max()) >= len(starts):
            raise DamagedSegmentError
        return cls(terms, block_starts, ranges, starts, np.diff(starts[block_starts].astype(np.int64)))


@dataclass(frozen=True, eq=False)
class ListDirectory:
    """The terms that have a posting list, and where the blocks of each are.

    >>> table = BlockTable.plain(np.array([3, 9]), np.array([0, 2, 3]), np.array([0, 1, 7]), np.array([0, 5, 6, 7]))
    >>> directory = ListDirectory.pack(table)
    >>> directory.records.tolist(), directory.groups.tolist()
    ([0, 6, 3, 0, 5, 2, 6, 1, 14], [[3, 0, 0], [2, 9, 7]])
    >>> [array.tolist() for array in directory.unpack()]
    [[3, 9], [0, 2, 3], [0, 1, 7], [0, 5, 6, 7], [6, 1]]
    """

    groups: np.ndarray
    """[g + 1, 3] uint32: the first term, record and posting of each group; in the last row the number of lists and
    where the last record and the last posting end."""
    records: np.ndarray
    """[b] uint8."""

    def __post_init__(self) -> None:
        freeze(self)

    @classmethod
    def pack(cls, table: BlockTable) -> ListDirectory:
        """The directory of a table; a list has one posting at least, and so does a block."""
        count, blocks = len(table.terms), len(table.ranges)
        if not _lie_end_to_end(table):
            raise DamagedSegmentError
        groups = np.empty((-(-count // GROUP) + 1, 3), np.uint32)
        records = np.empty(21 * count + 8 * blocks, np.uint8)
        types = np.uint32, np.int64, np.uint16, np.uint32, np.int64
        same = [read_only(array.astype(kind, copy=False)) for array, kind in zip(table, types, strict=True)]
        size = _pack(*same, groups, records)
        return cls(groups, records[:size].copy())

    def __len__(self) -> int:
        """How many lists there are."""
        return int(self.groups[-1, 0])

    @property
    def nbytes(self) -> int:
        return self.groups.nbytes + self.records.nbytes

    def fits(self, postings: int) -> bool:
        """Whether the arrays are consistent with `postings` postings, judging only by their shapes and last entries."""
        return (
            len(self.groups) > 0
            and self.groups.shape[1] == 3
            and len(self.groups) == -(-len(self) // GROUP) + 1
            and int(self.groups[-1, 1]) == len(self.records)
            and int(self.groups[-1, 2]) == postings
        )

    def unpack(self) -> BlockTable:
        """The directory in plain arrays."""
        if not self.fits(int(self.groups[-1, 2])):
            raise DamagedSegmentError
        count = len(self)
        if count > len(self.records):
            raise DamagedSegmentError
        blocks = _count_blocks(self.groups, self.records)
        if blocks < 0:
            raise DamagedSegmentError
        table = BlockTable(
            np.empty(count, np.uint32), np.empty(count + 1, np.int64), np.empty(blocks, np.uint16),
            np.empty(blocks + 1, np.uint32), np.empty(count, np.int64),
        )  # fmt: skip
        if not _unpack(self.groups, self.records, *table):
            raise DamagedSegmentError
        return table

    def count_postings(self) -> int:
        """How many postings all lists have."""
        count = _count_postings(self.groups, self.records)
        if count < 0:
            raise DamagedSegmentError
        return int(count)

    def find(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which lists the terms have, counted from 0, or -1, and how many postings these have."""
        places, counts = np.empty(len(terms), np.int64), np.empty(len(terms), np.int64)
        if not _find_counts(self.groups, self.records, terms, places, counts):
            raise DamagedSegmentError
        return places, counts


def _lie_end_to_end(table: BlockTable) -> bool:
    """Whether the lists of a table, and their blocks, follow each other and have postings."""
    terms, block_starts, ranges, starts, counts = (array.astype(np.int64, copy=False) for array in table)
    if len(block_starts) != len(terms) + 1 or len(starts) != len(ranges) + 1:
        return False
    if block_starts[0] != 0 or block_starts[-1] != len(ranges) or starts[0] != 0 or len(counts) != len(terms):
        return False
    lists, rises = np.diff(block_starts) > 0, np.diff(ranges) > 0
    if not lists.all():
        return False
    rises[block_starts[1:-1] - 1] = True  # from one list to the next
    if not (counts > 0).all():
        return False
    return bool((np.diff(terms) > 0).all() and rises.all() and (np.diff(starts) > 0).all())


@njit
def _read(data, at, end):
    """The varint at a position, and the position after it; -1 if it does not end before `end` or is too large."""
    value, shift = np.int64(0), np.int64(0)
    while at < end and shift < 35:
        byte = np.int64(data[at])
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(-1), at


@njit
def _read_head(records, at, end):
    """The gap, length and count of a list, and where its blocks start and end; the length is 0 for damage."""
    gap, at = _read(records, at, end)
    length, at = _read(records, at, end)
    size, count = np.int64(0), length
    if length > 1:
        size, at = _read(records, at, end)
        if size == 0:
            count, at = _read(records, at, end)
            size, at = _read(records, at, end)
    elif length == 1:
        after = at
        range_number, after = _read(records, at, end)
        size = after - at if range_number >= 0 else np.int64(-1)
    if gap < 0 or length < 1 or size < 1 or count < 1 or at + size > end:
        return gap, np.int64(0), count, at, at
    return gap, length, count, at, at + size


@njit
def find_list(groups, records, term):
    """The place of a term's list, its first posting, its length and count, and where its blocks are in the records.

    The place is -1 for a term without a list, and -2 for damage.
    """
    first, last, nothing = 0, groups.shape[0] - 1, np.int64(0)
    while last - first > 1:
        middle = (first + last) >> 1
        if groups[middle, 0] <= term:
            first = middle
        else:
            last = middle
    if first == last or groups[first, 0] > term:
        return np.int64(-1), nothing, nothing, nothing, nothing, nothing
    number, at, posting = np.int64(groups[first, 0]), np.int64(groups[first, 1]), np.int64(groups[first, 2])
    count = int(groups[groups.shape[0] - 1, 0])
    for place in range(first * GROUP, min((first + 1) * GROUP, count)):
        gap, length, postings, start, end = _read_head(records, at, records.size)
        if length == 0:
            return np.int64(-2), nothing, nothing, nothing, nothing, nothing
        number += gap
        if number >= term:
            return (np.int64(place) if number == term else np.int64(-1)), posting, length, postings, start, end
        at, posting = end, posting + length
    return np.int64(-1), nothing, nothing, nothing, nothing, nothing


@njit
def read_blocks(records, start, end, posting, length, range_count, ranges, starts, slot):
    """Put the ranges of a list's blocks and the starts of their postings into arrays, from a slot on.

    Returns the number of blocks, or -1 for damage; the end of the last block is written after the starts.
    """
    doc_range, block, last = np.int64(0), slot, posting + length
    while start < end:
        head, start = _read(records, start, end)
        count = np.int64(1) if head & 1 else last - posting
        if head & 1 == 0 and start < end:
            count, start = _read(records, start, end)
            if start == end:  # the size of the last block is not stored
                return np.int64(-1)
        doc_range += head >> 1
        rises = head >= 0 and (block == slot or head > 1)
        if not rises or doc_range >= range_count or block + 1 >= starts.size or block >= ranges.size:
            return np.int64(-1)
        if count < 1 or posting + count > last:
            return np.int64(-1)
        ranges[block], starts[block] = doc_range, posting
        posting += count
        block += 1
    if posting != last or block == slot:
        return np.int64(-1)
    starts[block] = last
    return block - slot


@njit(
    "const uint32[:,:], const uint8[:], const int64[:], int64, int64, uint16[:], uint32[:], int64[:], int64[:,:], int64"
)
def open_lists(groups, records, terms, postings, range_count, ranges, starts, places, blocks, column):
    """Put the blocks of terms into `ranges` and `starts`, and where they lie there into `blocks`; False for damage.

    `column`: the column of `blocks` for their starts; the next column gets their ends. `places` gets the positions of
    the lists, -1 for a term without one. `postings`: the number of postings.
    """
    slot = np.int64(0)
    for i in range(terms.size):
        place, posting, length, _, start, end = find_list(groups, records, terms[i])
        places[i] = place
        blocks[i, column] = blocks[i, column + 1] = slot
        if place < -1 or posting + length > postings:
            return False
        if place >= 0:
            count = read_blocks(records, start, end, posting, length, range_count, ranges, starts, slot)
            if count < 0:
                return False
            blocks[i, column + 1] = slot + count
            slot += count + 1
    return True


@njit("const uint32[:,:], const uint8[:], const int64[:], int64[:], int64[:]")
def _find_counts(groups, records, terms, places, counts):
    for i in range(terms.size):
        places[i], _, _, counts[i], _, _ = find_list(groups, records, terms[i])
        if places[i] < 0:
            counts[i] = 0
        if places[i] < -1:
            return False
    return True


@njit("const uint32[:,:], const uint8[:]")
def _count_postings(groups, records):
    """How many postings all lists have; -1 for damage."""
    at, total = np.int64(0), np.int64(0)
    for _ in range(groups[groups.shape[0] - 1, 0]):
        _, length, count, _, at = _read_head(records, at, records.size)
        if length == 0:
            return np.int64(-1)
        total += count
    return total


@njit("const uint32[:,:], const uint8[:]")
def _count_blocks(groups, records):
    """How many blocks all lists have; -1 for damage."""
    at, blocks = np.int64(0), 0
    for _ in range(groups[groups.shape[0] - 1, 0]):
        _, length, _, start, end = _read_head(records, at, records.size)
        if length == 0:
            return -1
        at = end
        while start < end:
            head, start = _read(records, start, end)
            if head & 1 == 0 and start < end:
                _, start = _read(records, start, end)
            blocks += 1
    return blocks if at == records.size else -1


@njit("const uint32[:,:], const uint8[:], uint32[:], int64[:], uint16[:], uint32[:], int64[:]")
def _unpack(groups, records, terms, block_starts, ranges, starts, counts):
    at, posting, number, block = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for t in range(terms.size):
        if t % GROUP == 0:
            row = groups[t // GROUP]
            if row[1] != at or row[2] != posting or (t > 0 and row[0] <= number):
                return False
            number = np.int64(row[0])
        gap, length, counts[t], start, at = _read_head(records, at, records.size)
        if length == 0 or (gap == 0) != (t % GROUP == 0) or number + gap >= 1 << 32:
            return False
        number += gap
        terms[t], block_starts[t] = number, block
        count = read_blocks(records, start, at, posting, length, MAX_RANGES, ranges, starts, block)
        if count < 0:
            return False
        block += count
        posting += length
    block_starts[terms.size] = block
    starts[block] = posting
    return block == ranges.size and posting == groups[groups.shape[0] - 1, 2]


@njit
def _write(data, at, value):
    while value > 127:
        data[at] = (value & 127) | 128
        value >>= 7
        at += 1
    data[at] = value
    return at + 1


@njit
def _size(value):
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


@njit
def _head(ranges, r, is_first, has_one):
    """What a block begins with."""
    return (np.int64(ranges[r]) - (0 if is_first else np.int64(ranges[r - 1]))) << 1 | has_one


@njit("const uint32[:], const int64[:], const uint16[:], const uint32[:], const int64[:], uint32[:,:], uint8[:]")
def _pack(terms, block_starts, ranges, starts, counts, groups, records):
    """Write groups and records; returns how many bytes the records take."""
    at = 0
    for t in range(terms.size):
        a, z = np.int64(block_starts[t]), np.int64(block_starts[t + 1])
        length = np.int64(starts[z]) - np.int64(starts[a])
        if t % GROUP == 0:
            group = t // GROUP
            groups[group, 0], groups[group, 1], groups[group, 2] = terms[t], at, starts[a]
            at = _write(records, at, np.int64(0))
        else:
            at = _write(records, at, np.int64(terms[t]) - np.int64(terms[t - 1]))
        at = _write(records, at, length)
        if length > 1:
            size = 0
            for r in range(a, z):
                count = np.int64(starts[r + 1]) - np.int64(starts[r])
                size += _size(_head(ranges, r, r == a, count == 1 and r + 1 < z))
                size += _size(count) if count > 1 and r + 1 < z else 0
            if counts[t] != length:
                at = _write(records, at, np.int64(0))
                at = _write(records, at, counts[t])
            at = _write(records, at, size)
        for r in range(a, z):
            count = np.int64(starts[r + 1]) - np.int64(starts[r])
            at = _write(records, at, _head(ranges, r, r == a, count == 1 and r + 1 < z))
            if count > 1 and r + 1 < z:
                at = _write(records, at, count)
    last = groups.shape[0] - 1
    groups[last, 0], groups[last, 1], groups[last, 2] = terms.size, at, starts[ranges.size]
    return at
