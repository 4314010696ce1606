"""JSON: a record a line, one array of records, or records over several lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from typing import IO, Any, NoReturn

from vizsla.datasets.files import (
    DAMAGE,
    InputFile,
    Progress,
    check_surrogates,
    not_utf8,
    opened,
    read_json_lines,
)
from vizsla.datasets.source_format import SOURCES, FileReader, Part, Reading, SourceFormat
from vizsla.errors import InputError
from vizsla.runs.documents import Document, Origin

_HEAD = 1 << 16
_CHUNK = 1 << 20
_BLANK = re.compile(r"[ \t\r\n]*+")
_SPREAD = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:\[|\{[ \t]*+\r?\n)")


@SOURCES.register("jsonl", help="JSON: a record a line, an array of records, or records over several lines.")
class JsonRecords(SourceFormat):
    """Records of JSON, each a document."""

    endings = (".jsonl", ".ndjson", ".json")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:  # noqa: ARG002
        file = part.file
        for line, record in read_json_records(file, progress):
            try:
                document = Document.from_record(record, Origin(file.name, line), source.names)
            except InputError as e:
                file.leave_out(e)
                continue
            yield document

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:  # noqa: ARG002
        _, record = next(read_json_records(part.file.without_notes()), (0, None))
        return record if isinstance(record, dict) else None


def is_json_lines(file: InputFile) -> bool:
    """Whether a file has one record per line, rather than one array or records over several lines."""
    with opened(file) as (stream, _):
        try:
            return _SPREAD.match(stream.read(_HEAD)) is None
        except DAMAGE:
            return True  # the reader raises the error


def read_json_records(file: InputFile, progress: Progress = None) -> Iterator[tuple[int, Any]]:
    """The records of a JSON file, each with the number of its first line."""
    if is_json_lines(file):
        yield from read_json_lines(file, progress)
        return
    with opened(file) as (stream, raw):
        values = _Values(file, stream)
        for line, value in values:
            yield line, value
            if progress is not None:
                progress(raw.tell())


class _Values:
    """Iterates over consecutive JSON values, or the elements of an array, in a stream; holds about one at a time."""

    def __init__(self, file: InputFile, stream: IO[bytes]) -> None:
        self._file, self._stream = file, stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._at, self._line, self._ended = "", 0, 1, False

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        in_array = self._next_character() == "["
        if in_array:
            self._at += 1
        while self._next_character() not in ("", "]"):
            yield self._line, self._value()
            if in_array and self._next_character() == ",":
                self._at += 1
                if self._next_character() == "]":
                    self._refuse("expected another record after this comma")
            elif in_array and self._next_character() not in ("", "]"):
                self._refuse("expected a comma or the end of the array")
        if in_array != (self._next_character() == "]"):
            self._refuse("the array is never closed" if in_array else "expected a record")
        if in_array:
            self._at += 1
            if self._next_character():
                self._refuse("expected nothing after the array")

    def _next_character(self) -> str:
        """The next character that is not white space, without consuming it; empty at the end."""
        while True:
            end = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            if end < len(self._text):
                return self._text[end]
            if not self._read_more():
                return ""

    def _value(self) -> Any:
        """The value that starts here. If it does not parse, it may be incomplete: then more is read."""
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except json.JSONDecodeError as e:
                if len(self._text) - self._at > self._file.max_document:
                    if e.pos < len(self._text) - 100 and not e.msg.startswith("Unterminated"):
                        self._refuse(f"this is not JSON ({e.msg})", e.pos)
                    raise self._file.too_large(self._line) from None
                if not self._read_more():
                    self._refuse(f"this is not JSON ({e.msg})", e.pos)
            except ValueError as e:  # a number with too many digits
                self._refuse(f"this is not JSON ({e})")
            except RecursionError:
                self._refuse("this is nested too deeply")
            else:
                self._consume(value, end)
                return value

    def _consume(self, value: Any, end: int) -> None:
        source = self._text[self._at : end]
        if len(source) > self._file.max_document:
            raise self._file.too_large(self._line)
        if "\\ud" in source or "\\uD" in source:
            check_surrogates(value, self._file, self._line)
        self._line += source.count("\n")
        self._at = end

    def _read_more(self) -> bool:
        """Read at least as much as is in memory already; False at the end of the file."""
        if self._ended:
            return False
        try:
            data = self._stream.read(max(_CHUNK, len(self._text) - self._at))
            self._ended = not data
            self._text = self._text[self._at :] + self._decode(data, self._ended)
        except UnicodeDecodeError as e:
            raise not_utf8(self._file, e, self._line) from None
        except DAMAGE as e:
            self._refuse(f"the file is damaged or not what its name says ({e})")
        self._at = 0
        return not self._ended

    def _refuse(self, message: str, at: int | None = None) -> NoReturn:
        line = self._line + self._text.count("\n", self._at, at or self._at)
        raise self._file.refusal(message, line) from None
