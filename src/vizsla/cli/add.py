"""vizsla add: more documents, or newer ones, into an index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console


def add(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    sources: Annotated[list[str], typer.Argument(help="Files of documents or folders, as for index.")],
    memory: Annotated[str, typer.Option("--memory", help="About how much memory to take, as in 512MB.")] = "1GB",
) -> None:
    """Add documents to an index; one whose id is there already replaces it. All of them come in, or none."""
    from vizsla.cli.index import report, watched
    from vizsla.datasets import source_file
    from vizsla.index import Index

    files = [source_file(source) for source in sources]
    started = time.perf_counter()
    with Index.open(folder, memory=console.parse_size(memory)) as index:
        added = index.add(watched(files, "Adding"))
        index.commit()
        report(index, added, time.perf_counter() - started)
