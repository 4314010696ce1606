"""Tables: comma- and tab-separated files, MS MARCO's and DPR's among them, and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vizsla.datasets.document import Document, FieldNames, Origin
from vizsla.datasets.files import read_lines
from vizsla.errors import InputError, VizslaError

csv.field_size_limit(1 << 30)
Progress = Callable[[int], None] | None


def read_separated(path: Path, names: FieldNames, separator: str, progress: Progress) -> Iterator[Document]:
    """A table with a header; without one, MS MARCO's two columns, id and text."""
    rows = _rows(path, separator, progress)
    first = next(rows, None)
    if first is None:
        return
    line, header = first
    if separator == "\t" and len(header) == 2 and names.found(header).text is None:
        yield Document(header[0], {"text": header[1]}, Origin(str(path), line))
        yield from _two_columns(path, rows)
        return
    found = names.found(header)
    if found.id is None:
        have = ", ".join(header)
        raise InputError(f"no column is the id among {have}; name it with --id-field", file=str(path), line=line)
    for line, row in rows:
        if len(row) != len(header):
            message = f"expected {len(header)} columns as in the header, not {len(row)}"
            raise InputError(message, file=str(path), line=line)
        yield Document.from_record(dict(zip(header, row, strict=True)), Origin(str(path), line), names)


def _two_columns(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Document]:
    for line, row in rows:
        if len(row) != 2 or not row[0]:
            raise InputError(f"expected an id, a tab and a text, not {len(row)} columns", file=str(path), line=line)
        yield Document(row[0], {"text": row[1]}, Origin(str(path), line))


def _rows(path: Path, separator: str, progress: Progress) -> Iterator[tuple[int, list[str]]]:
    """The rows with the numbers of their first lines. MS MARCO's quotes are plain characters, others' are not."""
    line = 1
    lines = read_lines(path, progress)
    if separator == "\t" and _is_unquoted(path):
        for number, text in lines:
            yield number, text.rstrip("\r\n").split("\t")
        return
    reader = csv.reader((text for _, text in lines), delimiter=separator, strict=True)
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as e:
        raise InputError(f"this row cannot be read ({e})", file=str(path), line=line) from None


def _is_unquoted(path: Path) -> bool:
    """Whether a tab-separated file starts with two columns and no header, as MS MARCO's collection does."""
    first = next((text for _, text in read_lines(path)), "")
    columns = first.rstrip("\r\n").split("\t")
    return len(columns) == 2 and FieldNames().found(columns).text is None


def read_parquet(path: Path, names: FieldNames, progress: Progress) -> Iterator[Document]:
    """The rows of a Parquet file."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise VizslaError(f"{path}: Parquet files need pyarrow; run 'pip install vizsla[parquet]'") from None
    try:
        file = parquet.ParquetFile(path)
        row, size = 0, path.stat().st_size
        for batch in file.iter_batches(batch_size=1000):
            for record in batch.to_pylist():
                row += 1
                yield Document.from_record(_plain(record), Origin(str(path), row), names)
            if progress is not None:
                progress(size * row // max(file.metadata.num_rows, 1))
    except (OSError, ValueError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"the file is damaged or not what its name says ({e})", file=str(path)) from None


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """Dates, decimals and the like as text; nothing where there is nothing."""
    kept = {key: value for key, value in record.items() if value is not None}
    return {k: v if isinstance(v, str | int | float | bool | list | dict) else str(v) for k, v in kept.items()}
