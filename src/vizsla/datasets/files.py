"""Text files line by line, plain or compressed, with errors that name file and line."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import zstandard

from vizsla.errors import InputError

_CHUNK = 1 << 20


_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: BufferedReader(gzip.GzipFile(fileobj=raw), _CHUNK),
    ".xz": lambda raw: BufferedReader(lzma.LZMAFile(raw), _CHUNK),  # noqa: SIM115 (closed with raw)
    ".zst": lambda raw: BufferedReader(
        zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True), _CHUNK
    ),
}
COMPRESSIONS = tuple(_OPENERS)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb", buffering=_CHUNK)
    except FileNotFoundError:
        raise InputError("there is no such file", file=str(path)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(path)) from None
    except PermissionError:
        raise InputError("this file may not be read", file=str(path)) from None


def read_lines(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1; `progress` is told the bytes read from disk so far."""
    number = 0
    with _open(path) as raw:
        file = _OPENERS.get(path.suffix, lambda plain: plain)(raw)
        try:
            for number, line in enumerate(file, 1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
                if progress is not None and number % 256 == 0:
                    progress(raw.tell())
        except UnicodeDecodeError as e:
            bad = e.object[e.start]
            message = f"this is not UTF-8 (byte 0x{bad:02x} at position {e.start + 1} of the line)"
            raise InputError(message, file=str(path), line=number) from None
        except (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as e:
            message = f"the file is damaged or not what its name says ({e})"
            raise InputError(message, file=str(path), line=number + 1) from None


def read_json_lines(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file with one a line; empty lines are passed over."""
    for number, line in read_lines(path, progress):
        if line.strip():
            yield number, parse_json(line, path, number)


def parse_json(line: str, path: Path, number: int) -> Any:
    """The JSON value of a line."""
    try:
        value = json.loads(line)
    except ValueError as e:
        detail = getattr(e, "msg", str(e)).removesuffix(" at")
        column = getattr(e, "colno", None)
        place = f" at column {column}" if column else ""
        raise InputError(f"this line is not JSON ({detail}{place})", file=str(path), line=number) from None
    except RecursionError:
        raise InputError("this line is nested too deeply", file=str(path), line=number) from None
    if "\\ud" in line or "\\uD" in line:
        _check_surrogates(value, path, number)
    return value


def _check_surrogates(value: Any, path: Path, number: int) -> None:
    """Half of a surrogate pair is no character and cannot be stored."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("this line has half a surrogate pair (\\ud8xx)", file=str(path), line=number) from None
