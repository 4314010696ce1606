"""Merging segments: the living documents of several, in order, as one; bounded in memory.

Everything that grows with documents, terms or blocks is planned in memory; postings, which are most of it, come in
chunks. Small lists stay small and large ones large, so that each kind is merged for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError
from vizsla.engine.list_directory import BlockTable
from vizsla.engine.posting_lists import OFFSET_MASK, RANGE_BITS, PostingLists
from vizsla.engine.posting_vectors import MergedVectorPostings
from vizsla.engine.segment import Segment, pad_lengths, smallest_numbers
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_rows import VectorRows, select_rows
from vizsla.kernels import njit_no_alloc

GONE = -1


@njit_no_alloc
def _count_living(blocks, ranges, starts, postings, values, moved, places, last, lists, lengths, maxima):
    """Count for each term the blocks and postings that living documents will have, and its largest value."""
    for t in range(places.size):
        p = places[t]
        for r in range(blocks[t], blocks[t + 1]):
            base = np.int64(ranges[r]) << RANGE_BITS
            for x in range(starts[r], starts[r + 1]):
                old = base + np.int64(postings[x] & np.uint16(OFFSET_MASK))
                if old >= moved.size:
                    return False
                if moved[old] >= 0:
                    lengths[p] += 1
                    lists[p] += moved[old] >> RANGE_BITS != last[p]
                    last[p] = moved[old] >> RANGE_BITS
                    if values.size:
                        maxima[p] = max(maxima[p], np.float64(values[x]))
    return True


@njit_no_alloc
def _move(
    blocks, ranges, starts, postings, values, first, moved, places, last, block_free, free, block_base, base,
    new_ranges, new_starts, new_postings, new_values,
):  # fmt: skip
    """Move the lists of some terms, the first of which is at `first`, to their places, documents renumbered."""
    for t in range(places.size):
        p = places[t]
        for r in range(blocks[first + t], blocks[first + t + 1]):
            range_start = np.int64(ranges[r]) << RANGE_BITS
            for x in range(starts[r], starts[r + 1]):
                old = range_start + np.int64(postings[x] & np.uint16(OFFSET_MASK))
                if old >= moved.size:
                    return False
                d = moved[old]
                if d < 0:
                    continue
                at, block = free[p] - base, block_free[p] - block_base
                if d >> RANGE_BITS != last[p]:
                    if not 0 <= block < new_ranges.size:
                        return False
                    new_ranges[block] = d >> RANGE_BITS
                    new_starts[block] = free[p]
                    block_free[p] += 1
                    last[p] = d >> RANGE_BITS
                if not 0 <= at < new_postings.size:
                    return False
                new_postings[at] = (postings[x] & np.uint16(~OFFSET_MASK & 0xFFFF)) | np.uint16(d & OFFSET_MASK)
                if values.size:
                    new_values[at] = values[x]
                free[p] += 1
    return True


class Piece(NamedTuple):
    """Some of the blocks and postings of merged lists; who writes them adds the end of the last block to `starts`."""

    ranges: np.ndarray
    starts: np.ndarray
    postings: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class MergedPostingLists:
    """The plan of a merge of lists of one kind: their directory, and how the old ones map to it."""

    old: Sequence[tuple[PostingLists, BlockTable]]
    """The lists that are merged, each with its directory."""
    moved: Sequence[np.ndarray]
    terms: np.ndarray
    block_starts: np.ndarray
    """[t + 1] where each term's blocks start."""
    posting_starts: np.ndarray
    """[t + 1] where each term's postings start."""
    maxima: np.ndarray
    value_type: np.dtype

    @classmethod
    def plan(cls, old: Sequence[PostingLists], moved: Sequence[np.ndarray]) -> MergedPostingLists:
        pairs = [(lists, lists.table()) for lists in old]
        terms = np.unique(np.concatenate([table.terms for _, table in pairs]))
        last = np.full(len(terms), -1, np.int64)
        block_counts, lengths = np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
        maxima = np.zeros(len(terms))
        for (lists, table), to in zip(pairs, moved, strict=True):
            places = np.searchsorted(terms, table.terms)
            if not _count_living(
                *table[1:], lists.postings, lists.values, to, places, last, block_counts, lengths, maxima
            ):
                raise DamagedSegmentError
        present = lengths > 0
        has_values = any(len(lists.values) for lists in old)
        return cls(
            pairs,
            moved,
            terms[present],
            np.append(0, np.cumsum(block_counts[present])),
            np.append(0, np.cumsum(lengths[present])),
            maxima[present] if has_values else np.zeros(0),
            _common_type([lists.values.dtype for lists in old if len(lists.values)]),
        )

    @property
    def has_values(self) -> bool:
        return len(self.maxima) > 0

    def pieces(self, chunk: int) -> Iterator[Piece]:
        """The merged blocks and postings, list after list, in chunks of about `chunk` postings."""
        block_free, free = self.block_starts[:-1].copy(), self.posting_starts[:-1].copy()
        first = 0
        while first < len(self.terms):
            end = int(np.searchsorted(self.posting_starts, self.posting_starts[first] + chunk, side="right")) - 1
            end = min(max(end, first + 1), len(self.terms))
            yield self._piece(first, end, block_free, free)
            first = end

    def _piece(self, first: int, end: int, block_free: np.ndarray, free: np.ndarray) -> Piece:
        block_base, base = self.block_starts[first], self.posting_starts[first]
        block_count, count = self.block_starts[end] - block_base, self.posting_starts[end] - base
        piece = Piece(
            np.empty(block_count, np.uint16),
            np.empty(block_count, np.uint32),
            np.empty(count, np.uint16),
            np.empty(count if self.has_values else 0, self.value_type),
        )
        last = np.full(len(self.terms), -1, np.int64)
        for (lists, table), to in zip(self.old, self.moved, strict=True):
            a, z = np.searchsorted(table.terms, [self.terms[first], self.terms[end - 1] + 1])
            # A term whose documents are all gone is given another's place, but nothing of it moves there.
            places = np.minimum(np.searchsorted(self.terms, table.terms[a:z]), len(self.terms) - 1)
            if not _move(
                *table[1:], lists.postings, lists.values, a, to, places, last, block_free, free, block_base, base,
                *piece,
            ):  # fmt: skip
                raise DamagedSegmentError
        return piece


