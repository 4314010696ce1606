"""vizsla save-model: a model in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError


def save_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name, a folder, hf:org/name, or a sum of models.")],
    output: Annotated[Path, options.output("The folder to write.")],
    as_json: options.Json = False,
) -> None:
    """Write a model to a folder of its own.

    Its networks and a model card are in it. A SPLADE or a uniCOIL is also written as SparseEncoder of
    sentence-transformers opens it.
    """
    from vizsla.models import parse_model
    from vizsla.models.saving import save_model as save

    console.check_folder(output, "the output of save-model")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise VizslaError(f"{output}: this exists and is not an empty folder; name another")
    parsed = parse_model(model)
    opens = save(parsed, output)
    if as_json:
        console.print_json({"folder": str(output), "model": parsed.name, "sparse_encoder": opens})
        return
    also = "; SparseEncoder opens it, too" if opens else ""
    console.remark(f"{console.safe(parsed.name)} written to {console.safe(str(output))}{also}")
