"""Adds the positions of words to a segment: the terms of its documents in the order of the text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vizsla.engine import HOLE, Segment, TermSequences
from vizsla.errors import CollectionError
from vizsla.index.storage.database import stored_fields
from vizsla.index.storage.terms import TermBlocks, find_terms
from vizsla.models import BM25, SequenceEncoder

_BATCH = 2000  # documents that are read at once


class SequenceBuilder:
    """Reads the stored texts of documents and gives their terms by the numbers of the index."""

    def __init__(self, path: Path, db: sqlite3.Connection, space: int, bm25: BM25) -> None:
        self._path = path
        self._db = db
        self._space = space
        self._encoder = SequenceEncoder(bm25)
        self._numbers = np.zeros(0, np.uint32)

    def sequences(self, segment: Segment) -> Iterator[TermSequences]:
        """The term sequences of a segment's documents, some documents at a time; deleted ones have none."""
        for a in range(0, len(segment), _BATCH):
            numbers = segment.numbers[a : a + _BATCH].tolist()
            rows = self._db.execute(
                "SELECT number, fields FROM contents WHERE number BETWEEN ? AND ?", (numbers[0], numbers[-1])
            )
            contents = {number: stored_fields(fields, self._path) for number, fields in rows}
            encoded = self._encoder.encode([contents.get(number, {}) for number in numbers])
            yield TermSequences(self._renumbered(encoded.numbers), encoded.starts)

    def _renumbered(self, numbers: np.ndarray) -> np.ndarray:
        """Terms by the numbers of the index, given those of the lexicon."""
        new = self._encoder.lexicon.terms[len(self._numbers) :]
        own = np.array(find_terms(self._db, self._path, self._space, new, TermBlocks()), np.int64)
        if (own < 0).any():
            raise CollectionError(f"{self._path}: a word of a stored text is not indexed; run 'vizsla verify'")
        self._numbers = np.concatenate([self._numbers, own.astype(np.uint32)])
        is_term = numbers < HOLE
        out = np.array(numbers)
        out[is_term] = self._numbers[numbers[is_term]]
        return out
