"""vizsla info: what an index holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console


def info(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show what an index holds: documents, terms, sizes, the model."""
    from vizsla.index import Index

    with Index.open(folder) as index:
        facts = index.info()
    if as_json:
        console.print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("model", facts["model"])
    table.add_row("documents", f"{facts['documents']:,}")
    for name, namespace in facts["namespaces"].items():
        terms, average = namespace["terms"], namespace["average_length"]
        table.add_row(f"namespace {name}", f"{terms:,} terms, {average:.1f} a document on average")
    table.add_row("postings", f"{facts['postings']:,} in {console.count(facts['segments'], 'segment')}")
    table.add_row("index", console.size(facts["index_bytes"]))
    table.add_row("stored documents", console.size(facts["document_bytes"]))
    table.add_row("created", f"{facts['created']} by vizsla {facts['vizsla']}")
    console.out.print(table)
