"""Tables: comma- and tab-separated files, MS MARCO's and DPR's among them; the types of columns, from all rows."""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from vizsla.datasets.files import InputFile, Progress, read_lines
from vizsla.datasets.source_format import SOURCES, FileReader, Part, Reading, SourceFormat
from vizsla.datasets.values import iso_text
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.runs.documents import Document, FieldNames, Origin, listed

_SEPARATORS = (",", ";", "\t", "|")
_DEFAULTS = {"csv": ",", "tsv": "\t"}
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_field_limit = threading.Lock()  # csv has one limit for the whole process


class TableFormat(SourceFormat):
    """Rows with a header, each a document."""

    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:  # noqa: ARG002
        types = source.column_types
        table = Table.open(part.file, source.names, part.format, source.delimiter)
        if table is not None:
            yield from table.documents(types, source.fields, progress)

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:
        table = Table.open(part.file, source.names, part.format, source.delimiter)
        return None if table is None else table.header


@SOURCES.register("csv", help="Separated by commas, or semicolons, tabs or bars, with a header.")
class Csv(TableFormat):
    """Comma-separated values."""

    endings = (".csv",)


@SOURCES.register("tsv", help="Separated by tabs, with a header or as MS MARCO's collection.")
class Tsv(TableFormat):
    """Tab-separated values."""

    endings = (".tsv", ".tab")


def csv_rows(file: InputFile, delimiter: str, progress: Progress = None) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file with csv's quotes, with the numbers of their first lines; empty rows are skipped."""
    line, characters = 1, 0

    def lines() -> Iterator[str]:
        nonlocal characters
        for _, text in read_lines(file, progress, universal=True):
            characters += len(text)
            if characters > file.max_document:  # an unclosed quote turns the rest of the file into one row
                raise file.too_large(line)
            yield text

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        with _field_limit:
            before = csv.field_size_limit(file.max_document)
            try:
                row = next(reader, None)
            except csv.Error as e:
                file.leave_out(file.refusal(f"this row cannot be read ({e})", line))
                row = []
            finally:
                csv.field_size_limit(before)
        if row is None:
            return
        if row:
            yield line, row
        line, characters = reader.line_num + 1, 0


