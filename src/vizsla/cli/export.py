"""vizsla export: document vectors for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; - is standard output.")],
    to: Annotated[str, typer.Option("--to", help="jsonl (Anserini's JsonVectorCollection) or npz (scipy).")] = "jsonl",
    quantise: Annotated[
        str | None, typer.Option("--quantise", help="Whole numbers, as in minmax:8 or range:5:256:ceil.")
    ] = None,
) -> None:
    """Write each document's vector: the weight of every term, rarity included."""
    from vizsla.backends import export_vectors
    from vizsla.index import Index

    console.check_output(output)
    if to != "jsonl" and output == console.STANDARD_OUTPUT:
        raise VizslaError(f"only jsonl can go to standard output; {to} needs files")
    with Index.open(folder) as index, console.written(output) as file:
        count = export_vectors(index, to, file, quantise)
    console.remark(f"{console.count(count, 'vector')} written to {console.place(output)}")
