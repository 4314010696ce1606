"""Compaction: a commit merges segments, and updates segments with deleted documents.

Segments form classes by size. A class holds up to FACTOR neighbours of about the same size; more are merged into one
segment of the next class. So a document is rewritten only a few times, and the number of segments grows with the
logarithm of the number of documents.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Splitter
from vizsla.engine import (
    HOLE,
    DamagedSegmentError,
    Merge,
    ResidualRows,
    Segment,
    TermSequences,
    VectorIndex,
    fits_a_segment,
    in_order,
    live_frequencies_without,
    processors,
    storage_of,
    token_store,
)
from vizsla.errors import CollectionError
from vizsla.index.storage import arrays, database, living, segment_files, vector_files
from vizsla.index.storage.database import stored_fields
from vizsla.index.storage.stored_ids import DamagedTextsError, StoredIds, StoredTexts
from vizsla.index.storage.terms import TermBlocks, find_terms
from vizsla.index.writing.segment_state import OpenSegments, SegmentState
from vizsla.index.writing.token_indexes import TokenIndexes
from vizsla.models import BM25, Model, SequenceEncoder, SparseComponent, bm25_of

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
        self._positions = positions
        self._splitter = splitter
        self._builders: dict[int, SequenceBuilder] = {}
        self._has_vectors = not all(isinstance(part.component, SparseComponent) for part in model.parts)
        before = [entry.segment for entry in self._entries] if self._has_vectors else []
        self._token_indexes = TokenIndexes(vector_index, before)

    def run(self, *, whole: bool) -> None:
        """Merge segments where it pays, or all of them if `whole`, and update the other segments that have changed."""
        try:
            for start, end in self._groups(whole):
                self._merge(start, end)
            for entry in self._entries:
                if len(entry.deleted):
                    self._update(entry)
                if self._has_vectors:
                    self._build_ann_indexes(entry)
                    self._build_token_indexes(entry, whole)
                    self._build_suffixes(entry)
                self._build_sequences(entry)
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
        if len(entry.gone) <= living.most_listed(len(entry)):
            statistics[living.LISTED] = entry.gone.tolist()
        else:
            self._write_living(entry)
        self._db.execute(
            "UPDATE segments SET statistics = ?, files = ? WHERE id = ?",
            (json.dumps(statistics), json.dumps(entry.files), entry.name),
        )

    def _write_living(self, entry: SegmentState) -> None:
        """Write which documents of a segment are alive, and in how many of them its terms occur."""
        assert entry.alive is not None
        before = entry.living_files.files.get(living.FREQUENCIES)
        frequencies = live_frequencies_without(entry.segment, before, entry.gone)
        with segment_files.writing_files(self._path, entry.name) as folder:
            written = living.write_living(folder, self._generation, entry.alive, frequencies.astype(np.uint32))
        entry.files = {**entry.files, **written}
        self.leaves_files = True

    def _build_ann_indexes(self, entry: SegmentState) -> None:
        """Build the missing ANN indexes of a segment, if it is large enough for them, and drop outdated ones."""
        files = {name: facts for name, facts in entry.files.items() if not name.startswith(vector_files.ANN)}
        for space, rows in entry.segment.dense.items():
            if space in entry.segment.matches:  # scored together with tokens, which an ANN index lacks
                continue
            factory = self._vector_index.factory(len(rows), rows.shape[1])
            present = entry.files.get(f"{vector_files.ANN}{space}")
            if factory is None:
                continue
            if present is not None and present["built"] == factory:
                files[f"{vector_files.ANN}{space}"] = present
            else:
                with segment_files.writing_files(self._path, entry.name) as folder:
                    files |= vector_files.write_ann_index(folder, space, self._generation, factory, rows)
        self._set_files(entry, files)

    def _build_token_indexes(self, entry: SegmentState, whole: bool) -> None:
        """Build the centroids, codes and lists that token vectors of a segment lack, and drop unused ones."""
        files, segments = entry.files, [e.segment for e in self._entries]
        for space, rows in entry.segment.tokens.items():
            if rows.lists is not None and not self._token_indexes.keeps(rows):
                files = vector_files.without_token_index(files, space, vectors=False)
            built = self._token_indexes.built(space, rows, segments, whole=whole)
            if built is not None:
                coded = isinstance(built.vectors, ResidualRows)
                files = vector_files.without_token_index(files, space, vectors=coded)
                with segment_files.writing_files(self._path, entry.name) as folder:
                    files |= vector_files.write_token_index(folder, space, self._generation, built)
        self._set_files(entry, files)

    def _build_suffixes(self, entry: SegmentState) -> None:
        """Sort the token sequences of a segment that lacks this."""
        files = entry.files
        for space, rows in entry.segment.ngrams.items():
            if rows.suffixes is None:
                with segment_files.writing_files(self._path, entry.name) as folder:
                    files = files | vector_files.write_suffixes(folder, space, self._generation, rows)
        self._set_files(entry, files)

    def _build_sequences(self, entry: SegmentState) -> None:
        """Add the positions of words that a segment lacks, or drop them if the index is to have none."""
        if not self._positions:
            self._set_files(entry, segment_files.without(entry.files, segment_files.SEQUENCE_FILES))
            return
        files = entry.files
        for space, (_, component) in enumerate(self._model.parts):
            bm25 = bm25_of(component)
            if bm25 is None or bm25.reads_documents or f"{segment_files.SEQUENCES}{space}" in files:
                continue
            if space not in self._builders:
                self._builders[space] = SequenceBuilder(self._path, self._db, space, bm25, self._splitter)
            pieces = self._builders[space].sequences(entry.segment)
            with segment_files.writing_files(self._path, entry.name) as folder:
                files = files | segment_files.write_sequences(folder, f"{space}-{self._generation}", space, pieces)
        self._set_files(entry, files)

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


_BATCH = 2000  # documents that are read at once


class SequenceBuilder:
    """Reads the stored texts of documents and gives their terms by the numbers of the index."""

    def __init__(self, path: Path, db: sqlite3.Connection, space: int, bm25: BM25, splitter: Splitter | None) -> None:
        self._path = path
        self._db = db
        self._splitter = splitter
        self._space = space
        self._encoder = SequenceEncoder(bm25)
        self._reads_all = bm25.reads_every_document
        self._numbers = np.zeros(0, np.uint32)

    def sequences(self, segment: Segment) -> Iterator[TermSequences]:
        """The term sequences of a segment's documents, some documents at a time; deleted ones have none."""
        for a in range(0, len(segment), _BATCH):
            numbers = segment.numbers[a : a + _BATCH].tolist()
            contents = self._contents(numbers[0], numbers[-1])
            encoded = self._encoder.encode([contents.get(number, {}) for number in numbers])
            yield TermSequences(self._renumbered(encoded.numbers), encoded.starts)

    def _contents(self, first: int, last: int) -> dict[int, Mapping[str, Any]]:
        """What models read of stored documents; of passages also the headings above them, which are in the metadata."""
        if self._splitter is None:
            rows = self._db.execute("SELECT number, fields FROM contents WHERE number BETWEEN ? AND ?", (first, last))
            return {number: stored_fields(fields, self._path) for number, fields in rows}
        columns, table = "number, fields, metadata", "contents LEFT JOIN documents USING (number)"
        found = self._db.execute(f"SELECT {columns} FROM {table} WHERE number BETWEEN ? AND ?", (first, last))
        contents = {}
        for number, fields, metadata in found:
            stored = stored_fields(metadata or "{}", self._path)
            contents[number] = self._splitter.headed({**stored, **stored_fields(fields, self._path)})
        return contents

    def _renumbered(self, numbers: np.ndarray) -> np.ndarray:
        """Terms by the numbers of the index, given those of the lexicon."""
        new = self._encoder.lexicon.terms[len(self._numbers) :]
        own = np.array(find_terms(self._db, self._path, self._space, new, TermBlocks()), np.int64)
        if not self._reads_all:
            own[own < 0] = HOLE  # a word of a document that has no terms in this namespace
        elif (own < 0).any():
            raise CollectionError(f"{self._path}: a word of a stored text is not indexed; run 'vizsla verify'")
        self._numbers = np.concatenate([self._numbers, own.astype(np.uint32)])
        is_term = numbers < HOLE
        out = np.array(numbers)
        out[is_term] = self._numbers[numbers[is_term]]
        return out
