"""What a commit builds so that segments are searched faster: ANN indexes, centroids, suffix arrays, positions.

All segments share the codec of token vectors, so that segments are merged without loss. It is learnt once, from the
documents of the first such commit. A compaction of the whole index learns it again if the options have changed, or if
the index has grown so much that it should have four times as many centroids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Splitter
from vizsla.engine import (
    HOLE,
    Plaid,
    ResidualCodec,
    ResidualRows,
    Segment,
    TermSequences,
    TokenRows,
    VectorIndex,
    build_token_index,
    learn_codec,
)
from vizsla.errors import CollectionError
from vizsla.index.storage import segment_files, vector_files
from vizsla.index.storage.arrays import Facts
from vizsla.index.storage.database import stored_fields
from vizsla.index.storage.terms import TermBlocks, find_terms
from vizsla.index.writing.segment_state import SegmentState
from vizsla.models import BM25, Model, SequenceEncoder, SparseComponent, bm25_of

_GROWTH = 4
_Files = dict[str, Facts]


class SegmentIndexes:
    """Builds what the segments of a commit lack."""

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        model: Model,
        generation: int,
        vector_index: VectorIndex,
        positions: bool,
        splitter: Splitter | None,
        segments: Sequence[SegmentState],
    ) -> None:
        """`segments`: those before the commit merges any. `positions`: whether the index stores those of words."""
        self._path = path
        self._db = db
        self._model = model
        self._generation = generation
        self._vector_index = vector_index
        self._positions = positions
        self._splitter = splitter
        self._readers: dict[int, _PositionReader] = {}
        self._has_vectors = not all(isinstance(part.component, SparseComponent) for part in model.parts)
        before = [state.segment for state in segments] if self._has_vectors else []
        self._token_indexes = _TokenIndexes(vector_index, before)

    def completed(self, state: SegmentState, states: Sequence[SegmentState], *, whole: bool) -> _Files:
        """The files of a segment with those that it lacks, and without outdated ones.

        `states`: all segments of the commit. `whole`: the whole index is compacted.
        """
        files = state.files
        if self._has_vectors:
            files = self._with_ann_indexes(state, files)
            files = self._with_token_indexes(state, files, [other.segment for other in states], whole)
            files = self._with_suffixes(state, files)
        return self._with_positions(state, files) if self._positions else _without_positions(files)

    def _with_ann_indexes(self, state: SegmentState, files: _Files) -> _Files:
        """With the ANN indexes of a segment that is large enough for them."""
        kept = {name: facts for name, facts in files.items() if not name.startswith(vector_files.ANN)}
        for space, rows in state.segment.dense.items():
            if space in state.segment.matches:  # scored together with tokens, which an ANN index lacks
                continue
            factory = self._vector_index.factory(len(rows), rows.shape[1])
            present = files.get(f"{vector_files.ANN}{space}")
            if factory is None:
                continue
            if present is not None and present["built"] == factory:
                kept[f"{vector_files.ANN}{space}"] = present
            else:
                with segment_files.writing_files(self._path, state.name) as folder:
                    kept |= vector_files.write_ann_index(folder, space, self._generation, factory, rows)
        return kept

    def _with_token_indexes(
        self, state: SegmentState, files: _Files, segments: Sequence[Segment], whole: bool
    ) -> _Files:
        """With the centroids, codes and lists that the token vectors of a segment lack."""
        for space, rows in state.segment.tokens.items():
            if rows.lists is not None and not self._token_indexes.keeps(rows):
                files = vector_files.without_token_index(files, space, vectors=False)
            built = self._token_indexes.built(space, rows, segments, whole=whole)
            if built is not None:
                coded = isinstance(built.vectors, ResidualRows)
                files = vector_files.without_token_index(files, space, vectors=coded)
                with segment_files.writing_files(self._path, state.name) as folder:
                    files |= vector_files.write_token_index(folder, space, self._generation, built)
        return files

    def _with_suffixes(self, state: SegmentState, files: _Files) -> _Files:
        """With the suffix arrays of token sequences."""
        for space, rows in state.segment.ngrams.items():
            if rows.suffixes is None:
                with segment_files.writing_files(self._path, state.name) as folder:
                    files = files | vector_files.write_suffixes(folder, space, self._generation, rows)
        return files

    def _with_positions(self, state: SegmentState, files: _Files) -> _Files:
        """With the positions of words."""
        for space, (_, component) in enumerate(self._model.parts):
            bm25 = bm25_of(component)
            if bm25 is None or bm25.reads_documents or f"{segment_files.SEQUENCES}{space}" in files:
                continue
            if space not in self._readers:
                self._readers[space] = _PositionReader(self._path, self._db, space, bm25, self._splitter)
            pieces = self._readers[space].sequences(state.segment)
            with segment_files.writing_files(self._path, state.name) as folder:
                files = files | segment_files.write_sequences(folder, f"{space}-{self._generation}", space, pieces)
        return files


def _without_positions(files: _Files) -> _Files:
    return {name: facts for name, facts in files.items() if not name.startswith(segment_files.SEQUENCE_FILES)}


# Token vectors


class _TokenIndexes:
    """Builds the token indexes that the segments of a commit need."""

    def __init__(self, vector_index: VectorIndex, segments: Sequence[Segment]) -> None:
        """`segments`: those before the commit merges any."""
        self._plaid = vector_index if isinstance(vector_index, Plaid) else None
        self._present: dict[int, ResidualCodec] = {}
        for segment in sorted(segments, key=len):
            for space, rows in segment.tokens.items():
                codec = _codec_of(rows)
                if codec is not None:
                    self._present[space] = codec
        self._chosen: dict[int, ResidualCodec] = {}

    def built(self, space: int, rows: TokenRows, segments: Sequence[Segment], *, whole: bool) -> TokenRows | None:
        """Token vectors with what they lack; None if they lack nothing, or are too few.

        `segments`: all of the commit, to learn from. `whole`: the whole index is compacted.
        """
        if self._plaid is None or len(rows.vectors) == 0:
            return None
        has_codes = isinstance(rows.vectors, ResidualRows)
        if not has_codes and len(rows) < self._plaid.min_documents:
            return None
        codec = self._codec(space, segments, whole)
        present = _codec_of(rows)
        if rows.lists is not None and present is not None and present.same_as(codec):
            return None
        return build_token_index(rows, codec)

    def keeps(self, rows: TokenRows) -> bool:
        """Whether the index uses the centroid lists of token vectors."""
        return self._plaid is not None or isinstance(rows.vectors, ResidualRows)

    def _codec(self, space: int, segments: Sequence[Segment], whole: bool) -> ResidualCodec:
        if space not in self._chosen:
            assert self._plaid is not None
            rows = [segment.tokens[space] for segment in segments if self._is_large(segment.tokens[space])]
            tokens, present = sum(len(some.vectors) for some in rows), self._present.get(space)
            if present is not None and self._suits(present, tokens, whole):
                self._chosen[space] = present
            else:
                self._chosen[space] = learn_codec(rows, self._plaid.centroids(tokens), self._plaid.nbits)
        return self._chosen[space]

    def _is_large(self, rows: TokenRows) -> bool:
        assert self._plaid is not None
        return isinstance(rows.vectors, ResidualRows) or len(rows) >= self._plaid.min_documents

    def _suits(self, codec: ResidualCodec, tokens: int, whole: bool) -> bool:
        """Whether a codec is still suitable."""
        assert self._plaid is not None
        if len(codec.means) != (1 << self._plaid.nbits if self._plaid.nbits else 0):
            return False
        if not whole:
            return True
        wanted, count = self._plaid.centroids(tokens), len(codec.centroids)
        return count == wanted if self._plaid.nlist else wanted < _GROWTH * count


def _codec_of(rows: TokenRows) -> ResidualCodec | None:
    """The codec of token vectors; one without codes where they have lists alone."""
    if isinstance(rows.vectors, ResidualRows):
        return rows.vectors.codec
    return None if rows.lists is None else ResidualCodec(rows.lists.centroids, np.zeros(0, np.float32))


# Positions of words


_BATCH = 2000  # documents that are read at once


class _PositionReader:
    """Reads where words stand in the stored texts of documents; gives their terms by the numbers of the index."""

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
