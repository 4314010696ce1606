"""Files of Zstandard: reading them, with Python 3.14 or the package zstandard, and whether one is complete.

The decompressor does not notice that a file was cut off.
"""

from __future__ import annotations

import os
from importlib import import_module
from io import RawIOBase
from typing import IO, Any

from vizsla.errors import MissingPackageError

_FRAME = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZES = (0, 2, 4, 8)


def decompressed(raw: IO[bytes]) -> RawIOBase:
    """The content of an open file; damage is an OSError when it is read."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module: Any = import_module(name)
        except ImportError:
            continue
        if name == "zstandard":
            return _Decompressed(
                module.ZstdDecompressor().stream_reader(raw, read_across_frames=True), module.ZstdError
            )
        return _Decompressed(module.ZstdFile(raw), module.ZstdError)
    raise MissingPackageError(
        "a .zst file needs zstandard, which is not installed; get it with: pip install 'vizsla[zstd]'"
    )


class _Decompressed(RawIOBase):
    """A stream whose damage is an OSError, whatever decompresses it."""

    def __init__(self, stream: Any, error: type[Exception]) -> None:
        self._stream, self._error = stream, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int = self._stream.readinto(buffer)
        except self._error as e:
            raise OSError(str(e)) from None
        return count


def is_whole(file: int) -> bool:
    """Whether the last frame of an open file ends where the file ends; only the headers of blocks are read."""
    at, size = 0, os.fstat(file).st_size
    while at < size:
        magic = _number(file, at, 4)
        if magic & ~15 == _SKIPPABLE:
            at += 8 + _number(file, at + 4, 4)
        elif magic == _FRAME:
            at = _frame_end(file, at + 4, size)
        else:
            return size - at >= 4  # the decompressor raises the error for what is not a frame
    return at == size


def _frame_end(file: int, at: int, size: int) -> int:
    descriptor = _number(file, at, 1)
    single, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    content = _CONTENT_SIZES[descriptor >> 6] or single
    at += 1 + (not single) + _ID_SIZES[descriptor & 3] + content
    last = 0
    while not last and at < size:
        head = _number(file, at, 3)
        last, kind, length = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else length)  # a block that repeats one byte stores it once
    return at + 4 * checksum if last else size + 1


def _number(file: int, at: int, length: int) -> int:
    return int.from_bytes(os.pread(file, length, at), "little")
