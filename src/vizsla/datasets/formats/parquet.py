"""Parquet: each row is a document."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from vizsla.datasets.files import InputFile, Progress
from vizsla.datasets.source_format import SOURCES, FileReader, Part, Reading, SourceFormat
from vizsla.datasets.values import plain_content
from vizsla.errors import InputError, VizslaError
from vizsla.runs.documents import Document, Origin


@SOURCES.register("parquet", help="Parquet: each row is a document.", needs=("pyarrow",))
class Parquet(SourceFormat):
    """Rows of Parquet."""

    endings = (".parquet", ".pq")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:  # noqa: ARG002
        file, row = part.file, 0
        size = file.path.stat().st_size
        for batch, rows in _batches(file):
            for record in batch:
                row += 1
                content = {key: _json_value(value) for key, value in plain_content(record).items() if value is not None}
                if sum(len(value) for value in content.values() if isinstance(value, str)) > file.max_document:
                    file.leave_out(file.too_large(row))
                    continue
                try:
                    document = Document.from_record(content, Origin(file.name, row), source.names)
                except InputError as e:
                    file.leave_out(e)
                    continue
                yield document
            if progress is not None:
                progress(size * row // max(rows, 1))

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:  # noqa: ARG002
        with _Parquet(part.file) as parquet:
            return [str(name) for name in parquet.read_schema(part.file.path).names]


def _batches(file: InputFile) -> Iterator[tuple[list[dict[str, Any]], int]]:
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
