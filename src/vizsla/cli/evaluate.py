"""vizsla eval: how good a model, an index or a run is, on judgements or on questions with answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import answer_accuracy, console, options
from vizsla.cli.compare import remark_facts
from vizsla.cli.models import split_models
from vizsla.cli.opening import SearchChoices, open_retriever, searched_with
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset
    from vizsla.runs import Run

DEFAULT_MEASURES = "nDCG@10 R@100"
OPTION_NAMES = {"combine": "combine", "search_params": "search params"}


def evaluate(
    sets: Annotated[
        list[str],
        typer.Argument(metavar="DATASET...", help="A data set, or files of questions with answers."),
    ],
    models: Annotated[list[str] | None, options.several_models("The model; default: bm25, or that of --index.")] = None,
    index: Annotated[str | None, options.index_option("Search this index instead of building one.")] = None,
    run: Annotated[Path | None, options.run("Evaluate this TREC run instead of searching.")] = None,
    split: options.Split = None,
    measures: Annotated[
        str | None,
        options.measures(
            f"Measures as in ir_measures; default: {DEFAULT_MEASURES}, for answers {answer_accuracy.DEFAULT}."
        ),
    ] = None,
    convention: options.Convention = "anserini",
    k: Annotated[int, options.top_k("How many documents per query are retrieved.")] = 1000,
    output: Annotated[Path | None, options.output("Also write the TREC run.")] = None,
    combine: options.Combine = None,
    search_params: options.SearchParams = None,
    regex: options.Regex = False,
    limit: options.Limit = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate a model, an index or a run.

    On a data set: nDCG, recall and other measures, as Anserini computes them. On files of questions with answers
    (.jsonl, or DPR's .csv): answer accuracy, the share of questions with an answer in the top k, as DPR computes it;
    this needs --index, which has the texts.
    """
    if run is not None and (combine or search_params):
        raise VizslaError("--combine and --search-params are for searching; a run has been searched already")
    search_options: SearchChoices = {"combine": combine, "search_params": search_params}
    if all(map(answer_accuracy.is_question_file, sets)):
        if output is not None or split is not None:
            raise VizslaError("--output and --split are for data sets, not for questions with answers")
        files = [Path(file) for file in sets]
        answer_accuracy.evaluate_answers(
            index, files, models or [], run, measures, regex, limit, search_options, as_json
        )
        return
    if len(sets) > 1:
        raise VizslaError("give one data set; 'vizsla compare' evaluates on several")
    if regex or limit is not None:
        raise VizslaError("--regex and --limit are for files of questions with answers")
    if sum(option is not None for option in (models, index, run)) > 1:
        raise VizslaError("give one of --model, --index and --run, not several")
    console.check_apart(output, "--output")
    console.check_output(output, *([run] if run else []))
    system = _System(_one_model(models), index, run, k, search_options)
    results, last_run = _evaluate_dataset(system, sets[0], split, measures, convention, data, output is not None)
    if as_json:
        console.print_json(results[-1] if len(results) == 1 else {**results[-1], "parts": results[:-1]})
    else:
        _show(results)
    if output is not None:
        last_run.write(output)


@dataclass(frozen=True)
class _System:
    """What is evaluated: a model in a new index, an index, or a run; and how the index is searched."""

    model: str
    index: str | None
    run: Path | None
    k: int
    search_options: SearchChoices


def _one_model(models: list[str] | None) -> str:
    if not models:
        return "bm25"
    if len(split_models(models)) > 1:
        raise VizslaError("give one model; 'vizsla compare' evaluates several")
    return models[0]


