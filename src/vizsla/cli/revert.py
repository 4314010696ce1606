"""vizsla revert: back to the collection that a name in a cluster stood for before."""

from __future__ import annotations

from typing import Annotated

import typer

from vizsla.cli import console


def revert(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As in qdrant://host:6333,host2:6333/my.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME", help="Another one that is kept, as in my@3."),
    ] = None,
) -> None:
    """Go back to the collection before the last upload.

    Or to the one before the last reweighing. Searches go on, and see it within a second. What was added since is in the
    collection that is left, which is kept: vizsla revert --to goes forward again.
    """
    console.need("qdrant_client", "qdrant")
    from vizsla.backends.qdrant.generations import revert as go_back

    report = go_back(address, to)
    documents = console.count(report.documents, "document")
    console.remark(f"{address} is the collection {report.base} again, with {documents}")
    console.remark(f"{report.replaced} is kept; go back to it with: vizsla revert {address} --to {report.replaced}")
