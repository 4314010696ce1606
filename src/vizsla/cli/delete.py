"""vizsla delete: documents out of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.errors import InputError, VizslaError


def delete(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    ids: Annotated[list[str] | None, typer.Argument(help="The documents' ids.")] = None,
    file: Annotated[Path | None, typer.Option("--ids", help="A file with an id a line; - is standard input.")] = None,
) -> None:
    """Delete documents by id."""
    from vizsla.index import Index

    wanted = list(ids or [])
    if file is not None:
        wanted += _ids_in(file)
    if not wanted:
        raise VizslaError("no id was given; name documents to delete, or a file of ids with --ids")
    with Index.open(folder) as index:
        deleted = index.delete(wanted)
        index.commit()
    missing = len(set(wanted)) - deleted
    there = f"; {missing:,} of the ids {'was' if missing == 1 else 'were'} not there" if missing else ""
    console.remark(f"{console.count(deleted, 'document')} deleted{there}")


def _ids_in(file: Path) -> list[str]:
    """The ids in a file, one a line."""
    try:
        text = console.read_input() if str(file) == "-" else file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("there is no such file", file=str(file)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(file)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(file)) from None
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]  # ids may have other line ends in them
