"""vizsla eval: how good a model, an index or a run is on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset
    from vizsla.runs import Run


def evaluate(
    dataset: Annotated[str, typer.Argument(help="A folder in BEIR's layout.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model; bm25 unless told otherwise.")] = None,
    index: Annotated[Path | None, typer.Option("--index", help="An index there is already.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="A TREC run of any system.")] = None,
    split: Annotated[str, typer.Option("--split", help="Which judgements.")] = "test",
    measures: Annotated[str, typer.Option("--measures", help="In ir_measures' notation.")] = "nDCG@10 R@100",
    k: Annotated[int, typer.Option("-k", help="How deep to search.")] = 1000,
    output: Annotated[Path | None, typer.Option("--output", help="Write the TREC run here, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Evaluate as Anserini does: missing queries count 0, documents with the query's own id are left out."""
    from vizsla.datasets import BeirDataset
    from vizsla.runs import parse_measures

    if sum(option is not None for option in (model, index, run)) > 1:
        raise VizslaError("give one of --model, --index and --run, not several")
    if k < 1:
        raise VizslaError(f"-k, how deep to search, must be 1 or more, not {k}")
    names = [str(m) for m in parse_measures(measures)]
    opened = BeirDataset.open(dataset)
    if run is not None:
        result, found = _evaluate_run(opened, run, split, names)
    else:
        result, found = _evaluate_search(opened, model or "bm25", index, split, names, k)
    if as_json:
        console.print_json(result)
    else:
        _show(result)
    if output is not None:
        found.write(output)


def _evaluate_run(dataset: BeirDataset, file: Path, split: str, names: list[str]) -> tuple[dict[str, Any], Run]:
    from vizsla.evaluation import evaluate
    from vizsla.runs import Run, parse_measures

    qrels, run = dataset.qrels(split), Run.read(file)
    found = evaluate(run, qrels, parse_measures(names))
    missing = sum(q not in run for q in qrels.judgements)
    facts = {"queries": len(qrels.judgements), "missing": missing}
    return _result(str(file), dataset, split, found.measures, **facts), run


def _evaluate_search(
    dataset: BeirDataset, model: str, index: Path | None, split: str, names: list[str], k: int
) -> tuple[dict[str, Any], Run]:
    from vizsla.cli.index import watched
    from vizsla.datasets import Source
    from vizsla.evaluation import evaluate_index, evaluate_model
    from vizsla.index import Index
    from vizsla.models import parse_model

    qrels = dataset.qrels(split)
    if index is not None:
        with Index.open(index) as opened:
            name = f"{opened.model.name} in {index}"
            outcome = evaluate_index(opened, dataset, qrels, names, k)
    else:
        name = model
        documents = watched([Source.find(dataset.folder)], f"Indexing {dataset.name}")
        outcome = evaluate_model(parse_model(model), dataset, split, names, k, documents)
    missing = sum(not outcome.run.get(q) for q in qrels.judgements)
    facts = {
        "documents": outcome.documents,
        "queries": len(qrels.judgements),
        "missing": missing,
        "seconds": {step: round(seconds, 3) for step, seconds in outcome.seconds.items()},
    }
    return _result(name, dataset, split, outcome.evaluation.measures, **facts), outcome.run


def _result(model: str, dataset: BeirDataset, split: str, measures: dict[str, float], **facts: Any) -> dict[str, Any]:
    return {"model": model, "dataset": dataset.name, "split": split, "measures": measures, **facts}


def _show(result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "data set", *result["measures"]):
        table.add_column(column, overflow="fold")
    figures = [f"{value:.4f}" for value in result["measures"].values()]
    table.add_row(escape(result["model"]), escape(f"{result['dataset']} {result['split']}"), *figures)
    console.out.print(table)
    seconds = result.get("seconds", {})
    took = ", ".join(f"{step} {time:.1f} s" for step, time in seconds.items())
    missing = f", {result['missing']} of them with nothing found (counted 0)" if result["missing"] else ""
    noun = "query" if result["queries"] == 1 else "queries"
    console.remark(f"{result['queries']:,} {noun}{missing}" + (f"; {took}" if took else ""))
