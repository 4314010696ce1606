"""vizsla delete: documents out of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.opening import open_writable
from vizsla.errors import InputError, VizslaError


def delete(
    index: options.Writable,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="The ids of the documents.")] = None,
    ids_file: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="A file with one id per line; - is standard input.")
    ] = None,
) -> None:
    """Delete documents by id."""
    to_delete = [*(ids or []), *(_read_ids(ids_file) if ids_file is not None else [])]
    if not to_delete:
        raise VizslaError("no id was given; name documents to delete, or a file of ids with --ids")
    with open_writable(index) as opened:
        deleted = opened.delete(to_delete)
        opened.commit()
    missing = len(set(to_delete)) - deleted
    not_there = f"; {missing:,} of the ids {'was' if missing == 1 else 'were'} not there" if missing else ""
    console.remark(f"{console.count(deleted, 'document')} deleted{not_there}")


def _read_ids(file: Path) -> list[str]:
    """The ids in a file, one per line."""
    try:
        text = console.read_input() if str(file) == "-" else file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("this file does not exist", file=str(file)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(file)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(file)) from None
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]  # ids may have other line ends in them
