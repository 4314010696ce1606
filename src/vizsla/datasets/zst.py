"""Whether a .zst file is complete; the decompressor does not notice that a file was cut off."""

from __future__ import annotations

import os

_FRAME = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZES = (0, 2, 4, 8)


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
