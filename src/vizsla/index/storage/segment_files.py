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
from typing import Any, NamedTuple

import numpy as np

from vizsla.engine import (
    AnnIndex,
    Merge,
    ResidualRows,
    ScaledRows,
    Segment,
    TermSequences,
    TokenRows,
    VectorRows,
    build_ann_index,
    convert_rows,
    storage_of,
    token_store,
)
from vizsla.errors import CollectionError
from vizsla.index.storage import (
    document_ids,
    list_files,
    living,
    match_files,
    number_files,
    sequence_files,
    token_files,
    trust,
)
from vizsla.index.storage.arrays import (
    FOLDER,
    ArrayFile,
    Facts,
    HashedFile,
    map_file,
    read_array,
    segment_folder,
    sync_folder,
    write_array,
)
from vizsla.index.storage.stored_ids import StoredIds

DOCUMENT_PARTS = ("lengths", "sizes")
PARTS = (*DOCUMENT_PARTS, *list_files.KINDS)
DENSE, CODES, SCALES, ANN = "dense_", "codes_", "scales_", "near_"  # followed by the number of the namespace
TOKENS = "tokens_"  # where the token vectors of each document begin; the vectors are in the files of dense ones

_COUNTS = ("|u1", "<u2", "<u4")
_ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    **number_files.ARRAY_TYPES,
    "lengths": (2, ("|u1", "<u4")),
    "sizes": (2, _COUNTS),
    **list_files.ARRAY_TYPES,
    **match_files.ARRAY_TYPES,
    living.ALIVE: (1, ("|b1",)),
    living.FREQUENCIES: (1, ("<u4",)),
    DENSE: (2, ("<f4", "<f2")),
    CODES: (2, ("|i1",)),
    SCALES: (1, ("<f4",)),
    TOKENS: (1, ("<i8",)),
    **token_files.ARRAY_TYPES,
    **sequence_files.ARRAY_TYPES,
    **document_ids.ARRAY_TYPES,
}
"""The number of dimensions and the allowed types of each array: numbers of fixed size, never objects."""
_SEGMENT_NAME = re.compile(r"[0-9a-f]{12}")
_FILE_NAME = re.compile(r"[a-z_]+[0-9]*(-[0-9]+)?\.(npy|faiss)")


