"""Segments in the state of the next commit, and those that a writer keeps open from one commit to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import Segment
from vizsla.index.storage import arrays, document_ids, live_documents, segment_files
from vizsla.index.storage.document_ids import SegmentIds
from vizsla.index.storage.live_documents import LiveDocuments
from vizsla.index.storage.stored_ids import StoredTexts
from vizsla.index.writing.term_numbers import KnownTerms
from vizsla.lazy import cached_property


class OpenSegments:
    """A cache of segments that are mapped into memory, for as long as commits use them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, arrays.Facts], Segment]] = {}
        self._ids: dict[str, tuple[arrays.Facts, SegmentIds]] = {}
        self.terms = KnownTerms()
        """The terms that were looked up."""
        self.are_swept = False
        """Whether the last transaction has left no files that no commit names."""

    def open(self, path: Path, name: str, files: dict[str, arrays.Facts]) -> Segment:
        """A segment, mapped again only if it has other files than before."""
        wanted = segment_files.without(files, live_documents.FILES)
        known, segment = self._known.get(name, (None, None))
        if segment is None or known != wanted:
            segment = segment_files.read_segment(path, name, files)
            self._known[name] = wanted, segment
        return segment

    def ids(self, path: Path, name: str, files: dict[str, arrays.Facts]) -> SegmentIds:
        """The ids of all documents of a segment, including deleted ones; mapped once."""
        wanted = files[document_ids.KINDS[0]]
        known, ids = self._ids.get(name, (None, None))
        if ids is None or known != wanted:
            stored = document_ids.read_ids(path, name, files)
            ids = SegmentIds(segment_files.read_numbers(path, name, files, len(stored)), stored)
            self.remember_ids(name, files, ids)
        return ids

    def remember_ids(self, name: str, files: Mapping[str, arrays.Facts], ids: SegmentIds) -> None:
        """Keep the ids of the documents of a segment."""
        self._ids[name] = files[document_ids.KINDS[0]], ids

    def keep(self, names: Iterable[str]) -> None:
        """Release all segments except these; the files of a merged segment take disk space until then."""
        kept = set(names)
        self._known = {name: known for name, known in self._known.items() if name in kept}
        self._ids = {name: known for name, known in self._ids.items() if name in kept}


class SegmentState:
    """A segment, and which of its documents are live; its files are opened when they are needed.

    A commit changes few segments, and opening one takes longer than finding out that it does not change.
    """

    def __init__(
        self, path: Path, name: str, files: dict[str, arrays.Facts], statistics: dict[str, Any], opened: OpenSegments
    ) -> None:
        """`statistics`: those of the documents that lived at the last commit, as `count_statistics` counts them."""
        self._path = path
        self._opened = opened
        self._before = statistics
        self.name = name
        self.files = files
        self.living: int = statistics["living"]
        """How many of its documents live."""
        self.deleted = np.zeros(0, np.int64)
        """The rows of the documents that this commit deletes."""

    def __len__(self) -> int:
        count: int = self.files["sizes"]["shape"][1]
        return count

    @cached_property
    def segment(self) -> Segment:
        """The segment, mapped into memory."""
        return self._opened.open(self._path, self.name, self.files)

    @property
    def numbers(self) -> np.ndarray:
        """The insertion numbers of its documents, ascending."""
        return self._opened.ids(self._path, self.name, self.files).numbers

    def living_ids(self) -> StoredTexts:
        """The ids of the documents that live after this commit. Read it after `delete`."""
        ids = self._opened.ids(self._path, self.name, self.files).ids
        return ids.copied(np.arange(len(self)) if self.alive is None else np.flatnonzero(self.alive))

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The first and the last insertion number."""
        numbers = self.numbers
        return int(numbers[0]), int(numbers[-1])

    @cached_property
    def living_files(self) -> LiveDocuments:
        """Which of its documents lived at the last commit."""
        return LiveDocuments(self._path, self.name, self.files, self._before.get(live_documents.LISTED, ()))

    @cached_property
    def gone(self) -> np.ndarray:
        """The rows that are live in its files but not after this commit, ascending. Read it after `delete`."""
        listed = np.array(self._before.get(live_documents.LISTED, ()), np.int64)
        return np.sort(np.concatenate([listed, self.deleted])) if len(self.deleted) else listed

    @cached_property
    def alive(self) -> np.ndarray | None:
        """Which of its documents live; None if all do. Read it after `delete`."""
        return self.living_files.alive_without(self.gone)

    def statistics(self, namespaces: Sequence[str]) -> dict[str, Any]:
        """The statistics of the live documents after this commit; reads all lengths only if the longest is deleted."""
        counted = {}
        for name, row in zip(namespaces, self.segment.sizes, strict=True):
            before, lost = self._before["namespaces"][name], row[self.deleted]
            longest = before["longest"]
            if int(lost.max(initial=0)) == longest:
                longest = int(row[self.alive].max(initial=0))
            counted[name] = {
                "documents": before["documents"] - int(np.count_nonzero(lost)),
                "total_length": before["total_length"] - int(lost.sum(dtype=np.int64)),
                "longest": longest,
            }
        return {"living": self.living, "namespaces": counted}

    def delete(self, numbers: np.ndarray) -> None:
        """Delete the documents among `numbers`, ascending, that are live in this segment."""
        first, last = self.bounds
        here = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, last, side="right")]
        if len(here):
            rows = np.searchsorted(self.numbers, here.astype(self.numbers.dtype))
            self.deleted = rows[self.numbers[rows] == here]
            self.living -= len(self.deleted)
