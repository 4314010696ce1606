"""vizsla average: one model from several seeds."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.options import Format, IdField, Json, TextField, TitleField
from vizsla.cli.sources import find_sources
from vizsla.errors import VizslaError

_READ = 1000  # documents, of which a few dozen are used


def average(
    models: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Models trained from the same start.")],
    corpus: Annotated[
        list[str] | None,
        typer.Option("--corpus", metavar="SOURCE", help="Some documents that the scales of 8 bits are fitted on."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The folder of the new model.")
    ] = None,
    as_json: Json = False,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
) -> None:
    """Average the weights of learned sparse models of several seeds.

    The mean of seeds is often better than any one of them, and costs no more (arxiv.org/abs/2203.05482).
    """
    from vizsla.datasets import FieldNames

    if not corpus or output is None:
        missing = "--corpus documents.jsonl" if not corpus else "-o DIR"
        raise VizslaError(f"vizsla average also needs {missing}")
    console.check_folder(output, "a model")
    names = FieldNames(id_field, text_field, title_field)
    documents = (document for source in find_sources(corpus, format, names=names) for document in source.documents())
    from vizsla.training.averaging import average_models

    average_models(models, islice(documents, _READ), output)
    if as_json:
        console.print_json({"model": str(output), "models": [str(model) for model in models]})
        return
    console.remark(f"Written: {output}. Use it with: vizsla index SOURCE -o DIR --model {output}")
