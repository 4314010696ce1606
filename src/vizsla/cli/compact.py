"""vizsla compact: one segment, without what was deleted or replaced."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.index import Dense


def compact(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    memory: Annotated[str, typer.Option("--memory", help="About how much memory to take, as in 512MB.")] = "1GB",
    dense: Dense = None,
) -> None:
    """Rewrite an index as one segment, without what has been deleted or replaced; perhaps with another --dense."""
    from vizsla.index import Index

    started = time.perf_counter()
    with Index.open(folder, memory=console.parse_size(memory)) as index:
        before = index.info()["index_bytes"]
        index.compact(dense)
        after = index.info()["index_bytes"]
    seconds = time.perf_counter() - started
    console.remark(f"from {console.size(before)} to {console.size(after)} in {seconds:.1f} s")