def check_facts(segment: Any, facts: Any) -> bool:
    """Whether the name of a segment and the descriptions of its files are valid."""
    if not isinstance(segment, str) or not _SEGMENT_NAME.fullmatch(segment) or not isinstance(facts, dict):
        return False
    if not all(part in facts for part in PARTS) or (living.ALIVE in facts) != (living.FREQUENCIES in facts):
        return False
    if not all(files.are_complete(facts) for files in (number_files, match_files, sequence_files, document_ids)):
        return False
    codes, scales, plain, tokens = (
        {part.removeprefix(kind) for part in facts if part.startswith(kind)} for kind in (CODES, SCALES, DENSE, TOKENS)
    )
    coded = token_files.spaces_of(facts, token_files.RESIDUALS)
    return (
        codes == scales
        and tokens <= codes | plain | coded
        and not coded & (codes | plain)
        and token_files.are_complete(facts, tokens)
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
    kinds = "|".join((DENSE, CODES, SCALES, TOKENS, ANN, *token_files.KINDS, *sequence_files.ARRAY_TYPES))
    space = re.fullmatch(f"({kinds})[0-9]{{1,4}}", part)
    if space is not None and space[1] == ANN:
        return isinstance(entry.get("built"), str) and bool(re.fullmatch(f"{part}-[0-9]+[.]faiss", name))
    space = space or match_files.FILE.fullmatch(part)
    dated = (*living.FILES, *document_ids.KINDS)  # what carries the number of a commit
    if space is None and part not in (*DOCUMENT_PARTS, *number_files.KINDS, *list_files.KINDS, *dated):
        return False
    later = (*token_files.KINDS, *sequence_files.ARRAY_TYPES)  # what a commit may add to a segment
    added = "(-[0-9]+)?" if space and space[1] in later else ""
    if not re.fullmatch(f"{part}-[0-9]+[.]npy" if part in dated else f"{part}{added}[.]npy", name):
        return False
    dimensions, types = _ARRAY_TYPES[space[1] if space else re.sub("^(small|large)_", "", part)]
    shape = entry.get("shape")
    if not isinstance(shape, list) or len(shape) != dimensions or entry.get("type") not in types:
        return False
    return all(type(n) is int and 0 <= n < 1 << 48 for n in shape)


class DatedIds(NamedTuple):
    """Ids for a new segment, and the number of the commit that writes them."""

    generation: int
    ids: StoredIds


def write_segment(path: Path, segment: str, arrays: Segment, ids: DatedIds) -> dict[str, Facts]:
    """Write a new segment; returns the descriptions of its files."""
    with _writing(path, segment, new=True) as folder:
        written = {name: write_array(folder / f"{name}.npy", getattr(arrays, name)) for name in DOCUMENT_PARTS}
        written |= number_files.write_numbers(folder, arrays.numbers) | document_ids.write_ids(folder, *ids)
        for kind, some in (("small", arrays.small), ("large", arrays.large)):
            written |= list_files.write_lists(folder, kind, some)
        for space, rows in arrays.dense.items():
            written |= _write_vectors(folder, space, rows.shape, [rows], storage_of(rows))
        for space, lists in arrays.matches.items():
            written |= match_files.write_matches(folder, space, lists)
        for space, tokens in arrays.tokens.items():
            rows = tokens.vectors
            written |= _write_starts(folder, space, tokens.starts)
            written |= _write_vectors(folder, space, rows.shape, [rows], storage_of(rows))
        return written


def write_merged(path: Path, segment: str, merge: Merge, ids: DatedIds, chunk: int, store: str) -> dict[str, Facts]:
    """Write a new segment from a merge, `chunk` postings at a time; `store`: the type of its dense vectors."""
    with _writing(path, segment, new=True) as folder:
        written = {name: write_array(folder / f"{name}.npy", getattr(merge, name)) for name in DOCUMENT_PARTS}
        written |= number_files.write_numbers(folder, merge.numbers) | document_ids.write_ids(folder, *ids)
        for kind, lists in (("small", merge.small), ("large", merge.large)):
            written |= list_files.write_merged_lists(folder, kind, lists, chunk)
        for space in merge.old[0].dense:
            pieces = merge.dense_pieces(space, 4 * chunk)
            written |= _write_vectors(folder, space, merge.dense_shape(space), pieces, store)
        for space in merge.old[0].matches:
            plan = merge.matches(space)
            written |= match_files.write_merged_matches(folder, space, plan, 4 * chunk, token_store(store))
        for space, tokens in merge.old[0].tokens.items():
            starts, pieces = merge.token_starts(space), merge.token_pieces(space, 4 * chunk)
            written |= _write_starts(folder, space, starts)
            coded = [r for s in merge.old if isinstance(r := s.tokens[space].vectors, ResidualRows)]
            if coded:
                codec = max(coded, key=len).codec
                written |= token_files.write_residuals(folder, space, int(starts[-1]), pieces, codec)
            else:
                written |= _write_vectors(folder, space, (int(starts[-1]), tokens.width), pieces, token_store(store))
        return written | sequence_files.write_merged_sequences(folder, merge, chunk)


def _write_starts(folder: Path, space: int, starts: np.ndarray) -> dict[str, Facts]:
    """Write where the token vectors of each document begin."""
    return {f"{TOKENS}{space}": write_array(folder / f"{TOKENS}{space}.npy", starts.astype(np.int64, copy=False))}


def _write_vectors(
    folder: Path, space: int, shape: tuple[int, ...], pieces: Iterable[VectorRows], store: str
) -> dict[str, Facts]:
    """Write the dense or token vectors of a namespace, piece by piece, as the type `store`."""
    files: dict[str, tuple[np.dtype, tuple[int, ...]]]
    if store == "sq8":
        files = {CODES: (np.dtype(np.int8), shape), SCALES: (np.dtype(np.float32), shape[:1])}
    else:
        files = {DENSE: (np.dtype(store), shape)}
    with ExitStack() as stack:
        out = {
            f"{name}{space}": stack.enter_context(ArrayFile(folder / f"{name}{space}.npy", *array))
            for name, array in files.items()
        }
        for piece in pieces:
            rows = convert_rows(piece, store)
            for file, array in zip(out.values(), _arrays_of(rows), strict=True):
                file.write(array)
    return {name: file.facts for name, file in out.items()}


def _arrays_of(rows: VectorRows) -> tuple[np.ndarray, ...]:
    assert not isinstance(rows, ResidualRows)
    return (rows.codes, rows.scales) if isinstance(rows, ScaledRows) else (rows,)


def write_ann_index(
    path: Path, segment: str, generation: int, space: int, factory: str, rows: VectorRows
) -> dict[str, Facts]:
    """Build and write the ANN index of the vectors of a segment; `factory` is faiss's description of it."""
    with _writing(path, segment, new=False) as folder:
        with HashedFile(folder / f"{ANN}{space}-{generation}.faiss", {"built": factory}) as out:
            build_ann_index(factory, rows, out.put)
        trust.remember(out.facts["sha256"])
    return {f"{ANN}{space}": out.facts}


def write_token_index(path: Path, segment: str, generation: int, space: int, rows: TokenRows) -> dict[str, Facts]:
    """Write the centroids and lists of the token vectors of a segment, and their codes if they have any."""
    with _writing(path, segment, new=False) as folder:
        return token_files.write_token_index(folder, space, generation, rows)


def write_sequences(
    path: Path, segment: str, generation: int, space: int, pieces: Iterable[TermSequences]
) -> dict[str, Facts]:
    """Write the term sequences of the documents of a segment, piece by piece."""
    with _writing(path, segment, new=False) as folder:
        return sequence_files.write_sequences(folder, f"{space}-{generation}", space, pieces)


def without(facts: Mapping[str, Facts], kinds: tuple[str, ...]) -> dict[str, Facts]:
    """The files of a segment without those of some kinds, such as `living.FILES` or `sequence_files.KINDS`."""
    return {name: f for name, f in facts.items() if not name.startswith(kinds)}


def without_token_index(facts: Mapping[str, Facts], space: int, *, vectors: bool) -> dict[str, Facts]:
    """The files of a segment without the centroids and lists of a namespace, and without its `vectors` if wanted."""
    kinds = (*token_files.KINDS, *((DENSE, CODES, SCALES) if vectors else ()))
    return {name: f for name, f in facts.items() if name not in {f"{kind}{space}" for kind in kinds}}


def write_living(path: Path, segment: str, generation: int, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    """Write which documents of a segment are alive at a generation, and the document frequencies of its terms."""
    with _writing(path, segment, new=False) as folder:
        return {name: write_array(folder / f"{name}-{generation}.npy", array) for name, array in arrays.items()}


@contextmanager
def _writing(path: Path, segment: str, *, new: bool) -> Iterator[Path]:
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


def read_segment(path: Path, segment: str, facts: Mapping[str, Facts]) -> Segment:
    """Map the arrays of a segment into memory, if they fit together."""
    arrays = {name: read_array(path, segment, facts[name]) for name in DOCUMENT_PARTS}
    small, large = (list_files.read_lists(path, segment, facts, kind) for kind in ("small", "large"))
    matches = match_files.read_matches(path, segment, facts)
    dense: dict[int, VectorRows] = {i: read_array(path, segment, f) for i, f in _of_spaces(facts, DENSE)}
    for i, f in _of_spaces(facts, CODES):
        dense[i] = ScaledRows(read_array(path, segment, f), read_array(path, segment, facts[f"{SCALES}{i}"]))
    tokens = {
        i: token_files.read_token_rows(path, segment, facts, i, dense.pop(i, None), read_array(path, segment, f))
        for i, f in _of_spaces(facts, TOKENS)
    }
    ann = {i: read_ann_index(path, segment, f) for i, f in _of_spaces(facts, ANN)}
    mapped = Segment(
        numbers=number_files.read_numbers(path, segment, facts, arrays["sizes"].shape[1]),
        lengths=arrays["lengths"],
        sizes=arrays["sizes"],
        small=small,
        large=large,
        dense=dense,
        ann=ann,
        tokens=tokens,
        matches=matches,
        sequences=sequence_files.read_sequences(path, segment, facts),
    )
    if not mapped.fits():
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return mapped


def _of_spaces(facts: Mapping[str, Facts], kind: str) -> list[tuple[int, Facts]]:
    """Number and file of each namespace that has a file of a kind."""
    return [(int(name.removeprefix(kind)), f) for name, f in facts.items() if name.startswith(kind)]


def read_ann_index(path: Path, segment: str, facts: Facts) -> AnnIndex:
    """Map an ANN index into memory; faiss opens it at the first search."""
    data = map_file(path, segment, facts)
    name = f"{path}: {segment}/{facts['file']}"
    return AnnIndex(data, facts["sha256"], facts["built"], name, trust.is_trusted)


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
