"""vizsla add: more documents, or newer ones, into an index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.index import (
    AllowEmpty,
    ColumnTypes,
    Delimiter,
    Format,
    IdField,
    MaxDocument,
    Memory,
    TextField,
    TitleField,
    Workers,
    find_sources,
    report,
    source_options,
    watched,
)


def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    sources: Annotated[list[str], typer.Argument(help="Files of documents or folders, as for index.")],
    memory: Memory = "1GB",
    workers: Workers = 1,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    delimiter: Delimiter = None,
    types: ColumnTypes = None,
    max_document: MaxDocument = "16MB",
    allow_empty: AllowEmpty = False,
) -> None:
    """Add documents to an index; one whose id is there already replaces it. All of them come in, or none."""
    from vizsla.index import Index

    options = source_options(id_field, text_field, title_field, delimiter, types, max_document, allow_empty)
    with Index.open(folder, memory=console.parse_size(memory)) as index:
        found = find_sources(sources, format, fields=index.model.fields, **options)
        started = time.perf_counter()
        added = index.add(watched(found, "Adding", workers), workers=workers)
        index.commit()
        report(index, added, time.perf_counter() - started)
