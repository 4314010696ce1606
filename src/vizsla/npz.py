"""Arrays in .npz files from outside: each header is compared with the size of its array before the array is read."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from vizsla.errors import InputError

_MIN_LIMIT = 64_000_000
_MAX_RATIO = 100  # arrays of numbers rarely compress to a tenth; a higher ratio suggests a decompression bomb

_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, KeyError, TypeError,
    RuntimeError, NotImplementedError, OverflowError, OSError, SyntaxError, MemoryError,
)  # fmt: skip


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file by name.

    Raises a ValueError if the file is not a .npz file, or if it would unpack to far more than its size.
    """
    with path.open("rb") as file:
        try:
            return _arrays(file, max(_MIN_LIMIT, _MAX_RATIO * path.stat().st_size))
        except _DAMAGE as e:
            raise ValueError(str(e) or type(e).__name__) from None


def _arrays(source: IO[bytes], limit: int) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > limit:
            raise ValueError("it would unpack to far more than its size")
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
    shape, _, dtype = read(file)
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError("an array holds something other than numbers or texts")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"an array declares the shape {shape}, which does not match its size")


def save_arrays(file: str | Path, **arrays: np.ndarray) -> None:
    """Write arrays into one file."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(file: str | Path, *names: str) -> list[np.ndarray]:
    """Some arrays of a file, in this order."""
    try:
        with Path(file).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except FileNotFoundError:
        raise InputError("there are no packed queries here", file=str(file)) from None
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise InputError(f"these are not packed queries, or not of this version ({e})", file=str(file)) from None
