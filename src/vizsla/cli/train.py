"""vizsla train and vizsla adapt: a model from documents or judged queries, or adapted by generated queries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.training import TrainingInputs, TrainingRecipe, TrainingResult


@options.spread
def train(
    *,
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="A training recipe, as in bm26 (--list shows all), or a YAML file."),
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", metavar="SOURCE", help="Files or folders of documents.")
    ] = None,
    dataset: Annotated[
        list[Path] | None, typer.Option("--dataset", metavar="DIR", help="BEIR folders with train queries.")
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option("--dev", metavar="DIR", help="BEIR folders with dev queries, which choose the best step."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="The folder of the new model.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in training.steps=200; see --list."),
    ] = None,
    negatives: Annotated[
        str | None, typer.Option("--negatives", metavar="RUN", help="TREC run or model for hard negatives.")
    ] = None,
    candidates: Annotated[
        str | None, typer.Option("--candidates", metavar="RUN", help="TREC run or model to rerank on --dev.")
    ] = None,
    prepared: Annotated[
        Path | None,
        typer.Option(
            "--prepared", metavar="DIR", help="Reuse the data and first network of this run, as for another seed."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run; needs no data.")] = False,
    list_settings: Annotated[
        bool, typer.Option("--list", help="List the training recipes, or the settings of one.")
    ] = False,
    as_json: options.Json = False,
    reading: options.FileOptions,
) -> None:
    """Train a model: BM26, SPLADE, dense, query augmenter, reranker.

    It learns from documents or from judged queries; --list names the recipes.
    """
    shorthands = (("data.negatives", negatives), ("data.candidates", candidates))
    changes = [*(changes or []), *(f"{key}={value}" for key, value in shorthands if value is not None)]
    if list_settings:
        _list(recipe, changes, as_json)
        return
    if recipe is None:
        raise VizslaError("name a training recipe, as in vizsla train bm26; vizsla train --list shows all")
    if output is None:
        raise VizslaError("name a folder for the model, as in: vizsla train bm26 --corpus docs.jsonl -o my-bm26")
    console.check_folder(output, "a model")
    if prepared is not None and (resume or corpus or dataset or dev):
        raise VizslaError(
            f"--prepared takes the data of {prepared}, dev sets included; leave out --corpus, --dataset, --dev and "
            "--resume"
        )
    chosen = _recipe(recipe, output, changes, prepared, resume=resume)
    needs_data = prepared is None and not resume
    inputs = training_inputs(chosen, corpus, dataset or [], dev or [], reading) if needs_data else None
    started = time.perf_counter()
    result = run_training(chosen, output, inputs, prepared)
    if result is not None:
        report_end(chosen, result, output, time.perf_counter() - started, as_json)


def _recipe(name: str, output: Path, changes: Sequence[str], prepared: Path | None, *, resume: bool) -> TrainingRecipe:
    """The recipe with its changes, or that of the run to resume, or of the one whose data are used."""
    from vizsla.training import load_training_recipe, prepared_recipe, resumed_recipe

    recipe = load_training_recipe(name)
    if prepared is not None:
        planned = prepared_recipe(prepared, changes)
        if planned.kind != recipe.kind:
            raise VizslaError(f"{prepared} trained a model of the kind {planned.kind}, and {name} is {recipe.kind}")
        return planned
    return resumed_recipe(output, changes) if resume else recipe.with_changes(changes)


def training_inputs(
    recipe: TrainingRecipe,
    corpus: list[str] | None,
    datasets: list[Path],
    dev: list[Path],
    reading: options.FileOptions,
) -> TrainingInputs:
    """The training data."""
    from vizsla.datasets import BeirDataset
    from vizsla.training import TrainingInputs

    if corpus and not recipe.make().reads_corpus:
        console.remark(f"{recipe.name} learns from the documents of its data sets; --corpus is ignored")
    documents = None
    if corpus:
        sources = reading.find(corpus)
        documents = (document for source in sources for document in source.documents())
    return TrainingInputs(documents, [*map(BeirDataset.open, datasets)], [*map(BeirDataset.open, dev)])


def run_training(
    recipe: TrainingRecipe, output: Path, inputs: TrainingInputs | None, prepared: Path | None = None
) -> TrainingResult | None:
    """Train, or without inputs resume a run or begin as another one did; None in processes other than the main one."""
    from vizsla.training import train as run

    try:
        from vizsla.neural.torch_network import transformers
        from vizsla.training import Distributed

        transformers().utils.logging.disable_progress_bar()  # saving takes a second
        transformers().utils.logging.set_verbosity_error()  # which heads of a checkpoint are not used
    except ImportError as e:
        raise VizslaError(f"training needs more packages ({e}); install vizsla[train]") from None
    distributed = Distributed.start()
    if distributed.is_main and distributed.device.type == "cpu" and recipe.make().wants_gpu:
        console.remark("There is no GPU here: this will take about a hundred times as long as on one.")
    report = show_line if distributed.is_main else None
    resume = inputs is None and prepared is None
    trained = run(recipe, output, inputs, resume=resume, prepared=prepared, distributed=distributed, report=report)
    return trained.result if distributed.is_main else None


def report_end(recipe: TrainingRecipe, result: TrainingResult, output: Path, seconds: float, as_json: bool) -> None:
    """The best figures, and how to use the model."""
    console.remark(f"{result.step} steps in {seconds:.0f} s: {recipe.name} is in {output}")
    if result.figures:
        best = ", ".join(f"{name} {value:.4f}" for name, value in result.figures.items())
        console.remark(f"Best at step {result.best_step}: {best}")
    console.remark(f"Use it with: {recipe.make().usage(output)}")
    if as_json:
        about = {"recipe": recipe.name, "output": str(output), "steps": result.step, "seconds": round(seconds, 3)}
        console.print_json(about | {"best_step": result.best_step, "figures": result.figures})


def _list(name: str | None, changes: Sequence[str], as_json: bool) -> None:
    """The training recipes, or the settings of one of them."""
    from vizsla.spec.notation import format_value
    from vizsla.training import load_training_recipe, training_recipe_names
    from vizsla.training.settings import keys_of

    if name is None:
        what, columns = "recipes", ("recipe", "kind", "title")
        recipes = [load_training_recipe(one) for one in training_recipe_names()]
        rows = [(r.name, r.kind, r.title) for r in recipes]
    else:
        what, columns = "settings", ("setting", "value", "help")
        keys = keys_of(load_training_recipe(name).with_changes(changes).settings)
        rows = [(key.name, format_value(key.value), key.help) for key in keys]
    if as_json:
        console.print_json({what: [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        console.show_table(columns, rows)


def show_line(line: dict[str, Any]) -> None:
    """The log line of a step, for people."""
    if "note" in line:
        console.remark(line["note"])
        return
    speed = speed_text(line["tokens_per_second"], line.get("tflops", 0.0))
    if "masked_loss" in line:
        console.remark(f"masked {line['step']:>5}  loss {line['masked_loss']:.3f}  {speed}")
        return
    figures = " ".join(f"{name} {value:.4f}" for name, value in line.items() if "@" in name)
    terms = ""
    if "document_terms" in line:
        terms = f"  terms {line['query_terms']:.0f}/{line['document_terms']:.0f}"
    elif "added_terms" in line:
        terms = f"  terms {line['query_terms']:.1f}, {line['added_terms']:.1f} added"
    if "accuracy" in line:
        terms = f"  accuracy {line['accuracy']:.3f}{terms}"
    elif "mean_weight" in line:
        terms = f"  mean weight {line['mean_weight']:.3f} for {line['mean_target']:.3f}"
    console.remark(f"step {line['step']:>5}  loss {line['loss']:.3f}{terms}  {speed}  {figures}".rstrip())


def speed_text(tokens: float, tflops: float = 0.0) -> str:
    """Tokens per second and, from a tenth of a TFLOP/s on, operations per second.

    >>> speed_text(312.4, 0.02), speed_text(48_700, 0.31), speed_text(1_250_000, 182.3)
    ('312 tokens/s', '48.7 k tokens/s  0.3 TFLOP/s', '1,250 k tokens/s  182.3 TFLOP/s')
    """
    thousands = tokens / 1e3
    digits = 0 if thousands >= 100 else 1
    speed = f"{thousands:,.{digits}f} k tokens/s" if tokens >= 1000 else f"{tokens:.{int(tokens < 10)}f} tokens/s"
    return f"{speed}  {tflops:.1f} TFLOP/s" if tflops >= 0.1 else speed


@options.spread
def adapt(
    *,
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
        str, typer.Option("--teacher", metavar="MODEL", help="A cross-encoder or model to learn scores from (GPL).")
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
    as_json: options.Json = False,
    reading: options.FileOptions,
) -> None:
    """Adapt a model to your own documents, without judgements.

    It learns from queries that a generator writes for the documents.
    """
    if output is None:
        raise VizslaError("name a folder for the model, as in: vizsla adapt documents.jsonl -o my-minilm")
    if not sources and not resume:
        raise VizslaError("name the documents to adapt to, as in: vizsla adapt documents.jsonl -o my-minilm")
    console.check_folder(output, "a model")
    recipe = _adaptation(output, model, generator, negatives, teacher, changes or [], resume)
    inputs = None if resume else training_inputs(recipe, sources, [], dev or [], reading)
    started = time.perf_counter()
    result = run_training(recipe, output, inputs)
    if result is not None:
        report_end(recipe, result, output, time.perf_counter() - started, as_json)


def _adaptation(
    output: Path, model: str, generator: str, negatives: str, teacher: str, changes: list[str], resume: bool
) -> TrainingRecipe:
    """The recipe that fits the model, or that of the interrupted run to resume."""
    from vizsla.training import adaptation_recipe, resumed_recipe

    if resume:
        return resumed_recipe(output, changes)
    return adaptation_recipe(model, generator=generator, negatives=negatives, teacher=teacher, changes=changes)
