"""Merging segments: the live documents of several, in order, as one; bounded in memory.

Arrays that grow with documents, terms or blocks are computed in memory; postings, which are most of the data, are
written in chunks. Small and large lists are merged separately, since a list never changes its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.arrays import DamagedSegmentError, distinct
from vizsla.engine.blocks import (
    BLOCKS,
    MAX_SMALL,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    VALUE_TYPES,
    block_bounds,
    is_bitmap,
    number_at,
    places_of,
    unpack_bitmap,
    with_bitmaps,
)
from vizsla.engine.list_directory import BlockTable
from vizsla.engine.posting_lists import PostingLists
from vizsla.engine.posting_vectors import MergedVectorPostings
from vizsla.engine.segment import Segment, pad_lengths, smallest_numbers
from vizsla.engine.threads import in_order, in_threads_by_size, processors
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_rows import VectorRows, select_rows
from vizsla.kernels import njit

GONE = -1


class MergeCounts(NamedTuple):
    """What each term will have after a merge."""

    last: np.ndarray
    """The range of its last block so far, -1 before the first."""
    block: np.ndarray
    """[t, 2] how many postings this block has so far, and how many of them with the value 4."""
    blocks: np.ndarray
    postings: np.ndarray
    places: np.ndarray
    """How many places its blocks but the last one take."""
    maxima: np.ndarray

    @classmethod
    def of_size(cls, n: int) -> MergeCounts:
        blocks, postings, places = np.zeros((3, n), np.int64)
        return cls(np.full(n, -1, np.int64), np.zeros((n, 2), np.int64), blocks, postings, places, np.zeros(n))


_COUNTS = "MergeCounts(int64[:], int64[:,:], int64[:], int64[:], int64[:], float64[:])"


@njit
def _end_block(counts, p, plain):
    """Count the places that a term's last block takes; in lists with values every block is plain."""
    count, fours = counts.block[p, 0], counts.block[p, 1]
    counts.places[p] += count if plain else places_of(count, fours)
    counts.block[p, 0] = counts.block[p, 1] = 0


@njit
def _count_block(postings, a, z, lists, base, moved, p, counts):
    """Count the postings of a plain block that live documents will have; False for damage."""
    for x in range(a, z):
        old = base + np.int64(postings[x] & np.uint16(OFFSET_MASK))
        if old >= moved.size:
            return False
        if moved[old] >= 0:
            doc_range = moved[old] >> RANGE_BITS
            if doc_range != counts.last[p]:
                _end_block(counts, p, lists.values.size > 0)
                counts.blocks[p] += 1
                counts.last[p] = doc_range
            counts.postings[p] += 1
            counts.block[p, 0] += 1
            counts.block[p, 1] += (postings[x] >> np.uint16(RANGE_BITS)) == MAX_SMALL - 1
            if lists.values.size:
                counts.maxima[p] = max(counts.maxima[p], number_at(lists.values, lists.kind, x))
    return True


@njit(f"{BLOCKS}, const int64[:], const int64[:], const int64[:], uint16[:], {_COUNTS}")
def _count_living(lists, block_starts, moved, places, memory, counts):
    """Count for each term the blocks, postings and places that live documents will have, and its largest value.

    `memory`: for the postings of a bitmap.
    """
    for t in range(places.size):
        for r in range(block_starts[t], block_starts[t + 1]):
            base = np.int64(lists.ranges[r]) << RANGE_BITS
            a, z = block_bounds(lists, r)
            if is_bitmap(lists, a, z):
                n = unpack_bitmap(lists.postings, a, z, memory)
                sound = _count_block(memory, 0, n, lists, base, moved, places[t], counts)
            else:
                sound = z >= a and _count_block(lists.postings, a, z, lists, base, moved, places[t], counts)
            if not sound:
                return False
    return True


@njit(f"{_COUNTS}, bool")
def _end_blocks(counts, plain):
    for p in range(counts.last.size):
        _end_block(counts, p, plain)


class Piece(NamedTuple):
    """Some of the blocks and postings of merged lists; the caller appends the end of the last block to `starts`."""

    ranges: np.ndarray
    starts: np.ndarray
    postings: np.ndarray
    values: np.ndarray


