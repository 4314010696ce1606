"""Segments on disk: a segment is a folder, and each of its arrays is a .npy file that is written once.

An index may come from anywhere, so file names are checked, links are not followed, and types must be numbers. Only
files with names that a writer gives are removed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from vizsla.engine import BlockTable, ListDirectory, Merge, MergedPostingLists, PostingLists, Segment, TermSequences
from vizsla.errors import CollectionError
from vizsla.index.storage import document_ids, live_documents, vector_files
from vizsla.index.storage.arrays import (
    FOLDER,
    ArrayFile,
    Facts,
    read_array,
    segment_folder,
    spaces_of,
    sync_folder,
    write_array,
    write_arrays,
)
from vizsla.index.storage.stored_ids import StoredIds

_DOCUMENTS = ("lengths", "sizes")
_NUMBERS, _RUNS = "numbers", "number_runs"  # the one or the other
_DIRECTORY = ("groups", "records")
_LISTS = (
    "small_blocks",
    "large_postings",
    "large_values",
    "large_tops",
    *(f"{kind}_{part}" for kind in ("small", "large") for part in _DIRECTORY),
)
SEQUENCES, _SEQUENCE_STARTS = SEQUENCE_FILES = "sequences_", "sequencestarts_"  # followed by a namespace's number

_COUNTS = ("|u1", "<u2", "<u4")
_ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "lengths": (2, ("|u1", "<u4")),
    "sizes": (2, _COUNTS),
    _NUMBERS: (1, ("<u4", "<i8")),
    _RUNS: (2, ("<i8",)),
    "groups": (2, ("<u4",)),
    "records": (1, ("|u1",)),
    "postings": (1, ("<u2",)),
    "blocks": (1, ("<u2",)),
    "values": (1, (*_COUNTS, "<f4")),
    "tops": (1, ("<f8",)),
    live_documents.ALIVE: (1, ("|b1",)),
    live_documents.FREQUENCIES: (1, ("<u4",)),
    SEQUENCES: (1, ("<u4",)),
    _SEQUENCE_STARTS: (1, ("<i8",)),
    **vector_files.ARRAY_TYPES,
    **document_ids.ARRAY_TYPES,
}
"""The number of dimensions and the allowed types of each array: numbers of fixed size, never objects."""
_SEGMENT_NAME = re.compile(r"[0-9a-f]{12}")
_FILE_NAME = re.compile(r"[a-z_]+[0-9]*(-[0-9]+)?\.(npy|faiss)")
_DATED = (*live_documents.FILES, *document_ids.KINDS)  # what carries the number of a commit
_ADDED = (*vector_files.TOKEN_INDEX, vector_files.SUFFIXES, *SEQUENCE_FILES)  # what a commit may add to a segment
_OF_NAMESPACE = re.compile(f"({'|'.join((*vector_files.ARRAY_TYPES, vector_files.ANN, *SEQUENCE_FILES))})[0-9]{{1,4}}")
_SHORT = 1024  # numbers that are not worth runs
_BLOCK = 1 << 22  # bytes that are copied at once


def is_file_of_segment(segment: str, name: str) -> bool:
    """Whether a writer may give these names to the folder of a segment and to a file in it."""
    return bool(_SEGMENT_NAME.fullmatch(segment) and _FILE_NAME.fullmatch(name))


def check_facts(segment: Any, facts: Any) -> bool:
    """Whether the name of a segment and the descriptions of its files are valid."""
    if not isinstance(segment, str) or not _SEGMENT_NAME.fullmatch(segment) or not isinstance(facts, dict):
        return False
    return (
        all(part in facts for part in (*_DOCUMENTS, *_LISTS))
        and (_NUMBERS in facts) != (_RUNS in facts)
        and (live_documents.ALIVE in facts) == (live_documents.FREQUENCIES in facts)
        and spaces_of(facts, SEQUENCES) == spaces_of(facts, _SEQUENCE_STARTS)
        and document_ids.are_complete(facts)
        and vector_files.are_complete(facts)
        and all(_is_valid_entry(*item) for item in facts.items())
    )


def _is_valid_entry(part: str, entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    name, size, sha256 = entry.get("file"), entry.get("bytes"), entry.get("sha256")
    if type(size) is not int or size < 0 or not isinstance(name, str):
        return False
    if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        return False
    of_namespace = _OF_NAMESPACE.fullmatch(part)
    kind = part if of_namespace is None else of_namespace[1]
    if kind == vector_files.ANN:
        return isinstance(entry.get("built"), str) and bool(re.fullmatch(f"{part}-[0-9]+[.]faiss", name))
    if of_namespace is None and part not in (*_DOCUMENTS, _NUMBERS, _RUNS, *_LISTS, *_DATED):
        return False
    date = "-[0-9]+" if kind in _DATED else "(-[0-9]+)?" if kind in _ADDED else ""
    if not re.fullmatch(f"{part}{date}[.]npy", name):
        return False
    dimensions, types = _ARRAY_TYPES[re.sub("^(small|large)_", "", kind)]
    shape = entry.get("shape")
    if not isinstance(shape, list) or len(shape) != dimensions or entry.get("type") not in types:
        return False
    return all(type(n) is int and 0 <= n < 1 << 48 for n in shape)


# Writing


class DatedIds(NamedTuple):
    """Ids for a new segment, and the number of the commit that writes them."""

    generation: int
    ids: StoredIds


def write_segment(path: Path, segment: str, arrays: Segment, ids: DatedIds) -> dict[str, Facts]:
    """Write a new segment; returns the descriptions of its files."""
    with writing_files(path, segment, new=True) as folder:
        written = write_arrays(folder, _plain_arrays(arrays))
        return {
            "lengths": written["lengths"],  # described first
            "sizes": written["sizes"],
            **_write_numbers(folder, arrays.numbers),
            **document_ids.write_ids(folder, *ids),
            **written,
            **vector_files.write_vectors(folder, arrays),
        }


def write_merged(path: Path, segment: str, merge: Merge, ids: DatedIds, chunk: int, store: str) -> dict[str, Facts]:
    """Write a new segment from a merge, `chunk` postings at a time; `store`: the type of its dense vectors."""
    with writing_files(path, segment, new=True) as folder:
        return {
            **write_arrays(folder, {name: getattr(merge, name) for name in _DOCUMENTS}),
            **_write_numbers(folder, merge.numbers),
            **document_ids.write_ids(folder, *ids),
            **_write_merged_lists(folder, "small", merge.small, chunk),
            **_write_merged_lists(folder, "large", merge.large, chunk),
            **vector_files.write_merged_vectors(folder, merge, 4 * chunk, store),
            **_write_merged_sequences(folder, merge, chunk),
        }


@contextmanager
def writing_files(path: Path, segment: str, *, new: bool = False) -> Iterator[Path]:
    """A context to write into the folder of a segment: syncs it at the end, and removes a new one after a failure."""
    folder = segment_folder(path, segment)
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        yield folder
        sync_folder(folder)
        if new:
            sync_folder(folder.parent)
    except BaseException as e:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(e, OSError):
            raise CollectionError(f"{path}: cannot be written to ({e.strerror}); the last commit is intact") from e
        raise


def without(facts: Mapping[str, Facts], kinds: tuple[str, ...]) -> dict[str, Facts]:
    """The files of a segment without those of some kinds, such as `live_documents.FILES` or `SEQUENCE_FILES`."""
    return {name: f for name, f in facts.items() if not name.startswith(kinds)}


# Reading


def read_segment(path: Path, segment: str, facts: Mapping[str, Facts]) -> Segment:
    """Map the arrays of a segment into memory, if they fit together."""
    lengths, sizes = (read_array(path, segment, facts[name]) for name in _DOCUMENTS)
    mapped = Segment(
        numbers=read_numbers(path, segment, facts, sizes.shape[1]),
        lengths=lengths,
        sizes=sizes,
        small=_read_lists(path, segment, facts, "small"),
        large=_read_lists(path, segment, facts, "large"),
        **vector_files.read_vectors(path, segment, facts)._asdict(),
        sequences=_read_sequences(path, segment, facts),
    )
    if not mapped.fits():
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return mapped


# Insertion numbers: documents that were added one after the other have consecutive ones, so a long array is stored as
# runs, the first number of each and how many it has. A segment of a million documents takes a few bytes, not four
# million.


def to_runs(numbers: np.ndarray) -> np.ndarray:
    """Ascending numbers as runs, [r, 2]: the first of each run, and how many it has.

    >>> to_runs(np.array([3, 4, 5, 9, 11, 12])).tolist()
    [[3, 3], [9, 1], [11, 2]]
    """
    wide = numbers.astype(np.int64)
    breaks = np.flatnonzero(np.diff(wide) != 1) + 1
    starts = np.append(0, breaks)
    return np.stack([wide[starts], np.diff(np.append(starts, len(wide)))], axis=1)


def from_runs(runs: np.ndarray) -> np.ndarray:
    """The numbers of runs, in four bytes as long as they fit.

    >>> from_runs(np.array([[3, 3], [9, 1], [11, 2]])).tolist()
    [3, 4, 5, 9, 11, 12]
    """
    firsts, counts = runs[:, 0], runs[:, 1]
    kind = np.uint32 if int(firsts[-1]) + int(counts[-1]) <= 1 << 32 else np.int64
    if len(runs) == 1:
        return np.arange(firsts[0], firsts[0] + counts[0], dtype=kind)
    shifts = firsts - (np.cumsum(counts) - counts)
    numbers: np.ndarray = np.arange(counts.sum()) + np.repeat(shifts, counts)
    return numbers.astype(kind)


def _write_numbers(folder: Path, numbers: np.ndarray) -> dict[str, Facts]:
    """Write the numbers of a segment's documents, ascending; returns the description of the file."""
    if len(numbers) > _SHORT:
        runs = to_runs(numbers)
        if runs.nbytes < numbers.nbytes:
            return {_RUNS: write_array(folder / f"{_RUNS}.npy", runs)}
    return {_NUMBERS: write_array(folder / f"{_NUMBERS}.npy", numbers)}


