"""vizsla qdrant: a collection in a cluster filled from parts, its weights renewed, and the way back."""

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
    model: Annotated[
        str | None, options.model("The folder of the model the parts were encoded with, if its name does not resolve.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", help="Shards of the collection; default: the server's.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", help="Copies of each document; default: the server's.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Processes that send documents.")] = 1,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Afterwards remove the earlier collections of this name.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the collection even if it was changed in the meantime.")
    ] = False,
) -> None:
    """Fill a collection in Qdrant with documents.

    Encode them first, with any model: vizsla encode documents.jsonl -o parts/1.parquet

    The existing collection of this name is searched until all documents are uploaded; then the new one replaces it, and
    the old one is kept. The same command continues an interrupted upload.
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
    _report_upload(report, address, time.perf_counter() - started)


def _report_upload(report: UploadReport, address: str, seconds: float) -> None:
    documents = console.count(report.documents, "document")
    if report.was_there:
        console.remark(f"{address}: the collection {report.base} has these {documents} already")
    else:
        resumed = ", continuing an interrupted upload" if report.resumed else ""
        rate = report.documents / seconds if seconds else 0
        console.remark(f"{documents} in {seconds:.1f} s ({rate:,.0f}/s){resumed}: the collection {report.base}")
    if report.dropped:
        console.remark(f"removed: {', '.join(report.dropped)}")
    elif report.replaced is not None:
        console.remark(f"{report.replaced} is kept; remove it with the same command and --drop-old")
    console.remark(f"Search it with: vizsla search {address}")


THRESHOLD = 0.01


def reweigh(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As in qdrant://host:6333,host2:6333/my.")],
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="SHARE", help="By how much the mean length must have changed.")
    ] = THRESHOLD,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Processes that send documents.")] = 1,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Afterwards remove the earlier collections of this name.")
    ] = False,
) -> None:
    """Renew the weights of documents after many changes.

    They depend on the mean length of documents, which was frozen when the collection was filled; vizsla info shows its
    drift. Searches continue while a collection with new weights is built, which then replaces the old one.
    """
    console.need("qdrant_client", "qdrant")
    from vizsla.backends.qdrant.reweighing import reweigh as renew

    started = time.perf_counter()
    with console.progress("Reweighing", 0, "documents") as advance:
        report = renew(address, threshold, workers=parallel, drop_old=drop_old, progress=advance)
    moved = ", ".join(f"{name} {drift:+.2%}" for name, drift in report.drift.items()) or "no weights depend on lengths"
    if report.renewed:
        seconds = time.perf_counter() - started
        documents = console.count(report.documents, "document")
        console.remark(f"{documents} in {seconds:.1f} s: the collection {report.base} (drift: {moved})")
    else:
        console.remark(f"nothing to do: the mean length has not changed by {threshold:.2%} (drift: {moved})")
    if report.dropped:
        console.remark(f"removed: {', '.join(report.dropped)}")
    elif report.renewed:
        console.remark("the old collection is kept; remove it with vizsla qdrant reweigh --drop-old")


def revert(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As in qdrant://host:6333,host2:6333/my.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME", help="Another collection that was kept, as in my@3."),
    ] = None,
) -> None:
    """Undo an upload: go back to the collection before it.

    It also undoes a reweighing. Searches continue and see the change within a second. Documents that were added since
    stay in the other collection, which is kept: vizsla qdrant revert --to goes forward again.
    """
    console.need("qdrant_client", "qdrant")
    from vizsla.backends.qdrant.generations import revert as go_back

    report = go_back(address, to)
    documents = console.count(report.documents, "document")
    console.remark(f"{address} is the collection {report.base} again, with {documents}")
    console.remark(
        f"{report.replaced} is kept; go back to it with: vizsla qdrant revert {address} --to {report.replaced}"
    )
