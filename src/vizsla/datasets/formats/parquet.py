"""Parquet: each row is a document."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from vizsla.datasets.files import Progress
from vizsla.datasets.source_format import SOURCES, Part, SourceFormat
from vizsla.datasets.tables import parquet_columns, read_parquet
from vizsla.runs.documents import Document

if TYPE_CHECKING:
    from vizsla.datasets.confined import ConfinedReader
    from vizsla.datasets.sources import Source


@SOURCES.register("parquet", help="Parquet: each row is a document.", needs=("pyarrow",))
class Parquet(SourceFormat):
    """Rows of Parquet."""

    endings = (".parquet", ".pq")

    def documents(self, part: Part, source: Source, progress: Progress, confined: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        return read_parquet(part.file, source.names, progress)

    def first_keys(self, part: Part, source: Source) -> Collection[str] | None:  # noqa: ARG002
        return parquet_columns(part.file)
