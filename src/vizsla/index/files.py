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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import Merge, Segment
from vizsla.errors import CollectionError

FOLDER = "segments"
PARTS = tuple(f.name for f in fields(Segment))
ALIVE, FREQUENCIES = "alive", "frequencies"

Facts = dict[str, Any]
"""A file's name in the segment's folder, its bytes, sha256, type and shape."""


def segment_folder(path: Path, segment: str) -> Path:
    return path / FOLDER / segment


def write_segment(path: Path, segment: str, arrays: Segment) -> dict[str, Facts]:
    """Write a new segment."""
    with _writing(path, segment, new=True) as folder:
        return {name: write_array(folder / f"{name}.npy", getattr(arrays, name)) for name in PARTS}


def write_merged(path: Path, segment: str, merge: Merge, chunk: int) -> dict[str, Facts]:
    """Write a new segment from a merge, its postings in chunks."""
    with _writing(path, segment, new=True) as folder:
        small = [name for name in PARTS if name not in ("documents", "values")]
        written = {name: write_array(folder / f"{name}.npy", getattr(merge, name)) for name in small}
        size = int(merge.pointers[-1])
        with (
            ArrayFile(folder / "documents.npy", np.dtype(np.uint32), (size,)) as documents,
            ArrayFile(folder / "values.npy", merge.value_type, (size,)) as values,
        ):
            for some_documents, some_values in merge.postings(chunk):
                documents.write(some_documents)
                values.write(some_values)
        return {**written, "documents": documents.facts, "values": values.facts}


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
    arrays = Segment(**{name: read_array(path, segment, facts[name]) for name in PARTS})
    fits = (
        arrays.lengths.shape == arrays.sizes.shape == (len(arrays.sizes), len(arrays))
        and len(arrays.pointers) == len(arrays.terms) + 1
        and len(arrays.documents) == len(arrays.values) == int(arrays.pointers[-1])
        and len(arrays) > 0
    )
    if not fits:
        raise CollectionError(f"{path}: segment {segment} is damaged: its arrays contradict each other")
    return arrays


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