def read_numbers(path: Path, segment: str, facts: Mapping[str, Facts], count: int) -> np.ndarray:
    """The numbers of a segment's documents, `count` of them."""
    if _NUMBERS in facts:
        return read_array(path, segment, facts[_NUMBERS])
    runs = read_array(path, segment, facts[_RUNS])
    sound = runs.shape[1] == 2 and len(runs) > 0 and bool(((runs >= 0) & (runs < 1 << 60)).all())
    if not sound or sum(runs[:, 1].tolist()) != count:
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return from_runs(runs)


# Posting lists, whose directories are in `groups` and `records`; see `ListDirectory`.


def _plain_arrays(segment: Segment) -> dict[str, np.ndarray]:
    """The arrays of a segment that lie in a file each as they are: lengths, and the small and large posting lists."""
    arrays = {name: getattr(segment, name) for name in _DOCUMENTS}
    for kind, lists in ("small", segment.small), ("large", segment.large):
        for part in _DIRECTORY:
            arrays[f"{kind}_{part}"] = getattr(lists.directory, part)
        arrays[f"{kind}_{_postings_part(kind)}"] = lists.postings
    return arrays | {"large_values": segment.large.values, "large_tops": segment.large.maxima}


def _write_merged_lists(folder: Path, kind: str, lists: MergedPostingLists, chunk: int) -> dict[str, Facts]:
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
    parts = write_arrays(folder, {f"{kind}_{part}": array for part, array in arrays.items()})
    return {f"{kind}_{part}": file.facts for part, file in out.items()} | parts