def _common_type(types: Sequence[np.dtype]) -> np.dtype:
    """One byte where that is enough, else two or four; 32-bit floats where there are any."""
    if any(t.kind == "f" for t in types):
        return np.dtype(np.float32)
    return max(types, key=lambda t: t.itemsize, default=np.dtype(np.uint8))


@dataclass(frozen=True, eq=False)
class Merge:
    """The plan of a merge: the arrays of the new segment that grow with documents, and its lists."""

    numbers: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray
    small: MergedPostingLists
    large: MergedPostingLists
    old: Sequence[Segment]
    masks: Sequence[np.ndarray]
    moved: Sequence[np.ndarray]

    def matches(self, space: int) -> MergedVectorPostings:
        """The plan of the new segment's posting lists with vectors of a namespace."""
        return MergedVectorPostings.plan([segment.matches[space] for segment in self.old], self.moved)

    def dense_shape(self, space: int) -> tuple[int, int]:
        """The shape of the new segment's dense vectors of a namespace."""
        widths = {s.dense[space].shape[1] for s in self.old}
        if len(widths) > 1:
            raise DamagedSegmentError
        return len(self.numbers), widths.pop()

    def dense_pieces(self, space: int, chunk: int) -> Iterator[VectorRows]:
        """The living documents' dense vectors of a namespace, about `chunk` numbers at a time, as they are stored."""
        size = max(chunk // max(self.dense_shape(space)[1], 1), 1)
        for segment, mask in zip(self.old, self.masks, strict=True):
            for a in range(0, len(segment), size):
                yield select_rows(segment.dense[space], a, a + size, mask[a : a + size])

    def token_starts(self, space: int) -> np.ndarray:
        """Where the tokens of the new segment's documents begin in a namespace."""
        counts = [np.diff(rows.bounds(0, len(rows)))[mask] for rows, mask in self._token_rows(space)]
        return np.append(0, np.cumsum(np.concatenate(counts)))

    def token_pieces(self, space: int, chunk: int) -> Iterator[VectorRows]:
        """The living documents' token vectors of a namespace, about `chunk` numbers at a time, as they are stored."""
        tokens = max(chunk // max(self.old[0].tokens[space].width, 1), 1)
        for rows, mask in self._token_rows(space):
            for first, last in rows.blocks(0, len(rows), tokens):
                starts = rows.bounds(first, last)
                living = np.repeat(mask[first:last], np.diff(starts))
                yield select_rows(rows.vectors, int(starts[0]), int(starts[-1]), living)

    def sequence_starts(self, space: int) -> np.ndarray:
        """Where the term sequences of the new segment's documents begin in a namespace."""
        pairs = zip(self.old, self.masks, strict=True)
        return np.append(0, np.cumsum(np.concatenate([s.sequences[space].sizes()[mask] for s, mask in pairs])))

    def sequence_pieces(self, space: int, chunk: int) -> Iterator[np.ndarray]:
        """The living documents' term sequences of a namespace, some documents at a time, end to end."""
        for segment, mask in zip(self.old, self.masks, strict=True):
            rows = segment.sequences[space]
            size = max(chunk * max(len(rows), 1) // max(len(rows.numbers), 1), 1)
            for a in range(0, len(rows), size):
                z = min(a + size, len(rows))
                yield rows.select(a, z, mask[a:z])

    def _token_rows(self, space: int) -> list[tuple[TokenRows, np.ndarray]]:
        """The token vectors of the old segments in a namespace, and which documents live."""
        rows = [segment.tokens[space] for segment in self.old]
        if len({some.width for some in rows}) > 1:
            raise DamagedSegmentError
        return list(zip(rows, self.masks, strict=True))

    @classmethod
    def plan(cls, segments: Sequence[Segment], alive: Sequence[np.ndarray | None]) -> Merge:
        """Plan to merge segments whose insertion numbers ascend from one to the next."""
        masks = [np.ones(len(s), np.bool_) if a is None else a for s, a in zip(segments, alive, strict=True)]
        moved, count = [], 0
        for mask in masks:
            living = np.cumsum(mask, dtype=np.int64)
            moved.append(np.where(mask, count + living - 1, GONE).astype(np.int64))
            count += int(living[-1]) if len(living) else 0
        codes = [s.lengths[:, : len(s)][:, m] for s, m in zip(segments, masks, strict=True)]
        return cls(
            smallest_numbers(np.concatenate([s.numbers[m] for s, m in zip(segments, masks, strict=True)])),
            pad_lengths(np.concatenate(codes, axis=1)),
            np.concatenate([s.sizes[:, m] for s, m in zip(segments, masks, strict=True)], axis=1),
            MergedPostingLists.plan([s.small for s in segments], moved),
            MergedPostingLists.plan([s.large for s in segments], moved),
            segments,
            masks,
            moved,
        )


def living_frequencies(segment: Segment, alive: np.ndarray) -> np.ndarray:
    """How many living documents are in each list, first of the small ones, then of the large ones."""
    return np.concatenate([_living(lists, alive) for lists in (segment.small, segment.large)])


def _living(lists: PostingLists, alive: np.ndarray) -> np.ndarray:
    table = lists.table()
    counts, unused = np.zeros(len(table.terms), np.int64), np.zeros(len(table.terms), np.int64)
    to = np.where(alive, 0, GONE).astype(np.int64)
    places = np.arange(len(table.terms))
    none = np.zeros(0)
    if not _count_living(*table[1:], lists.postings, none, to, places, unused.copy(), unused, counts, np.zeros(0)):
        raise DamagedSegmentError
    return counts


@njit_no_alloc
def _count_rows(blocks, ranges, starts, postings, has_gone, gone, counts):
    """Subtract from the count of each list the rows in it that are gone; only blocks of their ranges are read."""
    for t in range(counts.size):
        if not 0 <= blocks[t] <= blocks[t + 1] <= ranges.size:
            return False
        for r in range(blocks[t], blocks[t + 1]):
            if has_gone[ranges[r]]:
                base = np.int64(ranges[r]) << RANGE_BITS
                if starts[r + 1] > postings.size:
                    return False
                for x in range(starts[r], starts[r + 1]):
                    row = base + np.int64(postings[x] & np.uint16(OFFSET_MASK))
                    if row >= gone.size:
                        return False
                    counts[t] -= np.int64(gone[row])
        if counts[t] < 0:
            return False
    return True


def frequencies_without(segment: Segment, before: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """How many living documents are in each list when these rows are deleted, too, as `living_frequencies` counts them.

    `before`: the counts when they lived; None if no document of the segment has been deleted so far. A list is read
    only where such rows can be, so this takes far less time than to count all living documents again.
    """
    gone, has_gone = np.zeros(len(segment), np.bool_), np.zeros(1 << 16, np.bool_)
    gone[rows] = True
    has_gone[rows >> RANGE_BITS] = True
    found, first = [], 0
    for lists in (segment.small, segment.large):
        table = lists.table()
        last = first + len(table.terms)
        if before is None:
            counts = np.diff(table.starts[table.block_starts].astype(np.int64))
        else:
            counts = before[first:last].astype(np.int64)
        first = last
        if len(counts) != len(table.terms) or not _count_rows(*table[1:], lists.postings, has_gone, gone, counts):
            raise DamagedSegmentError
        found.append(counts)
    return np.concatenate(found)
