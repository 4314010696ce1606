"""Compaction: a commit merges segments, and updates segments with deleted documents.

Segments form classes by size. A class holds up to FACTOR neighbours of about the same size; more are merged into one
segment of the next class. So a document is rewritten only a few times, and the number of segments grows with the
logarithm of the number of documents.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import (
    DamagedSegmentError,
    Merge,
    ResidualRows,
    Segment,
    VectorIndex,
    fits_a_segment,
    living_frequencies,
    storage_of,
    token_store,
)
from vizsla.errors import CollectionError
from vizsla.index.storage import arrays, database, id_files, list_files, segment_files
from vizsla.index.writing.sequences import SequenceBuilder
from vizsla.index.writing.token_indexes import TokenIndexes
from vizsla.models import BM25, ExpandedBM25, Model

FACTOR = 8
SMALLEST = 1000  # segments below this count as one class
MAX_DELETED = 0.3  # a segment with a larger share of deleted documents is rewritten
BYTES_PER_POSTING = 16


@dataclass
class _SegmentState:
    """A segment in the state of the next commit."""

    name: str
    segment: Segment
    files: dict[str, arrays.Facts]
    alive: np.ndarray | None
    changed: bool
    """Whether documents were deleted after its files were written."""

    @property
    def living(self) -> int:
        return len(self.segment) if self.alive is None else int(np.count_nonzero(self.alive))


class Compaction:
    """Merges and updates the segments of a commit, inside its transaction."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, model: Model, generation: int, memory: int, vector_index: VectorIndex
    ) -> None:
        self._path = path
        self._db = db
        self._model = model
        self._generation = generation
        self._vector_index = vector_index
        self._chunk = max(memory // 8 // BYTES_PER_POSTING, 1 << 16)
        self._entries = [self._load(*row) for row in database.segment_rows(db, path, generation)]
        self._entries.sort(key=lambda e: int(e.segment.numbers[0]))
        self._positions = bool(database.get_meta(db, database.POSITIONS))
        self._builders: dict[int, SequenceBuilder] = {}
        self._token_indexes = TokenIndexes(vector_index, [entry.segment for entry in self._entries])

    def _load(self, name: str, facts: dict[str, arrays.Facts], _: dict[str, Any]) -> _SegmentState:
        segment = segment_files.read_segment(self._path, name, facts)
        deleted = self._deleted_numbers(segment)
        if len(deleted) == 0:
            return _SegmentState(name, segment, facts, None, False)
        alive = ~np.isin(segment.numbers, deleted)
        before = (
            arrays.read_array(self._path, name, facts[segment_files.ALIVE]) if segment_files.ALIVE in facts else None
        )
        changed = before is None or not np.array_equal(before, alive)
        return _SegmentState(name, segment, facts, alive, changed)

    def _deleted_numbers(self, segment: Segment) -> np.ndarray:
        rows = self._db.execute(
            "SELECT number FROM deletions WHERE number BETWEEN ? AND ?",
            (int(segment.numbers[0]), int(segment.numbers[-1])),
        )
        return np.array([number for (number,) in rows], np.int64)

    def run(self, *, whole: bool) -> None:
        """Merge segments where it pays, or all of them if `whole`, and update the other segments that have changed."""
        for start, end in self._groups(whole):
            self._merge(start, end)
        for entry in self._entries:
            if entry.changed:
                self._update(entry)
            self._build_ann_indexes(entry)
            self._build_token_indexes(entry, whole)
            self._build_sequences(entry)
            self._store_ids(entry)

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
        if not list_files.are_packed(first.files):  # of an earlier format
            return False
        if any(storage_of(lists.vectors) != token_store(store) for lists in first.segment.matches.values()):
            return False
        stored = {(store, storage_of(rows)) for rows in first.segment.dense.values()}
        tokens = [rows.vectors for rows in first.segment.tokens.values() if not isinstance(rows.vectors, ResidualRows)]
        stored |= {(token_store(store), storage_of(rows)) for rows in tokens}
        return end - start == 1 and first.alive is None and all(wanted == present for wanted, present in stored)

    @staticmethod
    def _size_class(entry: _SegmentState) -> int:
        return int(np.log(max(entry.living, SMALLEST) / SMALLEST) / np.log(FACTOR))

    @staticmethod
    def _has_many_deleted(entry: _SegmentState) -> bool:
        return entry.changed and entry.living < (1 - MAX_DELETED) * len(entry.segment)

    def _merge(self, start: int, end: int) -> None:
        """Replace neighbouring segments by one with their living documents, if they have any."""
        old = self._entries[start:end]
        for entry in old:
            check_hashes(self._path, entry.name, entry.files)
        new: list[_SegmentState] = []
        if any(e.living for e in old):
            name, store = secrets.token_hex(6), self._vector_index.store
            try:
                merge = Merge.plan([e.segment for e in old], [e.alive for e in old])
                written = segment_files.write_merged(self._path, name, merge, self._chunk, store)
            except DamagedSegmentError:
                raise CollectionError(f"{self._path}: a segment is damaged; 'vizsla verify' says which") from None
            statistics = database.count_statistics(self._model.namespaces, merge.sizes, None)
            count = len(merge.numbers)
            database.insert_segment(self._db, name, self._generation, count, statistics, written)
            new.append(_SegmentState(name, segment_files.read_segment(self._path, name, written), written, None, False))
        self._db.executemany("DELETE FROM segments WHERE id = ?", [(e.name,) for e in old])
        self._entries[start:end] = new

    def _update(self, entry: _SegmentState) -> None:
        """Write which documents of a segment are alive, and its statistics of these documents."""
        assert entry.alive is not None
        try:
            frequencies = living_frequencies(entry.segment, entry.alive)
        except DamagedSegmentError:
            raise CollectionError(f"{self._path}: segment {entry.name} is damaged; run 'vizsla verify'") from None
        arrays = {segment_files.ALIVE: entry.alive, segment_files.FREQUENCIES: frequencies.astype(np.uint32)}
        written = segment_files.write_living(self._path, entry.name, self._generation, arrays)
        statistics = database.count_statistics(self._model.namespaces, entry.segment.sizes, entry.alive)
        entry.files = {**entry.files, **written}
        self._db.execute(
            "UPDATE segments SET statistics = ?, files = ? WHERE id = ?",
            (json.dumps(statistics), json.dumps(entry.files), entry.name),
        )

    def _build_ann_indexes(self, entry: _SegmentState) -> None:
        """Build the missing ANN indexes of a segment, if it is large enough for them, and drop outdated ones."""
        files = {name: facts for name, facts in entry.files.items() if not name.startswith(segment_files.ANN)}
        for space, rows in entry.segment.dense.items():
            if space in entry.segment.matches:  # such vectors count together with tokens, which no ANN index knows
                continue
            factory = self._vector_index.factory(len(rows), rows.shape[1])
            present = entry.files.get(f"{segment_files.ANN}{space}")
            if factory is None:
                continue
            if present is not None and present["built"] == factory:
                files[f"{segment_files.ANN}{space}"] = present
            else:
                target = self._path, entry.name, self._generation, space
                files |= segment_files.write_ann_index(*target, factory, rows)
        self._set_files(entry, files)

    def _build_token_indexes(self, entry: _SegmentState, whole: bool) -> None:
        """Build the centroids, codes and lists that token vectors of a segment lack, and drop what is of no use."""
        files, segments = entry.files, [e.segment for e in self._entries]
        for space, rows in entry.segment.tokens.items():
            if rows.lists is not None and not self._token_indexes.keeps(rows):
                files = segment_files.without_token_index(files, space, vectors=False)
            try:
                built = self._token_indexes.built(space, rows, segments, whole=whole)
            except DamagedSegmentError:
                raise CollectionError(f"{self._path}: segment {entry.name} is damaged; run 'vizsla verify'") from None
            if built is not None:
                coded = isinstance(built.vectors, ResidualRows)
                files = segment_files.without_token_index(files, space, vectors=coded)
                files |= segment_files.write_token_index(self._path, entry.name, self._generation, space, built)
        self._set_files(entry, files)

    def _build_sequences(self, entry: _SegmentState) -> None:
        """Store the positions of words that a segment lacks, or drop them where the index shall have none."""
        files = entry.files if self._positions else segment_files.without_sequences(entry.files)
        for space, (_, component) in enumerate(self._model.parts):
            bm25 = component.bm25 if isinstance(component, ExpandedBM25) else component
            if not self._positions or not isinstance(bm25, BM25) or space in entry.segment.sequences:
                continue
            if space not in self._builders:
                self._builders[space] = SequenceBuilder(self._path, self._db, space, bm25)
            pieces = self._builders[space].sequences(entry.segment)
            files = files | segment_files.write_sequences(self._path, entry.name, self._generation, space, pieces)
        self._set_files(entry, files)

    def _store_ids(self, entry: _SegmentState) -> None:
        """Store the ids of documents with a segment that lacks them: a new one, or one of an earlier version."""
        if id_files.KINDS[0] not in entry.files:
            ids = id_files.collect_ids(self._db, entry.segment.numbers)
            self._set_files(entry, entry.files | segment_files.write_ids(self._path, entry.name, self._generation, ids))

    def _set_files(self, entry: _SegmentState, files: dict[str, arrays.Facts]) -> None:
        if files != entry.files:
            entry.files = files
            self._db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(files), entry.name))

    def drop_deletions(self) -> list[tuple[int, int]]:
        """Remove the deletions of documents that no segment holds any more, and return these rows."""
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS ranges (first INTEGER, last INTEGER)")
        self._db.execute("DELETE FROM ranges")
        ranges = [(int(e.segment.numbers[0]), int(e.segment.numbers[-1])) for e in self._entries if e.alive is not None]
        self._db.executemany("INSERT INTO ranges VALUES (?, ?)", ranges)
        outside = "NOT EXISTS (SELECT 1 FROM ranges WHERE deletions.number BETWEEN first AND last)"
        rows = self._db.execute(f"SELECT number, generation FROM deletions WHERE {outside}").fetchall()
        self._db.execute(f"DELETE FROM deletions WHERE {outside}")
        return rows


def check_hashes(path: Path, name: str, facts: dict[str, arrays.Facts]) -> None:
    """Refuse to merge a segment with a damaged file."""
    for entry in facts.values():
        try:
            is_intact = arrays.hash_file(arrays.segment_folder(path, name) / entry["file"]) == entry["sha256"]
        except OSError as e:
            raise CollectionError(f"{path}: {name}/{entry['file']} cannot be read ({e.strerror})") from None
        if not is_intact:
            raise CollectionError(f"{path}: {name}/{entry['file']} is damaged: its content is not what was written")