@njit
def _move_block(postings, a, z, lists, range_start, moved, p, last, block_free, free, block_base, base, piece):
    """Move a plain block of a term to its place, documents renumbered; False for damage."""
    for x in range(a, z):
        old = range_start + np.int64(postings[x] & np.uint16(OFFSET_MASK))
        if old >= moved.size:
            return False
        d = moved[old]
        if d < 0:
            continue
        at, block = free[p] - base, block_free[p] - block_base
        if d >> RANGE_BITS != last[p]:
            if not 0 <= block < piece.ranges.size:
                return False
            piece.ranges[block] = d >> RANGE_BITS
            piece.starts[block] = at
            block_free[p] += 1
            last[p] = d >> RANGE_BITS
        if not 0 <= at < piece.postings.size:
            return False
        piece.postings[at] = (postings[x] & np.uint16(~OFFSET_MASK & 0xFFFF)) | np.uint16(d & OFFSET_MASK)
        if lists.values.size:
            piece.values[at] = number_at(lists.values, lists.kind, x)
        free[p] += 1
    return True


@njit(
    *(
        f"{BLOCKS}, const int64[:], int64, const int64[:], const int64[:], uint16[:], int64[:], int64[:], "
        f"int64[:], int64, int64, Piece(uint16[:], int64[:], uint16[:], {values}[:])"
        for values in VALUE_TYPES
    )
)
def _move(lists, block_starts, first, moved, places, memory, last, block_free, free, block_base, base, piece):
    """Move the lists of some terms, the first of which is at `first`, to their places, all blocks plain."""
    for t in range(places.size):
        for r in range(block_starts[first + t], block_starts[first + t + 1]):
            start = np.int64(lists.ranges[r]) << RANGE_BITS
            a, z = block_bounds(lists, r)
            if is_bitmap(lists, a, z):
                n = unpack_bitmap(lists.postings, a, z, memory)
                sound = _move_block(
                    memory, 0, n, lists, start, moved, places[t], last, block_free, free, block_base, base, piece
                )
            else:
                sound = z >= a and _move_block(
                    lists.postings, a, z, lists, start, moved, places[t], last, block_free, free, block_base,
                    base, piece,
                )  # fmt: skip
            if not sound:
                return False
    return True


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
    """[t + 1] where each term's postings would start if all blocks were plain."""
    size: int
    """How many places the postings take."""
    maxima: np.ndarray
    value_type: np.dtype

    @classmethod
    def plan(cls, old: Sequence[PostingLists], moved: Sequence[np.ndarray]) -> MergedPostingLists:
        pairs = [(lists, lists.table()) for lists in old]
        terms = distinct(np.concatenate([table.terms for _, table in pairs]))
        counts = MergeCounts.of_size(len(terms))
        count_lists(pairs, moved, [np.searchsorted(terms, table.terms) for _, table in pairs], counts)
        has_values = any(len(lists.values) for lists in old)
        _end_blocks(counts, has_values)
        present = counts.postings > 0
        return cls(
            pairs,
            moved,
            terms[present],
            np.append(0, np.cumsum(counts.blocks[present])),
            np.append(0, np.cumsum(counts.postings[present])),
            int(counts.places.sum()),
            counts.maxima[present] if has_values else np.zeros(0),
            _common_type([lists.values.dtype for lists in old if len(lists.values)]),
        )

    @property
    def counts(self) -> np.ndarray:
        """[t] how many postings each term has."""
        return np.diff(self.posting_starts)

    @property
    def has_values(self) -> bool:
        return len(self.maxima) > 0

    def pieces(self, chunk: int) -> Iterator[Piece]:
        """The merged blocks and postings, list after list.

        Threads move some lists each, about `chunk` postings at a time all together.
        """
        threads = max(min(processors(), chunk // _LEAST - 2), 1)
        written = 0
        for piece in in_order(self._piece, self._cuts(chunk if threads == 1 else chunk // (threads + 2)), threads):
            yield piece._replace(starts=(piece.starts + np.int64(written)).astype(np.uint32))
            written += len(piece.postings)

    def _cuts(self, chunk: int) -> Iterator[tuple[int, int]]:
        """Ranges of terms with about `chunk` postings each."""
        first = 0
        while first < len(self.terms):
            end = int(np.searchsorted(self.posting_starts, self.posting_starts[first] + chunk, side="right")) - 1
            end = min(max(end, first + 1), len(self.terms))
            yield first, end
            first = end

    def _piece(self, some: tuple[int, int]) -> Piece:
        """The lists of the terms from one place to another; blocks start where they do in the piece."""
        piece = self._plain_piece(*some)
        if self.has_values:
            return piece
        ends, postings = with_bitmaps(np.append(piece.starts, len(piece.postings)), piece.postings)
        return piece._replace(starts=ends[:-1], postings=postings)

    def _plain_piece(self, first: int, end: int) -> Piece:
        """As `_piece`, all blocks plain."""
        block_free, free = self.block_starts[first:end].copy(), self.posting_starts[first:end].copy()
        block_base, base = self.block_starts[first], self.posting_starts[first]
        block_count, count = self.block_starts[end] - block_base, self.posting_starts[end] - base
        piece = Piece(
            np.empty(block_count, np.uint16),
            np.empty(block_count, np.int64),
            np.empty(count, np.uint16),
            np.empty(count if self.has_values else 0, self.value_type),
        )
        last, memory = np.full(end - first, -1, np.int64), np.empty(RANGE_SIZE, np.uint16)
        for (lists, table), to in zip(self.old, self.moved, strict=True):
            a, z = np.searchsorted(table.terms, [self.terms[first], self.terms[end - 1] + 1])
            # A term without live documents gets the position of another term, but none of its postings are moved there.
            places = np.minimum(np.searchsorted(self.terms[first:end], table.terms[a:z]), end - first - 1)
            if not _move(
                lists.blocks(table), table.block_starts, int(a), to, places, memory, last, block_free, free,
                int(block_base), int(base), piece,
            ):  # fmt: skip
                raise DamagedSegmentError
        return piece


def count_lists(
    old: Sequence[tuple[PostingLists, BlockTable]],
    moved: Sequence[np.ndarray],
    places: Sequence[np.ndarray],
    counts: MergeCounts,
    threads: int | None = None,
) -> None:
    """Count what live documents will have of lists; `places`: where the terms of each directory are in `counts`.

    Each thread counts some terms in all lists.
    """
    bounds = np.zeros(len(counts.postings) + 1, np.int64)
    for (_, table), at in zip(old, places, strict=True):
        bounds[1 + at] += table.counts
    np.cumsum(bounds, out=bounds)

    def count(first: int, end: int) -> bool:
        memory = np.empty(RANGE_SIZE, np.uint16)
        for (lists, table), to, at in zip(old, moved, places, strict=True):
            a, z = np.searchsorted(at, [first, end])
            if not _count_living(lists.blocks(table), table.block_starts[a : z + 1], to, at[a:z], memory, counts):
                return False
        return True

    if not all(in_threads_by_size(count, bounds, _LEAST, threads)):
        raise DamagedSegmentError


_LEAST = 1 << 16  # postings that a thread counts or moves


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
        """The live documents' dense vectors of a namespace, about `chunk` numbers at a time, as they are stored."""
        size = max(chunk // max(self.dense_shape(space)[1], 1), 1)
        for segment, mask in zip(self.old, self.masks, strict=True):
            for a in range(0, len(segment), size):
                yield select_rows(segment.dense[space], a, a + size, mask[a : a + size])

    def token_starts(self, space: int) -> np.ndarray:
        """Where the tokens of the new segment's documents begin in a namespace."""
        counts = [np.diff(rows.bounds(0, len(rows)))[mask] for rows, mask in self._token_rows(space)]
        return np.append(0, np.cumsum(np.concatenate(counts)))

    def token_pieces(self, space: int, chunk: int) -> Iterator[VectorRows]:
        """The live documents' token vectors of a namespace, about `chunk` numbers at a time, as they are stored."""
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
        """The live documents' term sequences of a namespace, some documents at a time, end to end."""
        for segment, mask in zip(self.old, self.masks, strict=True):
            rows = segment.sequences[space]
            size = max(chunk * max(len(rows), 1) // max(len(rows.numbers), 1), 1)
            for a in range(0, len(rows), size):
                z = min(a + size, len(rows))
                yield rows.select(a, z, mask[a:z])

    def ngram_type(self, space: int) -> np.dtype:
        """The type of the new segment's token sequences of a namespace."""
        return max((s.ngrams[space].tokens.dtype for s in self.old), key=lambda kind: kind.itemsize)

    def ngram_starts(self, space: int) -> np.ndarray:
        """Where the token sequences of the new segment's documents begin in a namespace."""
        pairs = zip(self.old, self.masks, strict=True)
        return np.append(0, np.cumsum(np.concatenate([s.ngrams[space].sizes()[mask] for s, mask in pairs])))

    def ngram_pieces(self, space: int, chunk: int) -> Iterator[np.ndarray]:
        """The live documents' token sequences of a namespace, some documents at a time, end to end."""
        for segment, mask in zip(self.old, self.masks, strict=True):
            rows = segment.ngrams[space]
            size = max(chunk * max(len(rows), 1) // max(len(rows.tokens), 1), 1)
            for a in range(0, len(rows), size):
                z = min(a + size, len(rows))
                yield rows.select(a, z, mask[a:z]).astype(self.ngram_type(space), copy=False)

    def _token_rows(self, space: int) -> list[tuple[TokenRows, np.ndarray]]:
        """The token vectors of the old segments in a namespace, and which documents are live."""
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