@dataclass(frozen=True)
class Table:
    """A comma- or tab-separated file: its delimiter and the names of its columns."""

    file: InputFile
    names: FieldNames
    delimiter: str
    header: tuple[str, ...] | None
    """None for a file without a header, such as MS MARCO's two columns, whose quotes are plain characters."""
    source_names: FieldNames = field(default_factory=FieldNames)
    remark: str | None = None
    """A message about what was guessed."""

    @classmethod
    def open(cls, file: InputFile, names: FieldNames, format: str, delimiter: str | None = None) -> Table | None:
        """The table in a file; None if the file is empty."""
        first = next((text for _, text in read_lines(file, universal=True) if text.strip()), None)
        if first is None:
            return None
        chosen = delimiter or (_delimiter(first, names) if format == "csv" else _DEFAULTS[format])
        if chosen == "\t" and _has_no_header(first.rstrip("\r\n").split("\t"), names):
            return cls(file, names, chosen, None)
        line, row = next(csv_rows(file, chosen))
        header = tuple(name.strip() for name in row)
        _check_header(file, line, header, names)
        unusual = delimiter is None and chosen != _DEFAULTS[format]
        remark = f"taking {_NAMES[chosen]} as separators" if unusual else None
        return cls(file, names, chosen, header, names.resolve(header), remark)

    def texts(self, fields: Collection[str]) -> set[str]:
        """The columns that stay texts: the id, the text, the title, and the fields that a model reads."""
        names = self.source_names
        return {n for n in self.header or () if n in (names.id, names.text, names.title) or n in fields}

    def infer(self, known_types: Types, fields: Collection[str]) -> dict[str, str]:
        """The types of the columns that may be other than texts and are not in `known_types`, from all rows."""
        header = self.header or ()
        self._check_types(known_types, fields)
        columns = [name for name in header if name not in known_types and name not in self.texts(fields)]
        if not columns:
            return {}
        alone = replace(self, file=self.file.without_notes())
        return infer_types((row for _, row in alone._rows(None)), header, columns)

    def _check_types(self, types: Types, fields: Collection[str]) -> None:
        for name, kind in types.items():
            if self.header is not None and name in self.texts(fields) and kind != "text":
                raise self.file.refusal(f"the column {name!r} is an id or a text, and cannot be of type {kind}")

    def documents(self, types: Types, fields: Collection[str], progress: Progress) -> Iterator[Document]:
        """The rows as documents, with cells of these types; an empty cell is a missing value, except in texts."""
        if self.header is None:
            yield from self._two_columns(progress)
            return
        texts = self.texts(fields)
        readers = [None if name in texts else cell_reader(types.get(name, "text")) or str for name in self.header]
        columns = list(zip(self.header, readers, strict=True))
        for line, row in self._rows(progress):
            try:
                document = self._document(columns, row, types, line)
            except InputError as e:
                self.file.leave_out(e)
                continue
            yield document

    def _document(
        self, columns: list[tuple[str, Callable[[str], Any] | None]], row: list[str], types: Types, line: int
    ) -> Document:
        record: dict[str, Any] = {}
        for (name, read), cell in zip(columns, row, strict=True):
            if read is None or read is str:
                if cell or read is None:
                    record[name] = cell
            elif stripped := cell.strip():
                record[name] = self._value(read, stripped, name, types[name], line)
        return Document.from_record(record, Origin(self.file.name, line), self.names)

    def _value(self, read: Callable[[str], Any], cell: str, name: str, kind: str, line: int) -> Any:
        try:
            return read(cell)
        except ValueError:
            message = (
                f"{cell[:40]!r} in the column {name!r} is not of type {public_type(kind)}; choose another with "
                "--types (in Python types=)"
            )
            raise self.file.refusal(message, line) from None

    def _rows(self, progress: Progress) -> Iterator[tuple[int, list[str]]]:
        header = self.header or ()
        rows = csv_rows(self.file, self.delimiter, progress)
        next(rows)
        for line, row in rows:
            if len(row) != len(header):
                message = f"expected {len(header)} columns as in the header, not {len(row)}"
                self.file.leave_out(self.file.refusal(message, line))
                continue
            yield line, row

    def _two_columns(self, progress: Progress) -> Iterator[Document]:
        for line, text in read_lines(self.file, progress):
            if not text.strip():
                continue
            row = text.rstrip("\r\n").split("\t")
            if len(row) != 2 or not row[0]:
                message = f"expected an id, a tab and a text, not {len(row)} columns"
                self.file.leave_out(self.file.refusal(message, line))
                continue
            yield Document(row[0], {"text": row[1]}, Origin(self.file.name, line))


def _delimiter(line: str, names: FieldNames) -> str:
    """The delimiter of a header: the first usual one that gives an id and at least one other column."""
    for delimiter in _SEPARATORS:
        header = line.rstrip("\r\n").replace('"', "").split(delimiter)
        if len(header) > 1 and names.resolve([name.strip() for name in header]).id is not None:
            return delimiter
    return ","


def _has_no_header(columns: list[str], names: FieldNames) -> bool:
    resolved = names.resolve(columns)
    return len(columns) == 2 and resolved.id is None and resolved.text is None and names == FieldNames()


def _check_header(file: InputFile, line: int, header: tuple[str, ...], names: FieldNames) -> None:
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise file.refusal(f"the column {repeated!r} appears a second time; every column needs a name of its own", line)
    for option, name in (("id", names.id), ("text", names.text), ("title", names.title)):
        if name is not None and name not in header:
            message = (
                f"the column {name!r} (--{option}-field, in Python FieldNames({option}=...)) does not exist; "
                f"the columns are {listed(header)}"
            )
            raise file.refusal(message, line)
    resolved = names.resolve(header)
    if resolved.id is None and resolved.text is None:
        advice = (
            "name the id with --id-field (in Python FieldNames(id=...)), or the separator of columns with --delimiter "
            "(in Python delimiter=)"
        )
        raise file.refusal(f"none of the columns {listed(header)} is the id; {advice}", line)


