"""Arrays on disk: a segment is a folder, an array a .npy file, written once and never changed.

What a file must be (its bytes, hash, type and shape) is kept in the database. A file that is not what it should be
by size, type or shape is refused before anything in it is looked at; `verify` compares the hashes.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import (
    DenseKind,
    Lists,
    Merge,
    MergedLists,
    Rows,
    Scaled,
    Segment,
    Structure,
    build_structure,
    form_of,
    stored,
)
from vizsla.errors import CollectionError

FOLDER = "segments"
DOCUMENT_PARTS = ("numbers", "lengths", "sizes")
SMALL_PARTS = ("terms", "runs", "windows", "starts", "postings")
LARGE_PARTS = (*SMALL_PARTS, "values", "tops")
PARTS = (*DOCUMENT_PARTS, *(f"small_{p}" for p in SMALL_PARTS), *(f"large_{p}" for p in LARGE_PARTS))
ALIVE, FREQUENCIES = "alive", "frequencies"
DENSE, CODES, SCALES, NEAR = "dense_", "codes_", "scales_", "near_"  # and the place of the namespace

Facts = dict[str, Any]
"""A file's name in the segment's folder, its bytes, sha256, type and shape."""


def segment_folder(path: Path, segment: str) -> Path:
    return path / FOLDER / segment


def write_segment(path: Path, segment: str, arrays: Segment) -> dict[str, Facts]:
    """Write a new segment."""
    with _writing(path, segment, new=True) as folder:
        written = {name: write_array(folder / f"{name}.npy", _part(arrays, name)) for name in PARTS}
        for space, rows in arrays.dense.items():
            written |= _write_dense(folder, space, rows.shape, [rows], form_of(rows))
        return written


def _part(segment: Segment, name: str) -> np.ndarray:
    kind, _, part = name.partition("_")
    array: np.ndarray = getattr(getattr(segment, kind), part) if part else getattr(segment, name)
    return array


def write_merged(path: Path, segment: str, merge: Merge, chunk: int, form: str) -> dict[str, Facts]:
    """Write a new segment from a merge, its runs and postings in chunks, its dense vectors in a form."""
    with _writing(path, segment, new=True) as folder:
        written = {name: write_array(folder / f"{name}.npy", getattr(merge, name)) for name in DOCUMENT_PARTS}
        for kind, lists in (("small", merge.small), ("large", merge.large)):
            written |= {f"{kind}_{part}": facts for part, facts in _write_lists(folder, kind, lists, chunk).items()}
        for space in merge.old[0].dense:
            pieces = merge.dense_pieces(space, 4 * chunk)
            written |= _write_dense(folder, space, merge.dense_shape(space), pieces, form)
        return written


def _write_dense(
    folder: Path, space: int, shape: tuple[int, ...], pieces: Iterable[Rows], form: str
) -> dict[str, Facts]:
    """Write the dense vectors of a namespace, piece by piece, in a form."""
    kinds: dict[str, tuple[np.dtype, tuple[int, ...]]]
    if form == "sq8":
        kinds = {CODES: (np.dtype(np.int8), shape), SCALES: (np.dtype(np.float32), shape[:1])}
    else:
        kinds = {DENSE: (np.dtype(form), shape)}
    with ExitStack() as stack:
        out = {
            f"{name}{space}": stack.enter_context(ArrayFile(folder / f"{name}{space}.npy", *kind))
            for name, kind in kinds.items()
        }
        for piece in pieces:
            rows = stored(piece, form)
            for file, array in zip(out.values(), _arrays_of(rows), strict=True):
                file.write(array)
    return {name: file.facts for name, file in out.items()}


def _arrays_of(rows: Rows) -> tuple[np.ndarray, ...]:
    return (rows.codes, rows.scales) if isinstance(rows, Scaled) else (rows,)


def write_structure(
    path: Path, segment: str, generation: int, space: int, kind: DenseKind, built: str, rows: Rows
) -> dict[str, Facts]:
    """Build and write what finds near vectors of a segment without looking at all of them."""
    with _writing(path, segment, new=False) as folder:
        file = folder / f"{NEAR}{space}-{generation}.faiss"
        build_structure(kind, built, rows, file)
        with file.open("rb") as data:
            os.fsync(data.fileno())
        facts = {"file": file.name, "bytes": file.stat().st_size, "sha256": hash_file(file), "built": built}
    return {f"{NEAR}{space}": facts}


def _write_lists(folder: Path, kind: str, lists: MergedLists, chunk: int) -> dict[str, Facts]:
    directory = {"terms": lists.terms, "runs": lists.runs.astype(np.uint32)}
    if kind == "large":
        directory["tops"] = lists.tops
    written = {part: write_array(folder / f"{kind}_{part}.npy", array) for part, array in directory.items()}
    runs, postings = int(lists.runs[-1]), int(lists.starts[-1])
    shapes: dict[str, tuple[np.dtype, int]] = {
        "windows": (np.dtype(np.uint16), runs),
        "starts": (np.dtype(np.uint32), runs + 1),
        "postings": (np.dtype(np.uint16), postings),
    }
    if kind == "large":
        shapes["values"] = (lists.value_type, postings)
    with ExitStack() as stack:
        out = {
            part: stack.enter_context(ArrayFile(folder / f"{kind}_{part}.npy", dtype, (size,)))
            for part, (dtype, size) in shapes.items()
        }
        for piece in lists.pieces(chunk):
            for part, file in out.items():
                file.write(getattr(piece, part))
        out["starts"].write(np.array([postings], np.uint32))
    return written | {part: file.facts for part, file in out.items()}


def write_living(path: Path, segment: str, generation: int, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    """Write which documents of a segment live, and how often its terms occur in them, as of a generation."""
    with _writing(path, segment, new=False) as folder:
        return {name: write_array(folder / f"{name}-{generation}.npy", array) for name, array in arrays.items()}


@contextmanager
def _writing(path: Path, segment: str, *, new: bool) -> Iterator[Path]:
    """Write into a segment's folder so that it survives a crash; a new one that fails is removed again."""
    folder = segment_folder(path, segment)
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        yield folder
        sync_folder(folder)
        sync_folder(folder.parent)
    except BaseException as e:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(e, OSError):
            raise CollectionError(f"{path}: cannot be written to ({e.strerror}); the last commit is intact") from e
        raise


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file with such an array."""
    header = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(header, description)
    return header.getvalue()


class ArrayFile:
    """A .npy file written piece by piece; its hash is made on the way."""

    def __init__(self, file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._file = file.open("wb")
        self._digest = hashlib.sha256()
        self.facts: Facts = {"file": file.name, "bytes": 0, "type": dtype.str, "shape": list(shape)}
        self._put(_header(dtype, shape))

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.facts["bytes"] += len(data)

    def write(self, piece: np.ndarray) -> None:
        self._put(np.ascontiguousarray(piece).data.cast("B") if piece.size else b"")

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        self.facts["sha256"] = self._digest.hexdigest()


def write_array(file: Path, array: np.ndarray) -> Facts:
    """Write an array in one piece."""
    with ArrayFile(file, array.dtype, array.shape) as out:
        out.write(array)
    return out.facts


def read_segment(path: Path, segment: str, facts: Mapping[str, Facts]) -> Segment:
    """Map a segment's arrays into memory, if they can belong together."""
    arrays = {name: read_array(path, segment, facts[name]) for name in PARTS}
    small = {p: arrays[f"small_{p}"] for p in SMALL_PARTS} | {"values": np.zeros(0, np.uint8), "tops": np.zeros(0)}
    large = {p: arrays[f"large_{p}"] for p in LARGE_PARTS}
    documents = {p: arrays[p] for p in DOCUMENT_PARTS}
    dense: dict[int, Rows] = {i: read_array(path, segment, f) for i, f in _of_spaces(facts, DENSE)}
    for i, f in _of_spaces(facts, CODES):
        dense[i] = Scaled(read_array(path, segment, f), read_array(path, segment, facts[f"{SCALES}{i}"]))
    near = {i: read_structure(path, segment, f) for i, f in _of_spaces(facts, NEAR)}
    found = Segment(**documents, small=Lists(**small), large=Lists(**large), dense=dense, near=near)
    if not found.fits():
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return found


