"""vizsla eval: evaluate a model, an index or a run on judgements or on questions with answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.compare import remark_facts
from vizsla.cli.models import split_models
from vizsla.cli.options import SearchChoices, open_retriever, searched_with
from vizsla.errors import InputError, VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.datasets import BeirDataset
    from vizsla.evaluation import QuestionSet
    from vizsla.runs import Measure, Retriever, Run

DEFAULT_MEASURES = "nDCG@10 R@100"
OPTION_NAMES = {"combine": "combine", "search_params": "search params"}


def evaluate(
    sets: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET...", help="A data set: a name or a folder; or files of questions with answers."
        ),
    ],
    models: Annotated[list[str] | None, options.several_models("The model; default: bm25, or that of --index.")] = None,
    index: Annotated[str | None, options.index_option("Search this index instead of building one.")] = None,
    run: Annotated[Path | None, options.run("Evaluate this TREC run instead of searching.")] = None,
    split: options.Split = None,
    measures: Annotated[
        str | None,
        options.measures(f"Measures as in ir_measures; default: {DEFAULT_MEASURES}, for answers {DEFAULT_ACCURACY}."),
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
    """Measure how good a model, index or run is, on judged queries.

    As in: vizsla eval scifact --model bm25

    On a data set, which has a name or is your own folder with corpus.jsonl, queries.jsonl and qrels/test.tsv: nDCG,
    recall and other measures, as Anserini computes them. On questions with answers (openqa-nq, a .jsonl, or DPR's
    .csv): answer accuracy, the share of questions with an answer in the top k, as DPR computes it; this needs --index,
    which has the texts. --measures Acc@20 measures that on a data set with answers and judgements, too.
    """
    if run is not None and (combine or search_params):
        raise VizslaError("--combine and --search-params are for searching; --run evaluates an existing run")
    search_options: SearchChoices = {"combine": combine, "search_params": search_params}
    answered = all(map(is_question_file, sets)) or _wants_answers(sets, measures, data)
    if answered:
        if output is not None or (split is not None and any(map(is_question_file, sets))):
            raise VizslaError("--output and --split are for data sets, not for files of questions with answers")
        location, cutoffs = _checked_location(index, models, run, limit), _answer_cutoffs(measures)
        from vizsla.evaluation import QuestionSet

        opened = [QuestionSet.with_answers(source, data, split) for source in sets]
        evaluate_answers(location, opened, models or [], run, cutoffs, regex, limit, search_options, as_json)
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
    """The system to evaluate: a model in a new index, an index, or a run; and how the index is searched."""

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
    """The results on each part of a data set, with their mean if there are several; and the last run."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import CONVENTIONS

    console.check_name("convention", convention, CONVENTIONS)
    parsed, cutoffs = split_measures(measures or DEFAULT_MEASURES)
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
        model = parse_model(system.model)
        documents = options.dataset_documents(dataset.reading(model.fields))
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


DEFAULT_ACCURACY = "Acc@5 Acc@20 Acc@100"
_ACCURACY = re.compile(r"Acc@(\d{1,6})", re.ASCII)
_QUESTION_FILE = (".jsonl", ".csv", ".tsv", ".json")


def is_question_file(source: str) -> bool:
    """Whether a source is a file of questions, and not a data set."""
    path = Path(source)
    return path.is_file() or path.suffix in _QUESTION_FILE


def split_measures(text: str) -> tuple[list[Measure], list[int]]:
    """Measures of judged documents, and the cutoffs of answer accuracy.

    >>> measures, cutoffs = split_measures("nDCG@10 Acc@20 Acc@5")
    >>> [str(measure) for measure in measures], cutoffs
    (['nDCG@10'], [5, 20])
    """
    from vizsla.runs import parse_measures
    from vizsla.spec import split_options

    cutoffs, others = set(), []
    for name in split_options(text, " ,"):
        match = _ACCURACY.fullmatch(name)
        if match is None:
            others.append(name)
        elif not int(match[1]):
            raise VizslaError(f"{console.safe(name)!r} is not a measure; a cutoff is 1 or more")
        else:
            cutoffs.add(int(match[1]))
    if not others and not cutoffs:
        raise VizslaError(f"{console.safe(text)!r} names no measure; expected something like nDCG@10 or Acc@20")
    return parse_measures(others) if others else [], sorted(cutoffs)


