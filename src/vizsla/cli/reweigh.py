"""vizsla reweigh: weights of documents in a cluster for the mean length of now."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from vizsla.cli import console

THRESHOLD = 0.01


def reweigh(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As in qdrant://host:6333,host2:6333/my.")],
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="SHARE", help="By how much the mean length must have moved.")
    ] = THRESHOLD,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Processes that send documents.")] = 1,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Then remove the collections that had this name before.")
    ] = False,
) -> None:
    """Renew document weights in Qdrant after many changes.

    They depend on the mean length of documents, which was frozen when the collection was filled; vizsla info shows its
    drift. Searches go on while a collection with new weights is made, which then takes the old one's place.
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
        console.remark(f"nothing to do: the mean length has not moved by {threshold:.2%} (drift: {moved})")
    if report.dropped:
        console.remark(f"removed: {', '.join(report.dropped)}")
    elif report.renewed:
        console.remark("the old collection is kept; remove it with vizsla reweigh --drop-old")
