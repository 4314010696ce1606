"""The ids of documents as files of a segment, so that a search finds them without the database.

A commit adds them to a segment from the database, so these files carry the number of the commit. A document that was
deleted before has an empty id. Segments of format 3 and earlier have no such files until the next commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from vizsla.errors import CollectionError
from vizsla.index.storage.arrays import Facts, read_array, write_array
from vizsla.text.stored_texts import StoredTexts

_BATCH = 10_000  # documents that are read at once
_ARRAYS = {"ids": "data", "id_sizes": "sizes", "id_starts": "starts"}
"""The names of the files, and the attributes of `StoredTexts`."""
KINDS = tuple(_ARRAYS)
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "ids": (1, ("|u1",)),
    "id_sizes": (1, ("|u1", "<u2", "<u4")),
    "id_starts": (1, ("<i8",)),
}
"""The number of dimensions and the allowed types of each array."""


def are_complete(facts: Mapping[str, Facts]) -> bool:
    """Whether a segment has all of these files or none."""
    return len({kind in facts for kind in KINDS}) == 1


def read_ids(path: Path, segment: str, facts: Mapping[str, Facts]) -> StoredTexts | None:
    """Map the ids of a segment's documents into memory; None if it has no such files."""
    if KINDS[0] not in facts:
        return None
    ids = StoredTexts(*(read_array(path, segment, facts[kind]) for kind in KINDS))
    if not ids.fit():
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return ids


def write_ids(folder: Path, generation: int, ids: StoredTexts) -> dict[str, Facts]:
    """Write the ids of a segment's documents; returns the descriptions of the files."""
    return {
        kind: write_array(folder / f"{kind}-{generation}.npy", getattr(ids, name)) for kind, name in _ARRAYS.items()
    }


def collect_ids(db: sqlite3.Connection, numbers: np.ndarray) -> StoredTexts:
    """The ids of documents by ascending insertion numbers, from the database; empty for those it does not hold."""

    def batches() -> Iterator[Sequence[bytes]]:
        for a in range(0, len(numbers), _BATCH):
            wanted = numbers[a : a + _BATCH].tolist()
            bounds = wanted[0], wanted[-1]
            rows = db.execute("SELECT number, CAST(id AS BLOB) FROM documents WHERE number BETWEEN ? AND ?", bounds)
            found = dict(rows.fetchall())
            yield [found.get(number, b"") for number in wanted]

    return StoredTexts.join(batches())
