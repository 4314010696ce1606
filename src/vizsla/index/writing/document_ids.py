"""The ids of documents as a transaction of a writer sees them: those in segments, and those in no segment yet."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vizsla.index.storage import database
from vizsla.index.storage.arrays import Facts
from vizsla.index.storage.id_files import SegmentIds, find_in_segments
from vizsla.index.writing.segment_state import OpenSegments
from vizsla.text.stored_ids import SHORT, StoredIds
from vizsla.text.stored_texts import DamagedTextsError, StoredTexts

_BYTES_PER_ID = 64  # of an entry of a dictionary, beside the text


class DocumentIds:
    """Finds insertion numbers by ids. In an index of passages these are the ids of passages."""

    def __init__(self, path: Path, db: sqlite3.Connection, generation: int, first: int, opened: OpenSegments) -> None:
        """`generation` and `first`: the number of the next commit, and of the next document."""
        self._path = path
        self._db = db
        self._opened = opened
        self._segments = [
            opened.ids(path, name, facts) for name, facts, _ in database.segment_rows(db, path, generation)
        ]
        self._first = self._next = first
        self._texts: list[StoredTexts] = []
        self._pending: dict[str, int] = {}
        self.bytes = 0
        """About how much memory the ids take that are in no segment yet."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no documents."""
        return not self._segments and not self._pending

    def find(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        """Ids and insertion numbers of living documents, in the order of the numbers."""
        found = [(doc_id, self._pending[doc_id]) for doc_id in ids if doc_id in self._pending]
        try:
            found += find_in_segments(self._segments, ids)
        except DamagedTextsError:
            raise database.damaged_segment(self._path) from None
        if not found:
            return []
        select = "SELECT number FROM deletions WHERE number IN (SELECT value FROM json_each(?))"
        with database.using_sqlite(self._path):
            deleted = {number for (number,) in self._db.execute(select, (json.dumps([n for _, n in found]),))}
        return sorted((entry for entry in found if entry[1] not in deleted), key=lambda entry: entry[1])

    def add(self, ids: Sequence[str]) -> None:
        """Add the next documents, which are in no segment yet."""
        self._texts.append(StoredTexts.of(ids))
        self._pending.update(zip(ids, range(self._next, self._next + len(ids)), strict=True))
        self._next += len(ids)
        self.bytes += sum(map(len, ids)) + len(ids) * _BYTES_PER_ID

    def undo(self, first: int, replaced: Sequence[int]) -> None:
        """Forget documents from a number on, and find again those that they had replaced."""
        self._pending = {doc_id: number for doc_id, number in self._pending.items() if number < first}
        rows = np.array([number - self._first for number in replaced if number >= self._first], np.int64)
        ids = StoredTexts.concatenated(self._texts).at(rows)
        self._pending.update(zip(ids, (rows + self._first).tolist(), strict=True))

    def take_pending(self) -> StoredIds:
        """The ids of the documents that become a segment now; `add_segment` finds them from then on."""
        ids = StoredIds.of(StoredTexts.concatenated(self._texts))
        self._first = self._next
        self._texts, self._pending, self.bytes = [], {}, 0
        return ids

    def add_segment(self, name: str, files: Mapping[str, Facts], segment: SegmentIds) -> None:
        """Look for ids in a segment that was written now, this transaction and, if it is short, the next ones, too."""
        self._segments.append(segment)
        if len(segment.ids) <= SHORT:  # others are read again from their files, which take no memory
            self._opened.remember_ids(name, files, segment)
