"""vizsla verify: is an index what was written?"""

from __future__ import annotations

import typer

from vizsla.cli import console, options
from vizsla.errors import InputError

FINDING = 1


def verify(index: options.IndexFolder, as_json: options.Json = False) -> None:
    """Check that no file of an index is damaged.

    Every file is compared with its hash, and with the others. Exits with 1 if something is wrong.
    """
    from vizsla.cli.show import count_documents
    from vizsla.index import Index
    from vizsla.index import verify as verify_index

    if not index.is_dir():
        raise InputError("this folder does not exist", file=str(index))
    problems = verify_index(index)
    if as_json:
        console.print_json({"path": str(index), "problems": problems})
    elif problems:
        for problem in problems:
            console.line(problem)
    else:
        with Index.open(index) as opened:
            console.remark(f"all is well: {count_documents(opened)}, every file as it was written")
    if problems:
        raise typer.Exit(FINDING)
