"""vizsla eval: how well a model, an index or a run does on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.compare import Convention, remark_facts
from vizsla.cli.datasets import Data
from vizsla.cli.search import AskedDense, Combine
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset
    from vizsla.runs import Run


def evaluate(
    dataset: Annotated[str, typer.Argument(help="A folder in BEIR's layout, or the name of a data set.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model; bm25 unless told otherwise.")] = None,
    index: Annotated[Path | None, typer.Option("--index", help="An index there is already.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="A TREC run of any system.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Which judgements; test unless a set has another.")
    ] = None,
    measures: Annotated[str, typer.Option("--measures", help="In ir_measures' notation.")] = "nDCG@10 R@100",
    convention: Convention = "anserini",
    k: Annotated[int, typer.Option("-k", help="How deep to search.")] = 1000,
    output: Annotated[Path | None, typer.Option("--output", help="Write the TREC run here, too.")] = None,
    combine: Combine = None,
    dense: AskedDense = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Evaluate a model, an index or a run. The convention is Anserini's: missing queries count 0, own ids do not."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import CONVENTIONS
    from vizsla.runs import parse_measures

    if sum(option is not None for option in (model, index, run)) > 1:
        raise VizslaError("give one of --model, --index and --run, not several")
    if run is not None and (combine or dense):
        raise VizslaError("--combine and --dense are ways to search; a run has been searched already")
    console.one_of("convention", convention, CONVENTIONS)
    parsed = parse_measures(measures)
    console.check_apart(output, "--output")
    console.check_output(output, *([run] if run else []))
    if run is None:
        console.check_depth(k, parsed)
    names = [str(m) for m in parsed]
    group = open_datasets(dataset, data)
    if len(group.members) > 1 and (index is not None or run is not None or output is not None):
        message = f"{group.name} is {len(group.members)} collections; an index or a run belongs to one of them"
        raise VizslaError(message)
    which, asked = group.split(split), "bm25" if model is None else model
    ways = {"combine": combine, "dense": dense}
    results = []
    for member in group.members:
        if run is not None:
            result, found = _evaluate_run(member, run, which, names, convention)
        else:
            result, found = _evaluate_search(member, asked, index, which, names, k, convention, ways)
        results.append(result)
    if len(results) > 1:
        results.append(_mean(group.name, results))
    if as_json:
        console.print_json(results[-1] if len(results) == 1 else {**results[-1], "parts": results[:-1]})
    else:
        _show(results)
    if output is not None:
        found.write(output)
    if group.entry and group.entry.evaluated != which:
        console.remark(f"{group.name}: published figures are on {group.entry.evaluated}. {group.entry.note}")


def _evaluate_run(
    dataset: BeirDataset, file: Path, split: str, names: list[str], convention: str
) -> tuple[dict[str, Any], Run]:
    from vizsla.evaluation import evaluate
    from vizsla.runs import Run, parse_measures

    qrels, run = dataset.qrels(split), Run.read(file)
    found = evaluate(run, qrels, parse_measures(names), convention)
    if found.facts["missing"] == found.facts["queries"]:
        raise VizslaError(f"{file}: the run has none of the judged queries of {dataset.name} {split}")
    ids = {d for q in run if q in qrels.judgements for d in run[q].documents}
    unknown = len(ids.difference(dataset.document_ids())) if dataset.has_corpus else 0
    facts = {**found.facts, "unknown": unknown, "convention": convention}
    return _result(str(file), dataset, split, found.measures, **facts), run


def _evaluate_search(
    dataset: BeirDataset,
    model: str,
    index: Path | None,
    split: str,
    names: list[str],
    k: int,
    convention: str,
    ways: dict[str, str | None],
) -> tuple[dict[str, Any], Run]:
    from vizsla.cli.index import watched
    from vizsla.datasets import Source
    from vizsla.evaluation import evaluate_model, evaluate_retriever
    from vizsla.index import Index
    from vizsla.models import parse_model

    qrels = dataset.qrels(split)
    if index is not None:
        with Index.open(index) as opened:
            name = f"{opened.model.name} in {index}"
            view = opened.with_model(combine=ways["combine"], search_params=ways["dense"])
            outcome = evaluate_retriever(view, dataset, split, names, k, convention)
    else:
        name = model
        documents = watched([Source.find(dataset.folder)], f"Indexing {dataset.name}")
        outcome = evaluate_model(
            parse_model(model), dataset, split, names, k, convention,
            documents=documents, combine=ways["combine"], search_params=ways["dense"],
        )  # fmt: skip
    if not outcome.documents:
        raise VizslaError(f"{dataset.folder}: there are no documents to search")
    if index is not None and dataset.has_corpus:
        found = {d for ranking in outcome.run.values() for d in ranking.documents}
        if found and found.isdisjoint(dataset.document_ids()):
            raise VizslaError(f"{index}: none of the documents found is one of {dataset.name}'s; is it its index?")
    missing = sum(not outcome.run.get(q) for q in qrels.judgements)
    name += "".join(f", {way} {how}" for way, how in ways.items() if how is not None)
    facts = {
        "documents": outcome.documents,
        "queries": len(qrels.judgements),
        "missing": missing,
        "convention": convention,
        "seconds": {step: round(seconds, 3) for step, seconds in outcome.seconds.items()},
    }
    return _result(name, dataset, split, outcome.evaluation.measures, **facts), outcome.run


def _result(model: str, dataset: BeirDataset, split: str, measures: dict[str, float], **facts: Any) -> dict[str, Any]:
    return {"model": model, "dataset": dataset.name, "split": split, "measures": measures, **facts}


def _mean(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The unweighted mean over the parts of a data set."""
    first = results[0]
    measures = {m: sum(r["measures"][m] for r in results) / len(results) for m in first["measures"]}
    sums = {key: sum(r.get(key, 0) for r in results) for key in ("documents", "queries", "missing")}
    return {**first, "dataset": f"{name} (mean of {len(results)})", "measures": measures, **sums, "seconds": {}}


def _show(results: list[dict[str, Any]]) -> None:
    last = results[-1]
    rows = [
        (r["model"], f"{r['dataset']} {r['split']}", *(f"{value:.4f}" for value in r["measures"].values()))
        for r in results
    ]
    console.show_table(("model", "data set", *last["measures"]), rows, right=tuple(last["measures"]))
    took = ", ".join(f"{step} {time:.1f} s" for step, time in last.get("seconds", {}).items())
    counted = "counted 0" if last["convention"] != "beir" else "left out, except in RR, R_cap, Hole and Success"
    missing = f", {last['missing']} of them with nothing found ({counted})" if last["missing"] else ""
    noun = "query" if last["queries"] == 1 else "queries"
    told = f"{last['queries']:,} {noun}{missing}" + (f"; {took}" if took else "")
    console.remark(f"{told}; convention {last['convention']}")
    remark_facts("The run", {k: last.get(k, 0) for k in ("queries", "unjudged", "unknown")})
