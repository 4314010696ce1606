"""Merging segments: the living documents of several, in order, as one; bounded in memory.

Everything that grows with documents or terms is planned in memory; runs and postings, which are most of it, are given
out in chunks. Small lists stay small and large ones large, so that each kind is merged for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine.lists import BITS, OFFSET, DamagedSegmentError, Lists
from vizsla.engine.rows import Rows, some_of
from vizsla.engine.segment import Segment, pad_lengths, smallest_numbers
from vizsla.kernels import kernel

GONE = -1


@kernel
def _count_living(runs, windows, starts, postings, values, moved, places, last, lists, lengths, tops):
    """Count for each term the runs and postings that living documents will have, and its largest value."""
    for t in range(places.size):
        p = places[t]
        for r in range(runs[t], runs[t + 1]):
            base = np.int64(windows[r]) << BITS
            for x in range(starts[r], starts[r + 1]):
                old = base + np.int64(postings[x] & np.uint16(OFFSET))
                if old >= moved.size:
                    return False
                if moved[old] >= 0:
                    lengths[p] += 1
                    lists[p] += moved[old] >> BITS != last[p]
                    last[p] = moved[old] >> BITS
                    if values.size:
                        tops[p] = max(tops[p], np.float64(values[x]))
    return True


@kernel
def _move(
    runs, windows, starts, postings, values, first, moved, places, last, run_free, free, run_base, base,
    new_windows, new_starts, new_postings, new_values,
):  # fmt: skip
    """Move the lists of some terms, the first of which is at `first`, to their places, documents renumbered."""
    for t in range(places.size):
        p = places[t]
        for r in range(runs[first + t], runs[first + t + 1]):
            window = np.int64(windows[r]) << BITS
            for x in range(starts[r], starts[r + 1]):
                old = window + np.int64(postings[x] & np.uint16(OFFSET))
                if old >= moved.size:
                    return False
                d = moved[old]
                if d < 0:
                    continue
                at, run = free[p] - base, run_free[p] - run_base
                if d >> BITS != last[p]:
                    if not 0 <= run < new_windows.size:
                        return False
                    new_windows[run] = d >> BITS
                    new_starts[run] = free[p]
                    run_free[p] += 1
                    last[p] = d >> BITS
                if not 0 <= at < new_postings.size:
                    return False
                new_postings[at] = (postings[x] & np.uint16(~OFFSET & 0xFFFF)) | np.uint16(d & OFFSET)
                if values.size:
                    new_values[at] = values[x]
                free[p] += 1
    return True


class Piece(NamedTuple):
    """Some of the runs and postings of merged lists; the last of the `starts` of all is to be added at the end."""

    windows: np.ndarray
    starts: np.ndarray
    postings: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class MergedLists:
    """The plan of a merge of lists of one kind: their directory, and how the old ones map to it."""

    old: Sequence[Lists]
    moved: Sequence[np.ndarray]
    terms: np.ndarray
    runs: np.ndarray
    starts: np.ndarray
    """[t + 1] where each term's postings start."""
    tops: np.ndarray
    value_type: np.dtype

    @classmethod
    def plan(cls, old: Sequence[Lists], moved: Sequence[np.ndarray]) -> MergedLists:
        terms = np.unique(np.concatenate([lists.terms for lists in old]))
        last = np.full(len(terms), -1, np.int64)
        run_counts, lengths, tops = np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64), np.zeros(len(terms))
        for lists, to in zip(old, moved, strict=True):
            lists.check()
            places = np.searchsorted(terms, lists.terms)
            if not _count_living(
                lists.runs, lists.windows, lists.starts, lists.postings, lists.values, to, places, last,
                run_counts, lengths, tops,
            ):  # fmt: skip
                raise DamagedSegmentError
        there = lengths > 0
        has_values = any(len(lists.values) for lists in old)
        return cls(
            old,
            moved,
            terms[there],
            np.append(0, np.cumsum(run_counts[there])),
            np.append(0, np.cumsum(lengths[there])),
            tops[there] if has_values else np.zeros(0),
            _common_type([lists.values.dtype for lists in old if len(lists.values)]),
        )

    @property
    def has_values(self) -> bool:
        return len(self.tops) > 0

    def pieces(self, most: int) -> Iterator[Piece]:
        """The merged runs and postings, list after list, in chunks of about `most` postings."""
        run_free, free = self.runs[:-1].copy(), self.starts[:-1].copy()
        first = 0
        while first < len(self.terms):
            end = int(np.searchsorted(self.starts, self.starts[first] + most, side="right")) - 1
            end = min(max(end, first + 1), len(self.terms))
            yield self._piece(first, end, run_free, free)
            first = end

    def _piece(self, first: int, end: int, run_free: np.ndarray, free: np.ndarray) -> Piece:
        run_base, base = self.runs[first], self.starts[first]
        run_count, count = self.runs[end] - run_base, self.starts[end] - base
        piece = Piece(
            np.empty(run_count, np.uint16),
            np.empty(run_count, np.uint32),
            np.empty(count, np.uint16),
            np.empty(count if self.has_values else 0, self.value_type),
        )
        last = np.full(len(self.terms), -1, np.int64)
        for lists, to in zip(self.old, self.moved, strict=True):
            a, z = np.searchsorted(lists.terms, [self.terms[first], self.terms[end - 1] + 1])
            # A term whose documents are all gone is given another's place, but nothing of it moves there.
            places = np.minimum(np.searchsorted(self.terms, lists.terms[a:z]), len(self.terms) - 1)
            if not _move(
                lists.runs, lists.windows, lists.starts, lists.postings, lists.values, a, to, places, last,
                run_free, free, run_base, base, *piece,
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
    """The plan of a merge: the arrays of the new segment that grow with documents, and its lists to be."""

    numbers: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray
    small: MergedLists
    large: MergedLists
    old: Sequence[Segment]
    masks: Sequence[np.ndarray]

    def dense_shape(self, space: int) -> tuple[int, int]:
        """The shape of the new segment's dense vectors of a namespace."""
        widths = {s.dense[space].shape[1] for s in self.old}
        if len(widths) > 1:
            raise DamagedSegmentError
        return len(self.numbers), widths.pop()

    def dense_pieces(self, space: int, most: int) -> Iterator[Rows]:
        """The living documents' dense vectors of a namespace, so many numbers at a time, in the forms they have."""
        size = max(most // max(self.dense_shape(space)[1], 1), 1)
        for segment, mask in zip(self.old, self.masks, strict=True):
            for a in range(0, len(segment), size):
                yield some_of(segment.dense[space], a, a + size, mask[a : a + size])

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
            MergedLists.plan([s.small for s in segments], moved),
            MergedLists.plan([s.large for s in segments], moved),
            segments,
            masks,
        )


def living_frequencies(segment: Segment, alive: np.ndarray) -> np.ndarray:
    """How many living documents are in each list, first of the small ones, then of the large ones."""
    return np.concatenate([_living(lists, alive) for lists in (segment.small, segment.large)])


def _living(lists: Lists, alive: np.ndarray) -> np.ndarray:
    lists.check()
    counts, unused = np.zeros(len(lists.terms), np.int64), np.zeros(len(lists.terms), np.int64)
    to = np.where(alive, 0, GONE).astype(np.int64)
    places = np.arange(len(lists.terms))
    none = np.zeros(0)
    if not _count_living(
        lists.runs, lists.windows, lists.starts, lists.postings, none, to, places, unused.copy(), unused, counts,
        np.zeros(0),
    ):  # fmt: skip
        raise DamagedSegmentError
    return counts
