"""The segments of a collection, in the order of insertion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import overload

import numpy as np

from vizsla.engine.segment import Segment
from vizsla.engine.segment_search import Masks, PreparedSegments
from vizsla.engine.weighting import Weightings

_MAX_PREPARED = 16


class SegmentList(Sequence[Segment]):
    """Segments ordered by insertion number, so that of equal scores the first document goes first.

    Empty segments are left out. A document's place counts through all segments.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        filled = [(int(s.numbers[0]), i) for i, s in enumerate(segments) if len(s)]
        self._order = [i for _, i in sorted(filled)]
        self.is_sorted = self._order == list(range(len(segments)))
        self.segments = [segments[i] for i in self._order]
        self.firsts = [0, *accumulate(len(s) for s in self.segments)]
        """The place of each segment's first document, and how many documents there are."""
        self.documents = self.firsts[-1]
        self._shift = self._common_shift()
        self._prepared: dict[tuple[int, ...], PreparedSegments] = {}

    def _common_shift(self) -> int | None:
        """The difference between insertion number and place, if it is the same for all documents."""
        shifts = {
            int(s.numbers[place]) - place - first
            for s, first in zip(self.segments, self.firsts, strict=False)
            for place in (0, len(s) - 1)
        }
        return shifts.pop() if len(shifts) == 1 else None

    def prepared(self, weightings: Weightings, masks: Masks) -> PreparedSegments:
        """The segments as the kernels take them, each with its mask; kept, since searches share them."""
        key = id(weightings), *map(id, masks)
        known = self._prepared.get(key)
        if known is None:
            if len(self._prepared) >= _MAX_PREPARED:
                self._prepared = {}
            known = self._prepared[key] = PreparedSegments(self.segments, masks, self.firsts, weightings)
        return known

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> SegmentList:
        """Segments as a `SegmentList`; a `SegmentList` is returned unchanged."""
        return segments if isinstance(segments, SegmentList) else cls(segments)

    def __len__(self) -> int:
        return len(self.segments)

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self.segments[at]

    def masks(self, masks: Masks | None) -> Masks:
        """The masks of these segments, given those of the segments the list was made from."""
        if masks is None:
            return [None] * len(self.segments)
        return masks if self.is_sorted else [masks[i] for i in self._order]

    def numbers_at(self, places: np.ndarray) -> np.ndarray:
        """The insertion numbers of documents by their places."""
        if self._shift is not None:
            return np.asarray(places + self._shift, np.int64)
        if len(self.segments) == 1:
            return np.asarray(self.segments[0].numbers[places], np.int64)
        numbers = np.empty(places.shape, np.int64)
        for segment, (start, end) in zip(self.segments, pairwise(self.firsts), strict=True):
            here = (places >= start) & (places < end)
            numbers[here] = segment.numbers[places[here] - start]
        return numbers
