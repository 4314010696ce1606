"""vizsla backup and restore: commits of an index in another folder or an object store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

_Place = Annotated[
    str,
    typer.Argument(metavar="PLACE", help="A folder, or the URL of an object store, as in s3://bucket/my-index."),
]


def backup(
    index: options.IndexFolder,
    place: _Place,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", help="Keep the last N backups, and remove older ones; default: all."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Back up an index to a folder or an object store.

    What is backed up is the last commit, also while somebody writes to the index. Only what has changed since earlier
    backups is written.
    """
    from vizsla.index import backup as back_up

    started = time.perf_counter()
    with console.progress("Backing up", 0, "bytes") as advance:
        done = back_up(index, place, keep=keep, progress=lambda count, total: advance(count, count, total))
    if as_json:
        console.print_json(vars(done))
        return
    console.remark(
        f"{done.name}: commit {done.generation:,} of {index}, {console.size(done.bytes)}, "
        f"{console.size(done.new_bytes or 0)} of them new, in {time.perf_counter() - started:.1f} s"
    )
    console.remark(f"Restore it with: vizsla restore {place} -o INDEX")


def restore(
    place: _Place,
    output: Annotated[Path | None, options.output("The folder of the restored index.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Which backup, as --list shows them; default: the last."),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the backups, and restore none.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    as_json: options.Json = False,
) -> None:
    """Restore an index from a backup, or list what was backed up.

    Every checksum is compared before the index gets its name.
    """
    from vizsla.index import list_backups
    from vizsla.index import restore as restore_index

    if list_them:
        if output is not None or name is not None or overwrite:
            raise VizslaError("--list restores nothing; leave out -o, --name and --overwrite")
        found = list_backups(place)
        if as_json:
            console.print_json([vars(one) for one in found])
        else:
            rows = [(b.name, b.created, f"{b.generation:,}", f"{b.documents:,}", console.size(b.bytes)) for b in found]
            console.show_table(
                ("backup", "made", "commit", "documents", "size"), rows, right=("commit", "documents", "size")
            )
        return
    if output is None:
        raise VizslaError("name the folder of the restored index with -o, or list the backups with --list")
    console.check_folder(output, "an index")
    started = time.perf_counter()
    with console.progress("Restoring", 0, "bytes") as advance:
        folder = restore_index(
            place,
            output,
            name=name,
            overwrite=overwrite,
            progress=lambda count, total: advance(count, count, total),
        )
    if as_json:
        console.print_json({"path": str(folder)})
        return
    console.remark(f"{folder}: restored and verified in {time.perf_counter() - started:.1f} s")