Types = Mapping[str, str]
"""The types of columns by their names."""

TYPES = {"text": "texts", "int": "whole numbers", "float": "numbers", "bool": "true or false", "date": "dates"}
"""The types that a column can have, and their names in messages."""

# A number with more digits, or with leading zeros such as 007, is an identifier: it stays a text.
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(_DAY.pattern + r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?")
_TRUTHS = {"true": True, "false": False}

# Times with and without a zone cannot be compared, so they are different types; days fit with both.
_WIDER = {("int", "float"): "float", ("day", "naive"): "naive", ("day", "aware"): "aware"}
_DATES = ("day", "naive", "aware")


def infer_types(rows: Iterable[Sequence[str]], header: Sequence[str], columns: Iterable[str]) -> dict[str, str]:
    """The narrowest type of each column that fits all rows; a column of empty cells is left out.

    >>> infer_types([["1", "007", "2.5"], ["", "8", "3"]], ["year", "code", "price"], ["year", "code", "price"])
    {'year': 'int', 'code': 'text', 'price': 'float'}
    """
    open_columns = {name: header.index(name) for name in columns}
    types: dict[str, str] = {}
    for row in rows:
        if not open_columns:
            break
        for name, position in list(open_columns.items()):
            cell = row[position].strip()
            if cell:
                types[name] = joined_type(types.get(name), _cell_type(cell))
                if types[name] == "text":
                    del open_columns[name]
    return {name: types[name] for name in header if name in types}


def joined_type(first: str | None, second: str) -> str:
    """The narrowest type that includes both types; None is a column without values so far."""
    if first is None or first == second:
        return second
    return _WIDER.get((first, second)) or _WIDER.get((second, first)) or "text"


def public_type(inferred: str) -> str:
    """The name of an inferred type in options and messages."""
    return "date" if inferred in _DATES else inferred


def _cell_type(cell: str) -> str:
    if _WHOLE.fullmatch(cell):
        return "int"
    if _NUMBER.fullmatch(cell):
        return "float"
    if cell.lower() in _TRUTHS:
        return "bool"
    time = _TIME.fullmatch(cell)
    if time is None and not _DAY.fullmatch(cell):
        return "text"
    try:
        datetime.fromisoformat(cell)
    except ValueError:  # a thirteenth month
        return "text"
    return "day" if time is None else "aware" if time[1] else "naive"


def _date(cell: str) -> str:
    return cell if _DAY.fullmatch(cell) and datetime.fromisoformat(cell) else iso_text(datetime.fromisoformat(cell))


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell):
        raise ValueError
    return float(cell)


def _whole(cell: str) -> int:
    if not _WHOLE.fullmatch(cell):
        raise ValueError
    return int(cell)


def _truth(cell: str) -> bool:
    try:
        return _TRUTHS[cell.lower()]
    except KeyError:
        raise ValueError from None


_READERS: dict[str, Callable[[str], Any]] = {"int": _whole, "float": _number, "bool": _truth, "date": _date}


def cell_reader(kind: str) -> Callable[[str], Any] | None:
    """The function that reads a cell of this type, and raises a ValueError for others; None for texts."""
    return _READERS.get(public_type(kind))


def parse_types(text: str) -> dict[str, str]:
    """Types of columns by name, from a text.

    >>> parse_types("year=text, price=float")
    {'year': 'text', 'price': 'float'}
    """
    types: dict[str, str] = {}
    for part in text.split(","):
        name, equals, kind = (piece.strip() for piece in part.rpartition("="))
        if not equals or not name:
            raise VizslaError(f"{part.strip()!r} is not a type of a column; expected something like year=int,code=text")
        types[name] = kind
    return checked_types(types)


def checked_types(types: Types) -> dict[str, str]:
    """The same types of columns; raises an error if one of them is unknown."""
    for kind in types.values():
        if kind not in TYPES:
            raise UnknownNameError("column type", str(kind), tuple(TYPES))
    return dict(types)
