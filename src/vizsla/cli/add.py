"""vizsla add: more documents, or newer ones, into an index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.index import Format, IdField, Memory, TextField, TitleField, Workers, find_sources, report, watched


def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    sources: Annotated[list[str], typer.Argument(help="Files of documents or folders, as for index.")],
    memory: Memory = "1GB",
    workers: Workers = 1,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
) -> None:
    """Add documents to an index; one whose id is there already replaces it. All of them come in, or none."""
    from vizsla.index import Index

    found = find_sources(sources, format, id_field, text_field, title_field)
    started = time.perf_counter()
    with Index.open(folder, memory=console.parse_size(memory)) as index:
        added = index.add(watched(found, "Adding", workers), workers=workers)
        index.commit()
        report(index, added, time.perf_counter() - started)
