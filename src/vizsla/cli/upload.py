"""vizsla upload: all parts of a source to a cluster, beside what is searched there, and then in its place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options

if TYPE_CHECKING:
    from vizsla.backends.qdrant.upload import UploadReport


def upload(
    parts: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of all parts, which encode wrote.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As in qdrant://host:6333,host2:6333/my.")],
    model: Annotated[str | None, options.model("Where the model of the parts is, if not by its name there.")] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", help="Of the collection; default: as the servers say.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", help="Servers that have each document; default: theirs.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Processes that send documents.")] = 1,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Then remove the collections that had this name before.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the collection even if it was changed meanwhile.")
    ] = False,
) -> None:
    """Fill a collection in Qdrant with encoded parts.

    What has this name there is searched as before until all documents are uploaded; then the new collection takes its
    place, and the old one is kept. An upload that was stopped goes on with the same command.
    """
    console.need("pyarrow", "parquet")
    console.need("qdrant_client", "qdrant")
    from vizsla.backends.qdrant.upload import UploadOptions, upload_parts
    from vizsla.index import PartSet

    started = time.perf_counter()
    found = PartSet(parts)
    chosen = UploadOptions(shards, replicas, parallel, drop_old, force)
    with console.progress("Uploading", found.rows, "documents") as advance:
        report = upload_parts(found, address, model, chosen, progress=advance)
    _report(report, address, time.perf_counter() - started)


def _report(report: UploadReport, address: str, seconds: float) -> None:
    documents = console.count(report.documents, "document")
    if report.was_there:
        console.remark(f"{address}: the collection {report.base} has these {documents} already")
    else:
        resumed = ", after an upload that was stopped" if report.resumed else ""
        rate = report.documents / seconds if seconds else 0
        console.remark(f"{documents} in {seconds:.1f} s ({rate:,.0f}/s){resumed}: the collection {report.base}")
    if report.dropped:
        console.remark(f"removed: {', '.join(report.dropped)}")
    elif report.replaced is not None:
        console.remark(f"{report.replaced} is kept; remove it with the same command and --drop-old")
    console.remark(f"Search it with: vizsla search {address}")
