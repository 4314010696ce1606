"""vizsla delete: documents out of an index."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError


def delete(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    ids: Annotated[list[str] | None, typer.Argument(help="The documents' ids.")] = None,
    file: Annotated[Path | None, typer.Option("--ids", help="A file with an id a line; - is standard input.")] = None,
) -> None:
    """Delete documents by id."""
    from vizsla.index import Index

    wanted = list(ids or [])
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        wanted += [line for line in text.splitlines() if line]
    if not wanted:
        raise VizslaError("no id was given; name documents to delete, or a file of ids with --ids")
    with Index.open(folder) as index:
        deleted = index.delete(wanted)
        index.commit()
    missing = len(set(wanted)) - deleted
    there = f"; {missing:,} of the ids were not there" if missing else ""
    console.remark(f"{console.count(deleted, 'document')} deleted{there}")