def _postings_part(kind: str) -> str:
    return "blocks" if kind == "small" else "postings"


def _directory_arrays(directory: ListDirectory) -> dict[str, np.ndarray]:
    return {part: getattr(directory, part) for part in _DIRECTORY}


def _read_lists(path: Path, segment: str, facts: Mapping[str, Facts], kind: str) -> PostingLists:
    """Map the small or the large posting lists of a segment into memory."""
    parts = {part: read_array(path, segment, facts[f"{kind}_{part}"]) for part in _DIRECTORY}
    postings = read_array(path, segment, facts[f"{kind}_{_postings_part(kind)}"])
    values, maxima = np.zeros(0, np.uint8), np.zeros(0)
    if kind == "large":
        values, maxima = (read_array(path, segment, facts[f"{kind}_{part}"]) for part in ("values", "tops"))
    return PostingLists(ListDirectory(**parts), postings, values, maxima)


# Term sequences: a commit adds them from the stored texts, a merge copies them.


def _read_sequences(path: Path, segment: str, facts: Mapping[str, Facts]) -> dict[int, TermSequences]:
    """Map the term sequences of a segment into memory, by the places of the namespaces that have them."""
    spaces = [int(part.removeprefix(SEQUENCES)) for part in facts if part.startswith(SEQUENCES)]
    return {
        s: TermSequences(*(read_array(path, segment, facts[f"{kind}{s}"]) for kind in SEQUENCE_FILES)) for s in spaces
    }


