"""vizsla train: a model from documents."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.options import Format, IdField, TextField, TitleField
from vizsla.cli.sources import find_sources
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.recipes.training import TrainingRecipe
    from vizsla.training import Outcome


def train(
    recipe: Annotated[str, typer.Argument(help="A training recipe by name, bm26 for one, or a file of your own.")],
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Files or folders of documents.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder of the new model.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, as in batch=1024; see the recipe.")
    ] = None,
    dataset: Annotated[
        list[Path] | None,
        typer.Option("--dataset", help="BEIR folders whose train splits are learnt from, for such recipes."),
    ] = None,
    dev: Annotated[
        list[Path] | None, typer.Option("--dev", help="BEIR folders whose dev queries tell when to stop.")
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option("--negatives", help="A TREC run or a model whose best documents are the negatives; else BM25."),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option("--candidates", help="Cross-encoders: whose documents of --dev are ranked; else as --negatives."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")] = False,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
) -> None:
    """Train a model on documents or on judged queries: adapt BM26, make one anew, or a reranker."""
    from vizsla.datasets import BeirDataset, FieldNames

    try:
        from vizsla.networks.inference import transformers
        from vizsla.recipes.training import go_on_with, load_training_recipe, resumed
        from vizsla.recipes.training import train as run
        from vizsla.training import Team

        transformers().utils.logging.disable_progress_bar()  # of saving, which takes a second
        transformers().utils.logging.set_verbosity_error()  # of heads that are not taken, by name
    except ImportError as e:
        raise VizslaError(f"training needs more packages ({e}); install vizsla[train]") from None

    if output is None:
        raise VizslaError("name a folder for the model, as in: vizsla train bm26 --corpus docs.jsonl -o my-bm26")
    console.check_folder(output, "a model")
    judged = [BeirDataset.open(folder) for folder in dataset or []]
    if not corpus and not judged and not resume:
        raise VizslaError("name the documents to train on with --corpus FILE, or go on with --resume")
    plan, sets = load_training_recipe(recipe), [BeirDataset.open(folder) for folder in dev or []]
    given = (("negatives", negatives), ("candidates", candidates))
    asked = [*(changes or []), *(f"{name}={value}" for name, value in given if value is not None)]
    if resume:
        plan, sets, judged = resumed(output)
        plan = go_on_with(plan, asked)
    else:
        plan = plan.changed(asked)
    if corpus and plan.pairs == "judged" and not plan.reads_corpus:
        console.remark(f"{plan.name} learns from the documents of its data sets; --corpus is not read")
    sources = [] if resume else find_sources(corpus or [], format, names=FieldNames(id_field, text_field, title_field))
    team = Team.assembled()
    if team.leads and team.device.type == "cpu" and plan.network != "augmenter":
        console.remark("There is no GPU here: this will take about a hundred times as long as on one.")
    started = time.perf_counter()
    documents = (document for source in sources for document in source.documents())
    if not corpus:
        documents = (document for each in judged for document in each.documents())
    model, outcome = run(
        plan, documents, output, datasets=judged, dev=sets, resume=resume, report=show_line if team.leads else None
    )
    if team.leads:
        console.remark(f"{outcome.step} steps in {time.perf_counter() - started:.0f} s: {model.name} is in {output}")
        _tell_use(plan, outcome, output)


def _tell_use(plan: TrainingRecipe, outcome: Outcome, output: Path) -> None:
    """The best figures, and what to do with the model."""
    if outcome.figures:
        best = ", ".join(f"{name} {value:.4f}" for name, value in outcome.figures.items())
        console.remark(f"Best at step {outcome.best_step}: {best}")
    if plan.network == "augmenter":
        console.remark(f"Use it with: vizsla search INDEX --expand {output}")
    elif plan.network == "cross":
        console.remark(f"Use it with: vizsla rerank INDEX --run RUN --queries QUERIES --reranker {output} -o OUT")
    else:
        console.remark(f"Use it with: vizsla index SOURCE -o INDEX --model {output}{_other_use(plan, output)}")


def _other_use(plan: TrainingRecipe, output: Path) -> str:
    """Where a model goes besides by itself."""
    if plan.pairs == "taught" and not plan.beside:
        return f', or "spar(dense=minilm, lexical={output})"'
    return "" if plan.network == "dense" else f', or "bm51(network={output})"'


def show_line(line: dict[str, Any]) -> None:
    """A step as a person reads it."""
    if "masked_loss" in line:
        rate = f"{line['tokens_per_second'] / 1e3:,.0f} k tokens/s"
        console.remark(f"masked {line['step']:>5}  loss {line['masked_loss']:.3f}  {rate}")
        return
    figures = " ".join(f"{name} {value:.4f}" for name, value in line.items() if "@" in name)
    terms = ""
    if "document_terms" in line:
        terms = f"  terms {line['query_terms']:.0f}/{line['document_terms']:.0f}"
    elif "added_terms" in line:
        terms = f"  terms {line['query_terms']:.1f}, {line['added_terms']:.1f} added"
    console.remark(
        f"step {line['step']:>5}  loss {line['loss']:.3f}  accuracy {line['accuracy']:.3f}{terms}  "
        f"{line['tokens_per_second'] / 1e3:,.0f} k tokens/s  {line['tflops']:.1f} TFLOP/s  {figures}".rstrip()
    )
