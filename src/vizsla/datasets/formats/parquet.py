"""Parquet: each row is a document."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import Progress
from vizsla.datasets.source_format import SOURCES, Part, Reading, SourceFormat
from vizsla.datasets.tables import parquet_columns, read_parquet
from vizsla.runs.documents import Document


@SOURCES.register("parquet", help="Parquet: each row is a document.", needs=("pyarrow",))
class Parquet(SourceFormat):
    """Rows of Parquet."""

    endings = (".parquet", ".pq")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        return read_parquet(part.file, source.names, progress)

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:  # noqa: ARG002
        return parquet_columns(part.file)