def write_sequences(folder: Path, name: str, space: int, pieces: Iterable[TermSequences]) -> dict[str, Facts]:
    """Write term sequences, piece by piece; `name`: how the files are called after their kind."""
    sizes = [np.zeros(1, np.int64)]
    with TemporaryFile() as spool:  # how many there are is known at the end, and stands at the beginning
        for piece in pieces:
            spool.write(np.ascontiguousarray(piece.numbers, np.uint32).data)
            sizes.append(piece.sizes())
        starts = np.cumsum(np.concatenate(sizes)).astype(np.int64)
        spool.seek(0)
        with ArrayFile(folder / f"{SEQUENCES}{name}.npy", np.dtype(np.uint32), (int(starts[-1]),)) as out:
            while block := spool.read(_BLOCK):
                out.write(np.frombuffer(block, np.uint32))
    return {
        f"{SEQUENCES}{space}": out.facts,
        f"{_SEQUENCE_STARTS}{space}": write_array(folder / f"{_SEQUENCE_STARTS}{name}.npy", starts),
    }


def _write_merged_sequences(folder: Path, merge: Merge, chunk: int) -> dict[str, Facts]:
    """Write the sequences of a merged segment, in the namespaces in which all old segments have them."""
    written = {}
    for space in merge.old[0].sequences:
        if not all(space in segment.sequences for segment in merge.old):
            continue
        starts, pieces = merge.sequence_starts(space), merge.sequence_pieces(space, chunk)
        with ArrayFile(folder / f"{SEQUENCES}{space}.npy", np.dtype(np.uint32), (int(starts[-1]),)) as out:
            for piece in pieces:
                out.write(piece)
        written[f"{SEQUENCES}{space}"] = out.facts
        written[f"{_SEQUENCE_STARTS}{space}"] = write_array(folder / f"{_SEQUENCE_STARTS}{space}.npy", starts)
    return written


# Files that no commit names


def sweep_segments(path: Path, live: Mapping[str, set[str]]) -> None:
    """Remove the folders of segments that no commit names, and in other segments the files that no commit names."""
    for place in leftovers(path, live):
        with suppress(OSError):  # a folder in place of a file, or one that holds a file that is not of a writer
            place.rmdir() if place.parent == path / FOLDER else place.unlink()


def leftovers(path: Path, live: Mapping[str, set[str]]) -> Iterator[Path]:
    """Files of segments that no commit names, and then their folders, if none names them.

    Files and folders with other names are not of a writer.
    """
    for folder in _plain_folders(path):
        names: set[str] = set()
        with suppress(OSError):  # it cannot be read
            names = {f.name for f in folder.iterdir() if _FILE_NAME.fullmatch(f.name)}
        yield from (folder / name for name in names - live.get(folder.name, set()))
        if folder.name not in live:
            yield folder


def _plain_folders(path: Path) -> list[Path]:
    """The folders of all segments."""
    root = path / FOLDER
    if root.is_symlink() or not root.is_dir():
        return []
    return [f for f in root.iterdir() if _SEGMENT_NAME.fullmatch(f.name) and f.is_dir() and not f.is_symlink()]


def foreign_files(path: Path, live: Mapping[str, set[str]]) -> Iterator[str]:
    """Names of files and folders among the segments that no writer creates; leftovers of dead writers do not count."""
    root = path / FOLDER
    if root.is_symlink():
        yield FOLDER
        return
    segments = _plain_folders(path)
    if root.is_dir():
        yield from (f"{FOLDER}/{f.name}" for f in root.iterdir() if f not in segments)
    for folder in segments:
        try:
            files = list(folder.iterdir())
        except FileNotFoundError:  # a commit has just removed it
            continue
        except OSError:
            yield f"{FOLDER}/{folder.name}"
            continue
        for file in files:
            plain = _FILE_NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink()
            if not plain and file.name not in live.get(folder.name, set()) and os.path.lexists(file):
                yield f"{FOLDER}/{folder.name}/{file.name}"
