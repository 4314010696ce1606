"""vizsla adapt: a model adapted to documents without labels, by queries that are generated for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console
from vizsla.cli.options import Format, IdField, Json, TextField, TitleField
from vizsla.cli.train import report_end, run_training, training_inputs
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.training import TrainingRecipe


def adapt(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE...]", help="Files or folders of documents.")
    ] = None,
    model: Annotated[
        str, typer.Option("-m", "--model", metavar="MODEL", help="minilm, bm26, a saved model, or an encoder.")
    ] = "minilm",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The folder of the adapted model.")
    ] = None,
    generator: Annotated[
        str, typer.Option("--generator", metavar="DIR", help="Writes queries for documents without a field queries.")
    ] = "",
    negatives: Annotated[
        str, typer.Option("--negatives", metavar="MODEL", help="A model whose best documents are hard negatives.")
    ] = "",
    teacher: Annotated[
        str, typer.Option("--teacher", metavar="MODEL", help="A cross-encoder or model whose scores are learnt (GPL).")
    ] = "",
    dev: Annotated[
        list[Path] | None,
        typer.Option("--dev", metavar="DIR", help="BEIR folders with dev queries, which choose the best step."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe genq or genq-sparse."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run; needs no documents.")] = False,
    as_json: Json = False,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
) -> None:
    """Adapt a model to documents by generated queries."""
    from vizsla.datasets import FieldNames

    if output is None:
        raise VizslaError("name a folder for the model, as in: vizsla adapt documents.jsonl -o my-minilm")
    if not sources and not resume:
        raise VizslaError("name the documents to adapt to, as in: vizsla adapt documents.jsonl -o my-minilm")
    console.check_folder(output, "a model")
    recipe = _recipe(output, model, generator, negatives, teacher, changes or [], resume)
    names = FieldNames(id_field, text_field, title_field)
    inputs = None if resume else training_inputs(recipe, sources, [], dev or [], format, names)
    started = time.perf_counter()
    result = run_training(recipe, output, inputs)
    if result is not None:
        report_end(recipe, result, output, time.perf_counter() - started, as_json)


def _recipe(
    output: Path, model: str, generator: str, negatives: str, teacher: str, changes: list[str], resume: bool
) -> TrainingRecipe:
    """The recipe that fits the model; that of the stopped run to resume."""
    from vizsla.training import adaptation_recipe, resumed_recipe

    if resume:
        return resumed_recipe(output, changes)
    return adaptation_recipe(model, generator=generator, negatives=negatives, teacher=teacher, changes=changes)
