"""Tables: comma- and tab-separated files, MS MARCO's and DPR's among them, and Parquet."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from vizsla.datasets.files import InputFile, Progress, read_lines
from vizsla.datasets.values import Types, cell_reader, infer_types, plain_content, public_type
from vizsla.errors import InputError, VizslaError
from vizsla.runs.documents import Document, FieldNames, Origin, listed

_SEPARATORS = (",", ";", "\t", "|")
_DEFAULTS = {"csv": ",", "tsv": "\t"}
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_field_limit = threading.Lock()  # csv has one limit for the whole process


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


def parquet_columns(file: InputFile) -> list[str]:
    """The names of the columns of a Parquet file."""
    with _Parquet(file) as parquet:
        return [str(name) for name in parquet.read_schema(file.path).names]


def read_parquet(file: InputFile, names: FieldNames, progress: Progress) -> Iterator[Document]:
    """The rows of a Parquet file."""
    row, size = 0, file.path.stat().st_size
    for batch, rows in _parquet_batches(file):
        for record in batch:
            row += 1
            content = {key: _json_value(value) for key, value in plain_content(record).items() if value is not None}
            if sum(len(value) for value in content.values() if isinstance(value, str)) > file.max_document:
                file.leave_out(file.too_large(row))
                continue
            try:
                document = Document.from_record(content, Origin(file.name, row), names)
            except InputError as e:
                file.leave_out(e)
                continue
            yield document
        if progress is not None:
            progress(size * row // max(rows, 1))


def _parquet_batches(file: InputFile) -> Iterator[tuple[list[dict[str, Any]], int]]:
    with _Parquet(file) as parquet:
        whole = parquet.ParquetFile(file.path)
        batches = whole.iter_batches(batch_size=1000)
    while True:
        with _Parquet(file):
            batch = next(batches, None)
            records = None if batch is None else batch.to_pylist()
        if records is None:
            return
        yield records, whole.metadata.num_rows


class _Parquet:
    """A context with pyarrow's reader of Parquet; its errors for damaged files become one sentence."""

    def __init__(self, file: InputFile) -> None:
        self._file = file

    def __enter__(self) -> Any:
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise VizslaError(f"{self._file.name}: Parquet files need pyarrow; run 'pip install pyarrow'") from None
        return parquet

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: object) -> None:
        if isinstance(e, Exception) and not isinstance(e, VizslaError):
            detail = " ".join(str(e).split())[:200]
            raise self._file.refusal(f"the file is damaged or not what its name says ({detail})") from None


def _json_value(value: Any) -> Any:
    """Bytes as UTF-8 text, and durations and other types as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str | int | float | bool | list | dict) else str(value)
