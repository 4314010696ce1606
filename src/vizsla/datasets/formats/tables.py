"""Comma- and tab-separated files; `vizsla.datasets.tables` reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar

from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import Progress
from vizsla.datasets.source_format import SOURCES, Part, Reading, SourceFormat
from vizsla.runs.documents import Document


class TableFormat(SourceFormat):
    """Rows with a header, each a document."""

    separator: ClassVar[str]
    """What separates columns, if nothing else is given or found."""

    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        types = source.column_types
        table = source.table(part)
        if table is not None:
            yield from table.documents(types, source.fields, progress)

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:
        table = source.table(part)
        return None if table is None else table.header


@SOURCES.register("csv", help="Separated by commas, or semicolons, tabs or bars, with a header.")
class Csv(TableFormat):
    """Comma-separated values."""

    endings = (".csv",)
    separator = ","


@SOURCES.register("tsv", help="Separated by tabs, with a header or as MS MARCO's collection.")
class Tsv(TableFormat):
    """Tab-separated values."""

    endings = (".tsv", ".tab")
    separator = "\t"
