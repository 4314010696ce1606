"""vizsla trust: an index from elsewhere whose structures for approximate search may be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console


def trust(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
) -> None:
    """Let faiss open what was built over an index's dense vectors on another machine. Know who has made it."""
    from vizsla.index import Index

    with Index.open(folder) as index:
        count = index.trust()
    if count:
        console.remark(f"{console.count(count, 'structure')} for approximate search may be opened from now on")
    else:
        console.remark("this index has no structures for approximate search; there is nothing to trust")
