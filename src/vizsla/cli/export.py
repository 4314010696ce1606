"""vizsla export: document vectors for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError


def export(
    index: options.IndexFolder,
    output: Annotated[Path, options.output("The file to write; - is standard output.")],
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="jsonl (Anserini's JsonVectorCollection), npz (scipy), or arrays (numpy) of dense and token vectors.",
        ),
    ] = "jsonl",
    quantise: Annotated[
        str | None,
        typer.Option(
            "--quantise", metavar="METHOD", help="Round weights to whole numbers: minmax:8 or range:5:256:ceil."
        ),
    ] = None,
) -> None:
    """Write the vectors of documents: of terms (with idf), or dense."""
    from vizsla.backends import export_vectors
    from vizsla.index import Index

    console.check_output(output)
    if format != "jsonl" and output == console.STANDARD_OUTPUT:
        raise VizslaError(f"only jsonl can go to standard output; {format} needs files")
    with Index.open(index) as opened, console.output_file(output) as file:
        count = export_vectors(opened, format, file, quantise)
    console.remark(f"{console.count(count, 'vector')} written to {console.output_name(output)}")