def _evaluate_dataset(
    system: _System, name: str, split: str | None, measures: str | None, convention: str, data: Path | None,
    writes_run: bool,
) -> tuple[list[dict[str, Any]], Run]:  # fmt: skip
    """The results on each part of a data set, with their mean where there are several; and the last run."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import CONVENTIONS

    console.check_name("convention", convention, CONVENTIONS)
    parsed, cutoffs = answer_accuracy.split_measures(measures or DEFAULT_MEASURES)
    if cutoffs:
        raise VizslaError(f"Acc@{cutoffs[0]} needs answers; it is for files of questions with answers")
    if system.run is None:
        console.check_depth(system.k, parsed)
    group = open_datasets(name, data)
    if len(group.members) > 1 and (system.index is not None or system.run is not None or writes_run):
        message = f"{group.name} is {len(group.members)} collections; an index or a run belongs to one of them"
        raise VizslaError(message)
    which, names = group.split(split), [str(m) for m in parsed]
    results = []
    for member in group.members:
        if system.run is not None:
            result, run = _evaluate_run(member, system.run, which, names, convention)
        else:
            result, run = _evaluate_search(member, system, which, names, convention)
        results.append(result)
    if len(results) > 1:
        results.append(_mean(group.name, results))
    if group.entry and group.entry.evaluated != which:
        console.remark(f"{group.name}: published figures are on {group.entry.evaluated}. {group.entry.note}")
    return results, run


def _evaluate_run(
    dataset: BeirDataset, file: Path, split: str, names: list[str], convention: str
) -> tuple[dict[str, Any], Run]:
    from vizsla.evaluation import evaluate
    from vizsla.runs import Run, parse_measures

    qrels, run = dataset.qrels(split), Run.read(file)
    evaluation = evaluate(run, qrels, parse_measures(names), convention)
    if evaluation.facts["missing"] == evaluation.facts["queries"]:
        raise VizslaError(f"{file}: the run has none of the judged queries of {dataset.name} {split}")
    ids = {d for q in run if q in qrels.judgements for d in run[q].documents}
    unknown = len(ids.difference(dataset.document_ids())) if dataset.has_corpus else 0
    facts = {**evaluation.facts, "unknown": unknown, "convention": convention}
    return _result(str(file), dataset, split, evaluation.measures, **facts), run


def _evaluate_search(
    dataset: BeirDataset, system: _System, split: str, names: list[str], convention: str
) -> tuple[dict[str, Any], Run]:
    from vizsla.cli.sources import read_with_progress
    from vizsla.datasets import Source
    from vizsla.evaluation import evaluate_model, evaluate_retriever
    from vizsla.models import parse_model

    qrels, search_options = dataset.qrels(split), system.search_options
    if system.index is not None:
        with open_retriever(system.index) as opened:
            name = f"{opened.name} in {system.index}"
            retriever = searched_with(opened, **search_options)
            outcome = evaluate_retriever(retriever, dataset, split, names, system.k, convention)
    else:
        name = system.model
        documents = read_with_progress([Source.find(dataset.folder)], f"Indexing {dataset.name}")
        model = parse_model(system.model)
        outcome = evaluate_model(
            model, dataset, split, names, system.k, convention, documents=documents, **search_options
        )
    if not outcome.documents:
        raise VizslaError(f"{dataset.folder}: there are no documents to search")
    if system.index is not None and dataset.has_corpus:
        retrieved = {d for ranking in outcome.run.values() for d in ranking.documents}
        if retrieved and retrieved.isdisjoint(dataset.document_ids()):
            raise VizslaError(
                f"{system.index}: no retrieved document is in {dataset.name}; is this the index of {dataset.name}?"
            )
    name += "".join(
        f", {OPTION_NAMES[option]} {value}" for option, value in search_options.items() if value is not None
    )
    facts = {
        "documents": outcome.documents,
        "queries": len(qrels.judgements),
        "missing": sum(not outcome.run.get(q) for q in qrels.judgements),
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
    summary = f"{last['queries']:,} {noun}{missing}" + (f"; {took}" if took else "")
    console.remark(f"{summary}; convention {last['convention']}")
    remark_facts("The run", {k: last.get(k, 0) for k in ("queries", "unjudged", "unknown")})
