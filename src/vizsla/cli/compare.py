"""vizsla compare: systems side by side, with significance, as a table or a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console
from vizsla.cli.datasets import Data
from vizsla.cli.named import named_file
from vizsla.errors import UnknownNameError, VizslaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vizsla.datasets import BeirDataset, Document, RawLines
    from vizsla.evaluation import Comparison
    from vizsla.runs import Run

Convention = Annotated[str, typer.Option("--convention", help="How figures are made: anserini, beir or trec.")]
Test = Annotated[str, typer.Option("--test", help="The significance test: t-test or randomisation.")]
Correction = Annotated[str, typer.Option("--correction", help="For many systems: holm, bonferroni, bh, none.")]


def compare(
    datasets: Annotated[list[str], typer.Argument(help="Folders in BEIR's layout, or names of data sets.")],
    models: Annotated[
        list[str] | None, typer.Option("--models", "-m", help="Models, separated by commas; the first is the baseline.")
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", help="A TREC run of any system: NAME=FILE, or NAME@DATASET=FILE."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Which judgements; test unless a set has another.")
    ] = None,
    measures: Annotated[str, typer.Option("--measures", help="In ir_measures' notation.")] = "nDCG@10 R@100",
    report: Annotated[
        list[Path] | None, typer.Option("--report", help="Write a page or table: .html, .md, .csv, .tex, .json.")
    ] = None,
    convention: Convention = "anserini",
    test: Test = "t-test",
    correction: Correction = "holm",
    data: Data = None,
    k: Annotated[int, typer.Option("-k", help="How deep to search.")] = 1000,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Keep runs, and use those kept.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Compare systems on data sets: figures, significance, reports. Work that was done before is not done again."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import CORRECTIONS, TESTS, Cache, compare, default_folder
    from vizsla.models import parse_model
    from vizsla.reports import as_data, check_ending, write_report
    from vizsla.runs import parse_measures

    for path in report or []:
        check_ending(path)
        console.check_output(path)
    console.one_of("significance test", test, TESTS)
    console.one_of("correction", correction, CORRECTIONS)
    parsed = parse_measures(measures)
    if models or not runs:
        console.check_depth(k, parsed)
    groups = [open_datasets(name, data) for name in datasets]
    chosen = [(member, group.split(split)) for group in groups for member in group.members]
    given = _read_runs(runs or [], [member.name for member, _ in chosen])
    names = split_models(",".join(models)) if models else [] if given else ["bm25"]
    for member, which in chosen:
        member.qrels(which)  # says now what is missing, not after an hour
    comparison = compare(
        chosen, {name: parse_model(name) for name in names}, parsed,
        runs=given, depth=k, convention=convention, test=test, correction=correction,
        cache=Cache(default_folder()) if cache else None, documents=_watched,
        groups={g.name: [m.name for m in g.members] for g in groups if len(g.members) > 1},
    )  # fmt: skip
    if as_json:
        console.print_json(as_data(comparison))
    else:
        _show(comparison)
    built = {name: parse_model(name) for name in names}
    for path in report or []:
        write_report(comparison, path, [d for d, _ in chosen], built, f"{', '.join(comparison.systems)} compared")
        console.remark(f"Written: {path}")


def split_models(text: str) -> list[str]:
    """Models separated by commas; commas inside brackets belong to a model."""
    from vizsla.spec import split_options

    names = split_options(text, ",")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise VizslaError(f"the model {twice!r} is named twice")
    return names


def _read_runs(given: list[str], datasets: list[str]) -> dict[str, dict[str, Run]]:
    """Runs by the names of their systems, then of their data sets."""
    from vizsla.runs import Run

    runs: dict[str, dict[str, Run]] = {}
    for text in given:
        system, dataset, path = named_file(text)
        if not dataset and len(datasets) > 1:
            raise VizslaError(f"which data set is {text!r} a run on? write {system}@{datasets[0]}=FILE")
        if dataset and dataset not in datasets:
            raise UnknownNameError("data set in this comparison", dataset, datasets)
        by_dataset = runs.setdefault(system, {})
        if (dataset or datasets[0]) in by_dataset:
            raise VizslaError(f"two runs on one data set are called {system!r}; write NAME=FILE")
        by_dataset[dataset or datasets[0]] = Run.read(path)
    return runs


def _watched(dataset: BeirDataset) -> Iterable[Document | RawLines]:
    from vizsla.cli.index import watched
    from vizsla.datasets import Source

    return watched([Source.find(dataset.folder)], f"Indexing {dataset.name}")


def _show(c: Comparison) -> None:
    from vizsla.reports import legend, rows
    from vizsla.reports.tables import best_of

    lines = []
    for name, measure, *cells in rows(c):
        shown = [cell_text(cell, "", best) for cell, best in zip(cells, best_of(measure, cells), strict=True)]
        lines.append((name, measure, *shown))
    console.show_table(("data set", "measure", *c.systems), lines, right=c.systems)
    for dataset in c.datasets:
        for system in c.systems:
            remark_facts(f"{system} on {dataset}", c.results[dataset, system].evaluation.facts)
    for note in c.notes:
        console.remark(note)
    reused = sum(r.cached for r in c.results.values())
    kept = f" {reused} of {len(c.results)} runs were kept from before." if reused else ""
    console.remark(legend(c) + kept)


def cell_text(cell: str, more: str, best: bool) -> object:
    """A figure with its mark in colour, and what comes after it."""
    from rich.text import Text

    style = "bold" if best else ""
    mark = cell[-1] if cell[-1] in "+-" else " "
    return Text(cell.rstrip("+-"), style=style).append(mark, style="green" if mark == "+" else "red").append(more)


def remark_facts(name: str, facts: dict[str, int]) -> None:
    """Say what a run lacks or has too much of."""
    parts = []
    if facts.get("missing"):
        parts.append(f"{facts['missing']:,} of {facts['queries']:,} judged queries are not in the run")
    if facts.get("unjudged"):
        parts.append(f"{console.count(facts['unjudged'], 'query')} without judgements left out")
    if facts.get("unknown"):
        parts.append(f"{console.count(facts['unknown'], 'document')} found that the data set does not have")
    if parts:
        console.remark(f"{name}: {'; '.join(parts)}")