def _of_spaces(facts: Mapping[str, Facts], kind: str) -> list[tuple[int, Facts]]:
    """The places of the namespaces that have files of a kind, and these."""
    return [(int(name.removeprefix(kind)), f) for name, f in facts.items() if name.startswith(kind)]


def read_structure(path: Path, segment: str, facts: Facts) -> Structure:
    """Map a structure into memory; what is in it is looked at when it is first asked."""
    file = segment_folder(path, segment) / facts["file"]
    name = f"{path}: {segment}/{facts['file']}"
    try:
        size = file.stat().st_size
        if size != facts["bytes"]:
            raise CollectionError(f"{name} is damaged: it has {size:,} bytes, not {facts['bytes']:,}")
        return Structure(np.memmap(file, np.uint8, "r"), facts["sha256"], facts["built"], name)
    except FileNotFoundError:
        raise MissingFileError(f"{name} is missing") from None
    except OSError as e:
        raise CollectionError(f"{name} cannot be read ({e.strerror})") from None


def read_array(path: Path, segment: str, facts: Facts) -> np.ndarray:
    """Map one array of a segment into memory, if the file is what it should be.

    What it should be is known, so its header is compared, never interpreted.
    """
    file = segment_folder(path, segment) / facts["file"]
    name = f"{segment}/{facts['file']}"
    dtype, shape = np.dtype(facts["type"]), tuple(facts["shape"])
    header = _header(dtype, shape)
    try:
        with file.open("rb") as data:
            size = os.fstat(data.fileno()).st_size
            if size != facts["bytes"]:
                raise CollectionError(f"{path}: {name} is damaged: it has {size:,} bytes, not {facts['bytes']:,}")
            if data.read(len(header)) != header or size != len(header) + dtype.itemsize * math.prod(shape):
                raise CollectionError(f"{path}: {name} is damaged: its type or shape is wrong")
        if 0 in shape:
            return np.zeros(shape, dtype)
        return np.memmap(file, dtype, "r", len(header), shape)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: {name} is missing") from None
    except OSError as e:
        raise CollectionError(f"{path}: {name} cannot be read ({e.strerror})") from None


class MissingFileError(CollectionError):
    """A file the database names is not there: damage, or a newer commit has removed it."""


def model_files(folder: Path) -> list[tuple[str, Path]]:
    """The files a model has in a folder and in the folders inside it, with their names from there."""
    return [(f.relative_to(folder).as_posix(), f) for f in sorted(folder.rglob("*")) if f.is_file()]


def hash_file(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def sweep_segments(path: Path, live: Mapping[str, set[str]]) -> None:
    """Remove the folders no commit names, and in the others the files no commit names."""
    for folder in (path / FOLDER).glob("*"):
        if folder.name not in live:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for file in folder.iterdir():
            if file.name not in live[folder.name]:
                file.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
