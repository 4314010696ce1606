"""The ids of documents as files of a segment; they are stored nowhere else.

Files of ids carry the number of the commit that has written them. A document that was deleted before may have an empty
id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vizsla.datasets.passages import MARK
from vizsla.errors import CollectionError
from vizsla.index.storage.arrays import Facts, read_array, write_array
from vizsla.index.storage.stored_ids import SHORT, Rows, StoredIds, StoredTexts
from vizsla.lazy import cached_property

_TEXTS = ("ids", "id_sizes", "id_starts")
_RUNS, _ORDER = "id_runs", "id_order"
KINDS = (*_TEXTS, _RUNS, _ORDER)
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "ids": (1, ("|u1",)),
    "id_sizes": (1, ("|u1", "<u2", "<u4")),
    "id_starts": (1, ("<i8",)),
    _RUNS: (1, ("<u4", "<i8")),
    _ORDER: (1, ("<u4", "<i8")),
}
"""The number of dimensions and the allowed types of each array."""


def are_complete(facts: Mapping[str, Facts]) -> bool:
    """Whether a segment has the files that each has; only a long one has the others."""
    return all(kind in facts for kind in _TEXTS)


def read_ids(path: Path, segment: str, facts: Mapping[str, Facts]) -> StoredIds:
    """Map the ids of a segment's documents into memory."""
    texts = StoredTexts(*(read_array(path, segment, facts[kind]) for kind in _TEXTS))
    runs, order = (read_array(path, segment, facts[k]) if k in facts else None for k in (_RUNS, _ORDER))
    ids = StoredIds(texts, runs, order)
    if not ids.fit():
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return ids


def write_ids(folder: Path, generation: int, ids: StoredIds) -> dict[str, Facts]:
    """Write the ids of a segment's documents; returns the descriptions of the files."""
    texts = ids.texts
    arrays = {**dict(zip(_TEXTS, (texts.data, texts.sizes, texts.starts), strict=True)), _RUNS: ids.runs}
    arrays[_ORDER] = ids.order if len(ids) > SHORT else None
    return {
        kind: write_array(folder / f"{kind}-{generation}.npy", array)
        for kind, array in arrays.items()
        if array is not None
    }


class SegmentIds:
    """The documents of a segment, one or more: their insertion numbers, ascending, their ids, and which live."""

    def __init__(self, numbers: np.ndarray, ids: StoredIds, alive: np.ndarray | None = None) -> None:
        """`alive`: None if all live."""
        self.numbers, self.ids, self.alive = numbers, ids, alive

    @cached_property
    def _ends(self) -> tuple[int, int, bool]:
        """The first and the last number, and whether some between them are left out."""
        first, last = int(self.numbers[0]), int(self.numbers[-1])
        return first, last, last - first >= len(self.numbers)

    def rows_of(self, numbers: np.ndarray) -> Rows:
        """The rows in this segment of the documents with some insertion numbers."""
        first, last, has_gaps = self._ends
        if not has_gaps:
            return self.ids, first, numbers
        inside = (numbers >= first) & (numbers <= last)
        wanted = np.where(inside, numbers, first).astype(self.numbers.dtype)
        return self.ids, 0, np.where(inside, np.searchsorted(self.numbers, wanted), -1)

    def find(self, ids: StoredTexts) -> list[tuple[int, int]]:
        """Pairs of the position of an id and the insertion number of a live document of this segment with that id."""
        alive = self.alive
        return [(i, int(self.numbers[row])) for i, row in self.ids.find(ids) if alive is None or alive[row]]

    def ending(self, end: bytes) -> np.ndarray:
        """The insertion numbers of live documents whose ids end with some bytes, of which the last is a 0."""
        rows = self.ids.rows_ending(end)
        numbers: np.ndarray = self.numbers[rows if self.alive is None else rows[self.alive[rows]]]
        return numbers


def find_in_segments(segments: Sequence[SegmentIds], ids: Sequence[str]) -> list[tuple[str, int]]:
    """Ids and insertion numbers of the live documents of all segments that have one of some ids."""
    wanted = StoredTexts.of(ids)
    return [(ids[i], number) for segment in segments for i, number in segment.find(wanted)]


Find = Callable[[Sequence[str]], list[tuple[str, int]]]
"""Gives ids and insertion numbers of those rows with some ids that live."""


def find_passages(find: Find, ids: Sequence[str]) -> list[tuple[str, int]]:
    """Ids of documents, and the insertion numbers of all their passages; `find`: finds passages by their ids."""
    found: list[tuple[str, int]] = []
    wanted, passage = list(ids), 0
    while wanted:
        owners = {f"{doc_id}{MARK}{passage}": doc_id for doc_id in wanted}
        here = [(owners[passage_id], number) for passage_id, number in find(list(owners))]
        found += here
        wanted, passage = list(dict.fromkeys(doc_id for doc_id, _ in here)), passage + 1
    return found
