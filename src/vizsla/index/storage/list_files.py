"""Posting lists as files of a segment.

Their directories are in `groups` and `records`, see `ListDirectory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from vizsla.engine import BlockTable, ListDirectory, MergedPostingLists, PostingLists
from vizsla.index.storage.arrays import ArrayFile, Facts, read_array, write_array

_DIRECTORY = ("groups", "records")
_COUNTS = ("|u1", "<u2", "<u4")
ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "groups": (2, ("<u4",)),
    "records": (1, ("|u1",)),
    "postings": (1, ("<u2",)),
    "blocks": (1, ("<u2",)),
    "values": (1, (*_COUNTS, "<f4")),
    "tops": (1, ("<f8",)),
}
"""The number of dimensions and the allowed types of each array."""
KINDS = (
    "small_blocks",
    "large_postings",
    "large_values",
    "large_tops",
    *(f"{kind}_{part}" for kind in ("small", "large") for part in _DIRECTORY),
)
"""The files, which every segment has."""


def write_lists(folder: Path, kind: str, lists: PostingLists) -> dict[str, Facts]:
    """Write the small or the large posting lists of a segment; returns the descriptions of the files."""
    arrays = {**_directory_arrays(lists.directory), _postings_part(kind): lists.postings}
    if kind == "large":
        arrays |= {"values": lists.values, "tops": lists.maxima}
    return _write(folder, kind, arrays)


def write_merged_lists(folder: Path, kind: str, lists: MergedPostingLists, chunk: int) -> dict[str, Facts]:
    """Write merged posting lists, `chunk` postings at a time."""
    postings = _postings_part(kind)
    types = {postings: np.dtype(np.uint16)} | ({"values": lists.value_type} if kind == "large" else {})
    ranges, starts = [np.zeros(0, np.uint16)], []
    with ExitStack() as stack:
        out = {
            part: stack.enter_context(ArrayFile(folder / f"{kind}_{part}.npy", dtype, (lists.size,)))
            for part, dtype in types.items()
        }
        for piece in lists.pieces(chunk):
            ranges.append(piece.ranges)
            starts.append(piece.starts)
            for part, file in out.items():
                file.write(piece.postings if part == postings else piece.values)
    starts.append(np.array([lists.size], np.uint32))
    table = BlockTable(lists.terms, lists.block_starts, np.concatenate(ranges), np.concatenate(starts), lists.counts)
    arrays = _directory_arrays(ListDirectory.pack(table)) | ({"tops": lists.maxima} if kind == "large" else {})
    return {f"{kind}_{part}": file.facts for part, file in out.items()} | _write(folder, kind, arrays)


def _postings_part(kind: str) -> str:
    return "blocks" if kind == "small" else "postings"


def _directory_arrays(directory: ListDirectory) -> dict[str, np.ndarray]:
    return {part: getattr(directory, part) for part in _DIRECTORY}


def _write(folder: Path, kind: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    return {f"{kind}_{part}": write_array(folder / f"{kind}_{part}.npy", array) for part, array in arrays.items()}


def read_lists(path: Path, segment: str, facts: Mapping[str, Facts], kind: str) -> PostingLists:
    """Map the small or the large posting lists of a segment into memory."""
    parts = {part: read_array(path, segment, facts[f"{kind}_{part}"]) for part in _DIRECTORY}
    postings = read_array(path, segment, facts[f"{kind}_{_postings_part(kind)}"])
    values, maxima = np.zeros(0, np.uint8), np.zeros(0)
    if kind == "large":
        values, maxima = (read_array(path, segment, facts[f"{kind}_{part}"]) for part in ("values", "tops"))
    return PostingLists(ListDirectory(**parts), postings, values, maxima)
