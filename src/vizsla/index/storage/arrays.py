"""Arrays in files: a .npy file is written once, hashed while it is written, and mapped into memory.

The database holds the size, hash, type and shape of each file. A file with another size, type or shape is refused
before its content is read; `verify` compares the hashes.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import math
import mmap
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from vizsla.engine import in_threads, processors
from vizsla.errors import CollectionError

FOLDER = "segments"

Facts = dict[str, Any]
"""The description of a file: its name in the folder of the segment, its bytes, sha256, type and shape."""


def spaces_of(facts: Mapping[str, Facts], kind: str) -> set[str]:
    """The numbers, as texts, of the namespaces that have a file of a kind."""
    return {name.removeprefix(kind) for name in facts if name.startswith(kind)}


def segment_folder(path: Path, segment: str) -> Path:
    """The folder of a segment in an index."""
    return path / FOLDER / segment


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file for an array of this type and shape."""
    header = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(header, description)
    return header.getvalue()


class HashedFile:
    """A file that is written and hashed piece by piece, and synced to disk when it is complete."""

    def __init__(self, file: Path, facts: Facts) -> None:
        file.unlink(missing_ok=True)  # never write into a file of somebody else
        self._file = file.open("xb")
        self._digest = hashlib.sha256()
        self.facts: Facts = {"file": file.name, "bytes": 0, **facts}

    def put(self, data: bytes | memoryview) -> None:
        """Write bytes."""
        self._file.write(data)
        self._digest.update(data)
        self.facts["bytes"] += len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        self.facts["sha256"] = self._digest.hexdigest()


class ArrayFile(HashedFile):
    """A .npy file written piece by piece."""

    def __init__(self, file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        super().__init__(file, {"type": dtype.str, "shape": list(shape)})
        try:
            self.put(_header(dtype, shape))
        except BaseException:
            with suppress(OSError):
                self._file.close()
            raise

    def write(self, piece: np.ndarray) -> None:
        """Write the next elements of the array."""
        self.put(np.ascontiguousarray(piece).data.cast("B") if piece.size else b"")


def write_array(file: Path, array: np.ndarray) -> Facts:
    """Write a whole array; returns the description of the file."""
    with ArrayFile(file, array.dtype, array.shape) as out:
        out.write(array)
    return out.facts


PARALLEL = 1 << 22
"""Bytes of files from which threads write or read them."""


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    """Write arrays to files of these names, in threads if they are large; returns the descriptions of the files."""
    if sum([array.nbytes for array in arrays.values()]) < PARALLEL:
        return {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    items = list(arrays.items())

    def write(a: int, z: int) -> list[tuple[str, Facts]]:
        return [(name, write_array(folder / f"{name}.npy", array)) for name, array in items[a:z]]

    return dict(pair for part in in_threads(write, len(items), processors(), 1) for pair in part)


def read_array(path: Path, segment: str, facts: Facts) -> np.ndarray:
    """Map an array of a segment into memory, if the file matches its description.

    The header is compared with the expected one and never interpreted.
    """
    dtype, shape = np.dtype(facts["type"]), tuple(facts["shape"])
    header = _header(dtype, shape)
    data = map_file(path, segment, facts)
    size = len(header) + dtype.itemsize * math.prod(shape)
    if len(data) != size or data[: len(header)].tobytes() != header:
        raise CollectionError(f"{path}: {segment}/{facts['file']} is damaged: its type or shape is wrong")
    return data[len(header) :].view(dtype).reshape(shape)


def map_file(path: Path, segment: str, facts: Facts) -> np.ndarray:
    """Map a file of a segment into memory, if it has the expected size."""
    name = f"{path}: {segment}/{facts['file']}"
    try:
        descriptor = open_plain(segment_folder(path, segment) / facts["file"])
        try:
            size = os.fstat(descriptor).st_size
            if size != facts["bytes"]:
                raise CollectionError(f"{name} is damaged: it has {size:,} bytes, not {facts['bytes']:,}")
            return _map_bytes(descriptor, size)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise MissingFileError(f"{name} is missing") from None
    except OSError as e:
        raise CollectionError(f"{name} cannot be read ({e.strerror})") from None


def map_whole_file(file: Path) -> np.ndarray:
    """All bytes of a plain file as a read-only array, which stays when the file is removed."""
    descriptor = open_plain(file)
    try:
        return _map_bytes(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def open_plain(file: Path) -> int:
    """Open a plain file for reading and return its descriptor; links, links as its folder, and pipes are refused."""
    if file.parent.is_symlink():
        raise OSError(0, "its folder is a link")
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(file, os.O_RDONLY | flags | getattr(os, "O_CLOEXEC", 0))
    except OSError as e:
        if file.is_symlink():
            raise OSError(e.errno, "it is a link") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a plain file")
    return descriptor


class MissingFileError(CollectionError):
    """A file that the database names is missing: it was lost, or a newer commit has removed it."""


def hash_file(file: Path) -> str:
    """The SHA-256 of a plain file; not for a database, see the module `database`."""
    with open(open_plain(file), "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk, so that new names survive a crash."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Files are mapped without keeping them open. Each of Python's own maps holds a file handle until it is collected. An
# index of many segments has hundreds of arrays, and a process may often have only a thousand handles. The system needs
# the handle only while it maps the file.

SMALL = 1 << 14
"""Files up to this size are read instead of mapped, since a mapping takes whole pages and a system call."""


def _map_bytes(descriptor: int, size: int) -> np.ndarray:
    """The first `size` bytes of an open file as a read-only array; the file may be closed afterwards."""
    if size <= SMALL:
        data = os.pread(descriptor, size, 0) if hasattr(os, "pread") else os.read(descriptor, size)
        if len(data) < size:
            raise OSError(0, "the file is shorter than it was")
        return np.frombuffer(data, np.uint8)
    if os.name == "posix":
        return np.asarray(_Mapping(descriptor, size))
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)


class _Mapping:
    """The memory of a mapped file; numpy holds this object as long as an array uses the memory."""

    def __init__(self, descriptor: int, size: int) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address, self._size = address, size
        self._unmap = _libc.munmap  # kept, since globals may be gone when the interpreter ends
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            self._unmap(self._address, self._size)


def _system_library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    # The offset in the file has the size of a pointer, also on 32-bit systems.
    library.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t
    ]  # fmt: skip
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


if os.name == "posix":
    _libc = _system_library()
