"""Compaction: a commit merges segments, and updates segments with deleted documents.

Segments form classes by size. A class holds up to FACTOR neighbours of about the same size; more are merged into one
segment of the next class. So a document is rewritten only a few times, and the number of segments grows with the
logarithm of the number of documents.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vizsla.datasets import Splitter
from vizsla.engine import (
    DamagedSegmentError,
    Merge,
    ResidualRows,
    VectorIndex,
    fits_a_segment,
    in_order,
    live_frequencies_without,
    processors,
    storage_of,
    token_store,
)
from vizsla.errors import CollectionError
from vizsla.index.storage import arrays, database, live_documents, segment_files
from vizsla.index.storage.stored_ids import DamagedTextsError, StoredIds, StoredTexts
from vizsla.index.writing.segment_indexes import SegmentIndexes
from vizsla.index.writing.segment_state import OpenSegments, SegmentState
from vizsla.models import Model

FACTOR = 8
SMALLEST = 1000  # segments below this count as one class
MAX_DELETED = 0.3  # a segment with a larger share of deleted documents is rewritten
BYTES_PER_POSTING = 16


class Compaction:
    """Merges and updates the segments of a commit, inside its transaction."""

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        model: Model,
        generation: int,
        memory: int,
        vector_index: VectorIndex,
        positions: bool,
        deleted: np.ndarray,
        opened: OpenSegments,
        splitter: Splitter | None,
    ) -> None:
        """`deleted`: the insertion numbers of the documents that this commit deletes, ascending."""
        self._path = path
        self._db = db
        self._model = model
        self._generation = generation
        self._vector_index = vector_index
        self._chunk = max(memory // 8 // BYTES_PER_POSTING, 1 << 16)
        self._opened = opened
        self._entries = [
            SegmentState(path, name, facts, statistics, opened)
            for name, facts, statistics in database.segment_rows(db, path, generation)
        ]
        self._entries.sort(key=lambda entry: entry.bounds)
        for entry in self._entries:
            entry.delete(deleted)
        self._rewritten: list[tuple[int, int]] = []  # insertion numbers, from and to
        self.leaves_files = False
        """Whether this commit leaves files behind that no commit refers to."""
        self._indexes = SegmentIndexes(path, db, model, generation, vector_index, positions, splitter, self._entries)

    def run(self, *, whole: bool) -> None:
        """Merge segments where it pays, or all of them if `whole`; update the others, and build what any lacks."""
        try:
            for start, end in self._groups(whole):
                self._merge(start, end)
            for entry in self._entries:
                if len(entry.deleted):
                    self._update(entry)
                self._set_files(entry, self._indexes.completed(entry, self._entries, whole=whole))
        except (DamagedSegmentError, DamagedTextsError):
            raise database.damaged_segment(self._path) from None
        self._opened.keep(entry.name for entry in self._entries)

    def _groups(self, whole: bool) -> list[tuple[int, int]]:
        """Ranges of neighbouring segments to merge, last first, so that earlier positions stay valid."""
        if whole:
            return [(a, z) for a, z in self._bounded(0, len(self._entries)) if not self._is_compact(a, z)]
        groups, end = [], len(self._entries)
        while end > 0:
            start = end
            size_class = self._size_class(self._entries[end - 1])
            while start > 0 and self._size_class(self._entries[start - 1]) == size_class:
                start -= 1
            if end - start > FACTOR:
                groups += self._bounded(start, end)
            else:
                sparse = (i for i in reversed(range(start, end)) if self._has_many_deleted(self._entries[i]))
                groups += [(i, i + 1) for i in sparse]
            end = start
        return groups

    def _bounded(self, start: int, end: int) -> list[tuple[int, int]]:
        """Split a range of segments into ranges that each fit into one segment, last first."""
        ranges: list[tuple[int, int]] = []
        while end > start:
            a, postings, documents = end, 0, 0
            while a > start:
                entry = self._entries[a - 1]
                postings, documents = postings + entry.segment.postings, documents + entry.living
                if a < end and not fits_a_segment(postings, documents):
                    break
                a -= 1
            ranges.append((a, end))
            end = a
        return ranges

    def _is_compact(self, start: int, end: int) -> bool:
        first = self._entries[start]
        store = self._vector_index.store
        if any(storage_of(lists.vectors) != token_store(store) for lists in first.segment.matches.values()):
            return False
        stored = {(store, storage_of(rows)) for rows in first.segment.dense.values()}
        tokens = [rows.vectors for rows in first.segment.tokens.values() if not isinstance(rows.vectors, ResidualRows)]
        stored |= {(token_store(store), storage_of(rows)) for rows in tokens}
        return end - start == 1 and first.alive is None and all(wanted == present for wanted, present in stored)

    @staticmethod
    def _size_class(entry: SegmentState) -> int:
        return int(np.log(max(entry.living, SMALLEST) / SMALLEST) / np.log(FACTOR))

    @staticmethod
    def _has_many_deleted(entry: SegmentState) -> bool:
        return len(entry.deleted) > 0 and entry.living < (1 - MAX_DELETED) * len(entry)

    def _merge(self, start: int, end: int) -> None:
        """Replace neighbouring segments by one with their live documents, if they have any."""
        old = self._entries[start:end]
        check_hashes(self._path, {entry.name: entry.files for entry in old})
        new: list[SegmentState] = []
        if any(e.living for e in old):
            name, store = secrets.token_hex(6), self._vector_index.store
            merge = Merge.plan([e.segment for e in old], [e.alive for e in old])
            ids = StoredIds.of(StoredTexts.concatenated([e.living_ids() for e in old]))
            dated = segment_files.DatedIds(self._generation, ids)
            written = segment_files.write_merged(self._path, name, merge, dated, self._chunk, store)
            statistics = database.count_statistics(self._model.namespaces, merge.sizes, None)
            count = len(merge.numbers)
            database.insert_segment(self._db, name, self._generation, count, statistics, written)
            new.append(SegmentState(self._path, name, written, statistics, self._opened))
        self._db.executemany("DELETE FROM segments WHERE id = ?", [(e.name,) for e in old])
        self._rewritten += [entry.bounds for entry in old]
        self.leaves_files = True
        self._entries[start:end] = new

    def _update(self, entry: SegmentState) -> None:
        """List the deleted documents of a segment, or write which are alive, and its statistics of these documents."""
        statistics = entry.statistics(self._model.namespaces)
        if len(entry.gone) <= live_documents.most_listed(len(entry)):
            statistics[live_documents.LISTED] = entry.gone.tolist()
        else:
            self._write_live_documents(entry)
        self._db.execute(
            "UPDATE segments SET statistics = ?, files = ? WHERE id = ?",
            (json.dumps(statistics), json.dumps(entry.files), entry.name),
        )

    def _write_live_documents(self, entry: SegmentState) -> None:
        """Write which documents of a segment are alive, and in how many of them its terms occur."""
        assert entry.alive is not None
        before = entry.living_files.files.get(live_documents.FREQUENCIES)
        frequencies = live_frequencies_without(entry.segment, before, entry.gone).astype(np.uint32)
        with segment_files.writing_files(self._path, entry.name) as folder:
            written = live_documents.write_live_documents(folder, self._generation, entry.alive, frequencies)
        entry.files = {**entry.files, **written}
        self.leaves_files = True

    def _set_files(self, entry: SegmentState, files: dict[str, arrays.Facts]) -> None:
        if files != entry.files:
            entry.files, self.leaves_files = files, True
            self._db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(files), entry.name))

    def drop_deletions(self) -> list[tuple[int, int]]:
        """Remove the deletions of documents that no segment holds any more, and return these rows."""
        rows: list[tuple[int, int]] = []
        for bounds in self._rewritten:
            rows += self._db.execute("SELECT number, generation FROM deletions WHERE number BETWEEN ? AND ?", bounds)
            self._db.execute("DELETE FROM deletions WHERE number BETWEEN ? AND ?", bounds)
        return rows


def check_hashes(path: Path, segments: Mapping[str, dict[str, arrays.Facts]]) -> None:
    """Refuse to merge segments with a damaged file; they are read in threads."""
    files = [(name, entry) for name, facts in segments.items() for entry in facts.values()]

    def check(some: tuple[str, arrays.Facts]) -> None:
        name, entry = some
        try:
            is_intact = arrays.hash_file(arrays.segment_folder(path, name) / entry["file"]) == entry["sha256"]
        except OSError as e:
            raise CollectionError(f"{path}: {name}/{entry['file']} cannot be read ({e.strerror})") from None
        if not is_intact:
            raise CollectionError(f"{path}: {name}/{entry['file']} is damaged: its content is not what was written")

    is_large = sum([entry["bytes"] for _, entry in files]) >= arrays.PARALLEL
    for _ in in_order(check, files, processors() if is_large else 1):
        pass