def _wants_answers(sets: list[str], measures: str | None, data: Path | None) -> bool:
    """Whether data sets are measured by answers: by measures such as Acc@20, or since they have no judgements."""
    if any(map(is_question_file, sets)):
        return False
    if measures is not None:
        others, cutoffs = split_measures(measures)
        return bool(cutoffs) and not others
    from vizsla.datasets import open_datasets

    try:
        groups = [open_datasets(name, data) for name in sets]
    except InputError:
        return False  # what follows raises the error
    return all(len(group.members) == 1 and not group.members[0].splits for group in groups)


def _checked_location(location: str | None, models: list[str] | None, run: Path | None, limit: int | None) -> str:
    """The index that answers are looked for in; options that do not fit are refused."""
    if location is None:
        raise VizslaError("answers are searched for in the texts of an index; name it with --index INDEX")
    if limit is not None and limit < 1:
        raise VizslaError(f"--limit, the number of questions, must be 1 or more, not {limit}")
    if run is not None and models:
        raise VizslaError("give --run or --model, not both")
    return location


def _answer_cutoffs(measures: str | None) -> list[int]:
    judged, cutoffs = split_measures(measures or DEFAULT_ACCURACY)
    if judged:
        raise VizslaError(f"{judged[0]} needs judgements; questions with answers are measured by Acc@k, as in Acc@20")
    return cutoffs


def evaluate_answers(
    location: str, sets: Sequence[QuestionSet], models: list[str], run: Path | None, cutoffs: list[int],
    regex: bool, limit: int | None, search_options: SearchChoices, as_json: bool,
) -> None:  # fmt: skip
    """Print the share of questions with an answer in the top k, for each set of questions and model.

    `search_options`: how the index is searched, as `searched_with` takes it.
    """
    from vizsla.runs import Run

    given = Run.read(run) if run else None
    results: list[dict[str, Any]] = []
    with open_retriever(location) as opened:
        systems = {name: searched_with(opened, model=name, **search_options) for name in split_models(models)}
        if not systems:
            systems = {run.name if run else opened.name: searched_with(opened, **search_options)}
        for questions in sets:
            results += _evaluate_questions(questions.first(limit), systems, given, cutoffs, regex=regex)
    if as_json:
        console.print_json({"index": str(location), "results": results})
    else:
        _show_accuracy(results, cutoffs, with_models=bool(models))


def _evaluate_questions(
    questions: QuestionSet, systems: dict[str, Retriever], run: Run | None, cutoffs: list[int], *, regex: bool
) -> list[dict[str, Any]]:
    from vizsla.evaluation import accuracy, answer_ranks, mean_accuracy

    regex = regex or questions.regex
    results = []
    for name, retriever in systems.items():
        with console.progress(f"Matching {questions.name}", len(questions.texts), "questions") as advance:
            ranks = answer_ranks(
                retriever, questions.texts, questions.answers, max(cutoffs), run=run, regex=regex, progress=advance
            )
        result: dict[str, Any] = {"file": questions.name, "model": name, "questions": len(questions.texts)}
        result["accuracy"] = {f"Acc@{k}": value for k, value in accuracy(ranks, cutoffs).items()}
        relations = {questions.relations[q] for q in ranks if q in questions.relations}
        if relations:
            means = mean_accuracy(ranks, questions.relations, cutoffs)
            result |= {"relations": len(relations), "macro": {f"Acc@{k}": value for k, value in means.items()}}
        results.append(result)
    return results


def _show_accuracy(results: list[dict[str, Any]], cutoffs: list[int], *, with_models: bool) -> None:
    names = [f"Acc@{k}" for k in cutoffs]
    rows = []
    for r in results:
        model = [r["model"]] if with_models else []
        rows.append((r["file"], *model, f"{r['questions']:,}", *(f"{r['accuracy'][name]:.4f}" for name in names)))
        if "macro" in r:
            title = f"{r['file']}, mean of {console.count(r['relations'], 'relation')}"
            rows.append((title, *model, "", *(f"{r['macro'][name]:.4f}" for name in names)))
    columns = ("questions", *(["model"] if with_models else []), "count", *names)
    console.show_table(columns, rows, right=("count", *names))
