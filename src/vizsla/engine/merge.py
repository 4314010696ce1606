"""Merging segments: the living documents of several, in order, as one; bounded in memory.

Everything that grows with documents or terms is planned in memory; the postings, which are most of it, are given
out in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine.segment import DamagedSegmentError, Segment, check_pointers
from vizsla.kernels import kernel

GONE = -1


@kernel
def _count_living(pointers, documents, alive, counts):
    for t in range(pointers.size - 1):
        n = 0
        for x in range(pointers[t], pointers[t + 1]):
            if documents[x] >= alive.size:
                return False
            n += alive[documents[x]]
        counts[t] = n
    return True


def living_frequencies(segment: Segment, alive: np.ndarray | None) -> np.ndarray:
    """In how many living documents each of the segment's terms occurs."""
    if alive is None:
        return np.diff(segment.pointers)
    counts = np.zeros(len(segment.terms), np.int64)
    check_pointers(segment)
    if not _count_living(segment.pointers, segment.documents, alive, counts):
        raise DamagedSegmentError
    return counts


@kernel
def _move_lists(pointers, documents, values, first, last, places, moved, free, base, out_documents, out_values):
    """Move the lists of terms first .. last - 1 to their places, documents renumbered, dead ones left out."""
    for t in range(first, last):
        for x in range(pointers[t], pointers[t + 1]):
            if documents[x] >= moved.size:
                return False
            d = moved[documents[x]]
            if d >= 0:
                at = free[places[t]] - base
                if at < 0 or at >= out_documents.size:
                    return False
                out_documents[at] = d
                out_values[at] = values[x]
                free[places[t]] += 1
    return True


@dataclass(frozen=True, eq=False)
class Merge:
    """The plan of a merge: all arrays of the new segment but the postings, and how the old ones map to it."""

    segments: Sequence[Segment]
    numbers: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray
    terms: np.ndarray
    pointers: np.ndarray
    value_type: np.dtype
    moved: list[np.ndarray]
    places: list[np.ndarray]

    @classmethod
    def plan(cls, segments: Sequence[Segment], alive: Sequence[np.ndarray | None]) -> Merge:
        """Plan to merge segments whose insertion numbers ascend from one to the next."""
        masks = [np.ones(len(s), np.bool_) if a is None else a for s, a in zip(segments, alive, strict=True)]
        moved, count = [], 0
        for mask in masks:
            living = np.cumsum(mask, dtype=np.int64)
            moved.append(np.where(mask, count + living - 1, GONE).astype(np.int64))
            count += int(living[-1]) if len(living) else 0
        frequencies = [living_frequencies(s, a) for s, a in zip(segments, alive, strict=True)]
        terms = np.unique(np.concatenate([s.terms[f > 0] for s, f in zip(segments, frequencies, strict=True)]))
        places = [np.searchsorted(terms, s.terms) for s in segments]
        total = np.zeros(len(terms) + 1, np.int64)
        for at, f in zip(places, frequencies, strict=True):
            total[1:] += np.bincount(at[f > 0], f[f > 0], len(terms)).astype(np.int64)
        return cls(
            segments,
            np.concatenate([s.numbers[m] for s, m in zip(segments, masks, strict=True)]),
            np.concatenate([s.lengths[:, m] for s, m in zip(segments, masks, strict=True)], axis=1),
            np.concatenate([s.sizes[:, m] for s, m in zip(segments, masks, strict=True)], axis=1),
            terms,
            np.cumsum(total),
            np.result_type(*[s.values.dtype for s in segments]),
            moved,
            places,
        )

    def postings(self, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The new segment's documents and values, list after list, in chunks of about `most` postings."""
        free = self.pointers[:-1].copy()
        first = 0
        while first < len(self.terms):
            last = int(np.searchsorted(self.pointers, self.pointers[first] + most, side="right")) - 1
            last = min(max(last, first + 1), len(self.terms))
            base, size = self.pointers[first], self.pointers[last] - self.pointers[first]
            documents, values = np.empty(size, np.uint32), np.empty(size, self.value_type)
            for segment, moved, places in zip(self.segments, self.moved, self.places, strict=True):
                # Terms whose documents are all gone have a place too, but nothing moves there.
                a, z = np.searchsorted(segment.terms, [self.terms[first], self.terms[last - 1] + 1])
                if not _move_lists(
                    segment.pointers, segment.documents, segment.values, a, z, places, moved, free, base,
                    documents, values,
                ):  # fmt: skip
                    raise DamagedSegmentError
            yield documents, values
            first = last
