"""Read text files line by line, plain or compressed, with errors that name file and line; pipes are spooled."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any

from vizsla.datasets.skipped import Skipped
from vizsla.errors import InputError, MissingPackageError, VizslaError
from vizsla.plain_data import NestedTooDeeplyError, parse_json

Progress = Callable[[int], None] | None
"""Called with the number of bytes read from disk so far."""

MAX_DOCUMENT = 16_000_000
"""The most bytes that a line or a document may have by default: five times War and Peace."""

MAX_UNPACKED = 256_000_000
"""The most bytes that a packed file may have, unpacked, if it is read as a whole."""

STDIN = "-"
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CHUNK = 1 << 20

_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: BufferedReader(gzip.GzipFile(fileobj=raw), _CHUNK),
    ".xz": lambda raw: BufferedReader(lzma.LZMAFile(raw), _CHUNK),  # noqa: SIM115 (closed with raw)
    ".zst": lambda raw: BufferedReader(_zstd_stream(raw), _CHUNK),
}
COMPRESSIONS = tuple(_OPENERS)
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


@dataclass(frozen=True)
class InputFile:
    """A file to read: its path, its name in messages, and the most bytes that one of its documents may have."""

    path: Path
    name: str
    max_document: int = MAX_DOCUMENT
    remedy: str = "--max-document (in Python max_document=) allows larger ones"
    """What to do about a document that is too large."""
    skipped: Skipped | None = field(default=None, compare=False, repr=False)
    """Where it is noted what was left out of the file; None if the first thing that cannot be read is an error."""

    @classmethod
    def of(cls, source: Path | InputFile) -> InputFile:
        """An input file as it is, or one for a path."""
        return source if isinstance(source, InputFile) else cls(source, str(source))

    def refusal(self, message: str, line: int | None = None) -> InputError:
        """The error for something wrong in this file."""
        return InputError(message, file=self.name, line=line)

    def leave_out(self, error: VizslaError) -> None:
        """Note that something in this file cannot be read, or raise the error, whichever was asked for."""
        if self.skipped is None:
            raise error
        self.skipped.add(error)

    def without_notes(self) -> InputFile:
        """The same file, read without noting what is left out: it is read a second time."""
        return self if self.skipped is None else replace(self, skipped=Skipped())

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """The content as a stream that can be read at any place; one that is packed is unpacked to memory first."""
        with opened(self) as (stream, raw):
            if stream is raw:
                yield raw
                return
            try:
                data = stream.read(MAX_UNPACKED + 1)
            except DAMAGE as e:
                raise self.refusal(f"the file is damaged or not what its name says ({e})") from None
        if len(data) > MAX_UNPACKED:
            raise self.refusal(f"this file unpacks to more than {MAX_UNPACKED:,} bytes")
        yield BytesIO(data)

    def read_text(self) -> str:
        """The whole file as text: UTF-8, or what its byte order mark says; one that is too large is refused."""
        with opened(self) as (stream, _):
            try:
                data = stream.read(self.max_document + 1)
            except DAMAGE as e:
                raise self.refusal(f"the file is damaged or not what its name says ({e})") from None
        if len(data) > self.max_document:
            raise self.too_large(1)
        return self.decoded(data)

    def decoded(self, data: bytes, encoding: str | None = None) -> str:
        """The content of the file as text; `encoding`: what the file says about itself, for text that is not UTF-8."""
        mark = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
        try:
            return data.decode(mark or "utf-8")
        except UnicodeDecodeError as e:
            if mark is None and encoding is not None:
                with suppress(LookupError):
                    return data.decode(encoding, "replace")
            start = data.rfind(b"\n", 0, e.start) + 1
            line = UnicodeDecodeError(e.encoding, data[start : e.end], e.start - start, e.end - start, e.reason)
            raise not_utf8(self, line, data.count(b"\n", 0, e.start) + 1) from None

    def too_large(self, line: int) -> InputError:
        """The error for a document with too many bytes."""
        message = f"this document has more than {self.max_document:,} bytes; {self.remedy}"
        return self.refusal(message, line)


@contextmanager
def opened(source: Path | InputFile) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Two streams of bytes of a file, decompressed and raw; errors name the file."""
    file = InputFile.of(source)
    try:
        raw = file.path.open("rb", buffering=_CHUNK)
    except FileNotFoundError:
        raise file.refusal("this file does not exist") from None
    except IsADirectoryError:
        raise file.refusal("this is a folder, not a file") from None
    except OSError as e:
        raise file.refusal(f"this file cannot be read ({e.strerror})") from None
    with raw:
        if file.path.suffix == ".zst" and not is_whole_zstd(raw.fileno()):
            raise file.refusal("the file is damaged or not what its name says (it is cut off)")
        yield _OPENERS.get(file.path.suffix, lambda plain: plain)(raw), raw


DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""The errors that readers of compressed files raise for damaged files."""


def read_lines(
    source: Path | InputFile, progress: Progress = None, *, universal: bool = False, fallback: str | None = None
) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1; with `universal`, a single carriage return also ends a line.

    `fallback`: the encoding of lines that are not UTF-8; without one they are refused.
    A line that is longer than a document may be is refused before it is read completely.
    """
    file = InputFile.of(source)
    number, max_bytes = 0, file.max_document
    with opened(file) as (stream, raw):
        lines = _universal_lines(stream, max_bytes) if universal else iter(partial(stream.readline, max_bytes + 1), b"")
        try:
            for number, line in enumerate(lines, 1):
                if len(line) > max_bytes:
                    file.leave_out(file.too_large(number))
                    if universal:
                        return
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(max_bytes)
                    continue
                try:
                    text = _decoded(line, "utf-8-sig" if number == 1 else "utf-8", fallback)
                except UnicodeDecodeError as e:
                    file.leave_out(not_utf8(file, e, number))
                    continue
                yield number, text
                if progress is not None and number % 256 == 0:
                    progress(raw.tell())
        except DAMAGE as e:
            damage = file.refusal(f"the file is damaged or not what its name says ({e})", number + 1)
            file.leave_out(damage)


def _decoded(line: bytes, encoding: str, fallback: str | None) -> str:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        if fallback is None:
            raise
        return line.decode(fallback, "replace")


def _universal_lines(stream: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    rest = b""
    while len(rest) <= max_bytes and (chunk := stream.read(_CHUNK)):
        *lines, rest = (rest + chunk).splitlines(
            keepends=True
        )  # the last line may be incomplete, also between \r and \n
        yield from lines
    if rest:
        yield rest


def not_utf8(file: InputFile, e: UnicodeDecodeError, line: int) -> InputError:
    """The error for a line that is not UTF-8."""
    bad = e.object[e.start]
    return file.refusal(f"this is not UTF-8 (byte 0x{bad:02x} at position {e.start + 1} of the line)", line)


def find_file(folder: Path, name: str) -> Path:
    """The path of a file in a folder, plain or compressed."""
    for ending in ("", *COMPRESSIONS):
        path = folder / (name + ending)
        if path.is_file():
            return path
    raise InputError(f"{name} does not exist in this folder", file=str(folder))


def read_json_lines(source: Path | InputFile, progress: Progress = None) -> Iterator[tuple[int, Any]]:
    """The numbers and JSON values of the lines of a file; empty lines are skipped."""
    file = InputFile.of(source)
    for number, line in read_lines(file, progress):
        if line.strip():
            try:
                value = parse_line(line, file, number)
            except InputError as e:
                file.leave_out(e)
                continue
            yield number, value


def parse_line(line: str, source: Path | InputFile, number: int) -> Any:
    """The JSON value of a line."""
    file = InputFile.of(source)
    try:
        value = parse_json(line)
    except NestedTooDeeplyError:
        raise file.refusal("this line is nested too deeply", number) from None
    except ValueError as e:
        detail = getattr(e, "msg", str(e)).removesuffix(" at")
        column = getattr(e, "colno", None)
        place = f" at column {column}" if column else ""
        raise file.refusal(f"this line is not JSON ({detail}{place})", number) from None
    if "\\ud" in line or "\\uD" in line:
        check_surrogates(value, file, number)
    return value


def check_surrogates(value: Any, file: InputFile, number: int) -> None:
    """Refuse a value with a lone surrogate, which is not a character and cannot be stored."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise file.refusal("this line has half a surrogate pair (\\ud8xx)", number) from None


def is_pipe(source: str | Path) -> bool:
    """Whether a source can be read only once: `-`, a pipe, a process substitution, a terminal."""
    if str(source) == STDIN:
        return True
    path = Path(source)
    return path.exists() and not path.is_file() and not path.is_dir()


def spool(source: str | Path) -> Path:
    """Copy a pipe to a temporary file, which can be read twice, and return its path; the caller removes it."""
    try:
        if str(source) == STDIN:
            stream = getattr(sys.stdin, "buffer", None)
            if stream is None:
                raise InputError("standard input is not available", file=STDIN)
            return _copy_to_file(stream)
        with Path(source).open("rb") as pipe:
            mode = os.fstat(pipe.fileno()).st_mode
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not pipe.isatty() and Path(source) != Path(os.devnull)):
                raise InputError("this is a device, not a file of documents", file=str(source))
            return _copy_to_file(pipe)
    except OSError as e:
        raise InputError(f"the pipe cannot be read into a temporary file ({e.strerror})", file=str(source)) from None


def _copy_to_file(stream: IO[bytes]) -> Path:
    start = stream.read(max(map(len, _MAGIC)))
    ending = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), "")
    number, name = tempfile.mkstemp(ending, "vizsla-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(start)
            shutil.copyfileobj(stream, file, _CHUNK)
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


# Of a .zst file: its frames, as RFC 8878 has them.
_FRAME = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZES = (0, 2, 4, 8)


def _zstd_stream(raw: IO[bytes]) -> RawIOBase:
    """The content of an open .zst file; damage is an OSError when it is read."""
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
    """A stream that raises OSError for damaged data, whichever library decompresses it."""

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


def is_whole_zstd(file: int) -> bool:
    """Whether the last frame of an open .zst file ends where the file ends; only the headers of blocks are read."""
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
