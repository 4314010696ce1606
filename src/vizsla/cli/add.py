"""vizsla add: more documents, or newer versions of them, into an index."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.index import report
from vizsla.cli.opening import open_writable
from vizsla.cli.sources import find_sources, passes_lines, read_with_progress, source_options


def add(
    index: options.Writable,
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Files or folders of documents, as for index.")
    ],
    memory: options.Memory = options.DEFAULT_MEMORY,
    workers: options.Workers = None,
    format: options.Format = None,
    id_field: options.IdField = None,
    text_field: options.TextField = None,
    title_field: options.TitleField = None,
    delimiter: options.Delimiter = None,
    types: options.ColumnTypes = None,
    max_document: options.MaxDocument = options.DEFAULT_MAX_DOCUMENT,
    allow_empty: options.AllowEmpty = False,
) -> None:
    """Add documents to an index, or replace those with the same id.

    All documents are added, or none if one of them cannot be read.
    """
    reading = source_options(id_field, text_field, title_field, delimiter, types, max_document, allow_empty)
    with open_writable(index, console.parse_size(memory)) as opened:
        found = find_sources(sources, format, fields=opened.model.fields, **reading)
        started = time.perf_counter()
        added = opened.add(
            read_with_progress(found, "Adding", raw=passes_lines(opened.model, workers)), workers=workers
        )
        opened.commit()
        report(opened, added, time.perf_counter() - started)
