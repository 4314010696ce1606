"""vizsla verify: is an index what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.errors import InputError

FINDING = 1


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Check every file of an index by its hash, and how they fit together; exit with 1 if something is wrong."""
    from vizsla.cli.show import count_documents
    from vizsla.index import Index
    from vizsla.index import verify as verify_index

    if not folder.is_dir():
        raise InputError("there is no such folder", file=str(folder))
    problems = verify_index(folder)
    if as_json:
        console.print_json({"path": str(folder), "problems": problems})
    elif problems:
        for problem in problems:
            console.line(problem)
    else:
        with Index.open(folder) as index:
            console.remark(f"all is well: {count_documents(index)}, every file as it was written")
    if problems:
        raise typer.Exit(FINDING)
