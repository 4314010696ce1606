"""Arrays in .npz files of others: what a header declares is compared with what the file holds before it is read."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

_LEAST_BOUND = 64_000_000
_MOST_RATIO = 100  # arrays of numbers are rarely packed to a tenth; zeros without end are

_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, KeyError, TypeError,
    RuntimeError, NotImplementedError, OverflowError, OSError, SyntaxError, MemoryError,
)  # fmt: skip


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file; a ValueError where it is none, or would unpack to far more than it is."""
    with path.open("rb") as file:
        try:
            return _arrays(file, max(_LEAST_BOUND, _MOST_RATIO * path.stat().st_size))
        except _DAMAGE as e:
            raise ValueError(str(e) or type(e).__name__) from None


def _arrays(source: IO[bytes], most: int) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > most:
            raise ValueError("it would unpack to far more than it is")
        for member in members:
            with archive.open(member) as file:
                _check_header(file, member.file_size)
            with archive.open(member) as file:
                name = member.filename.removesuffix(".npy")
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def _check_header(file: IO[bytes], size: int) -> None:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    if kind.hasobject or not kind.itemsize:
        raise ValueError("an array holds no numbers or texts")
    if math.prod(shape) * kind.itemsize != size - file.tell():
        raise ValueError(f"an array declares the shape {shape}, which is not what is there")
