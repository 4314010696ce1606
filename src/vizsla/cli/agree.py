"""vizsla agree: how alike rankings are, without judgements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.compare import split_models
from vizsla.cli.datasets import Data
from vizsla.cli.named import read_named
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.runs import Run


def agree(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="TREC runs, FILE, NAME=FILE or NAME@QUESTIONS=FILE; the others are compared with the first."
        ),
    ] = None,
    index: Annotated[Path | None, typer.Option("--index", help="Instead of runs: an index to ask.")] = None,
    questions: Annotated[
        list[str] | None,
        typer.Option("--questions", help="With --index: a file of questions, or a data set; may be repeated."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--models", "-m", help="With --index: models, separated by commas; the first is the teacher."),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which queries of a data set.")] = None,
    p: Annotated[float, typer.Option("-p", help="How fast rank-biased overlap forgets deeper ranks.")] = 0.9,
    depth: Annotated[int, typer.Option("--depth", help="How deep rank-biased overlap looks.")] = 100,
    truncated: Annotated[bool, typer.Option("--truncated", help="Count nothing beyond the depth.")] = False,
    k: Annotated[int, typer.Option("-k", help="How many documents overlap and consistency are measured on.")] = 10,
    pool: Annotated[int, typer.Option("--pool", help="Consistency: how much of the first run is its pool.")] = 1000,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Compare rankings without judgements: rank-biased overlap, shared documents, RepBERT's consistency factor."""
    from vizsla.evaluation import consistency_factor, overlap, rank_biased_overlap

    if k < 1 or depth < 1 or pool < 1:
        raise VizslaError("depths must be 1 or more")
    if not 0 < p < 1:
        raise VizslaError(f"p of rank-biased overlap lies between 0 and 1, not {p:g}")
    if bool(runs) == (index is not None):
        raise VizslaError("give runs, or else --index with --questions and models to ask")
    if index is None and (questions or models):
        raise VizslaError("--questions and --models are for an index; name it by --index")
    if index is not None:
        deepest = max(pool, depth, k)
        by_set = _asked(index, questions or [], split_models(",".join(models or [])), split, data, deepest)
    else:
        by_set = _teacher_first(read_named(runs or []))
    results: list[dict[str, Any]] = []
    for asked, by_system in by_set.items():
        (teacher, first), *others = by_system.items()
        for system, run in others:
            both = [q for q in run if q in first]
            if not both:
                raise VizslaError(f"{teacher} and {system} have no query in common" + (f" on {asked}" if asked else ""))
            biased = rank_biased_overlap(first, run, p, depth, extrapolated=not truncated)
            shared = overlap(first, run, k)
            figures = {
                f"RBO(p={p:g})": sum(biased.values()) / len(biased),
                f"overlap@{k}": sum(shared.values()) / len(shared),
                f"consistency@{k}": consistency_factor(run, first, k, pool),
            }
            on = {"questions": asked} if asked else {}
            results.append({"run": system, "with": teacher, **on, "queries": len(both), "figures": figures})
    if as_json:
        console.print_json(results)
    elif len(by_set) > 1:
        _show_sets(results, list(by_set))
        console.remark(f"RBO(p={p:g}), {'truncated' if truncated else 'extrapolated'} at depth {depth}")
    else:
        _show(results)


def _asked(
    folder: Path, questions: list[str], models: list[str], split: str | None, data: Path | None, depth: int
) -> dict[str, dict[str, Run]]:
    """What models find in an index for several sets of questions."""
    from vizsla.evaluation import QuestionSet, retrieve
    from vizsla.index import Index
    from vizsla.models import parse_model

    if not questions:
        raise VizslaError("name the questions to ask by --questions, a file or a data set")
    if len(models) < 2:
        raise VizslaError("there must be two models at least, as in -m bm25,minilm; the first is the teacher")
    parsed = {name: parse_model(name) for name in models}
    sets = [QuestionSet.open(source, data, split) for source in questions]
    if len({asked.name for asked in sets}) < len(sets):
        raise VizslaError("two sets of questions have one name; results go by name, so each needs its own")
    with Index.open(folder) as index:
        views = {name: index.with_model(model) for name, model in parsed.items()}
        return {s.name: {name: _found(retrieve(view, s.texts, depth)) for name, view in views.items()} for s in sets}


def _found(run: Run) -> Run:
    """A run without the queries that found nothing, as it is in a file."""
    return run.only({q for q, ranking in run.items() if len(ranking)})


def _teacher_first(by_set: dict[str, dict[str, Run]]) -> dict[str, dict[str, Run]]:
    """The runs on each set of questions, that of the first system of all first; each set needs it, and another."""
    teacher = next(iter(next(iter(by_set.values()))))
    ordered = {}
    for asked, by_system in by_set.items():
        on = f" on {asked}" if asked else ""
        if len(by_system) < 2:
            raise VizslaError(f"there must be two runs at least{on}")
        if teacher not in by_system:
            raise VizslaError(f"there is no run of {teacher}{on} that the others could be compared with")
        ordered[asked] = {teacher: by_system[teacher], **by_system}
    return ordered


def _show(results: list[dict[str, Any]]) -> None:
    names = list(results[0]["figures"])
    rows = [(r["run"], f"{r['queries']:,}", *(f"{r['figures'][n]:.4f}" for n in names)) for r in results]
    on = f" on {results[0]['questions']}" if "questions" in results[0] else ""
    console.show_table((f"with {results[0]['with']}{on}", "queries", *names), rows, right=("queries", *names))


def _show_sets(results: list[dict[str, Any]], sets: list[str]) -> None:
    """A row for each system, a column for each set of questions: rank-biased overlap with the first system."""
    found = {(r["run"], r.get("questions", "")): next(iter(r["figures"].values())) for r in results}
    heads = [asked or "(no name)" for asked in sets]
    rows = []
    for system in dict.fromkeys(r["run"] for r in results):
        cells = (f"{found[system, asked]:.4f}" if (system, asked) in found else "-" for asked in sets)
        rows.append((system, *cells))
    console.show_table((f"RBO with {results[0]['with']}", *heads), rows, right=heads)
