"""vizsla compare: systems side by side, with significance, as a table or a report."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.models import split_models
from vizsla.cli.options import named_file, open_retriever
from vizsla.errors import UnknownNameError, VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import Comparison
    from vizsla.runs import Retriever, Run


def compare(
    datasets: options.Datasets,
    models: Annotated[list[str] | None, options.several_models("The models; the first is the baseline.")] = None,
    indexes: Annotated[
        list[str] | None,
        options.index_option("An existing index: NAME=INDEX, or NAME@DATASET=INDEX; repeatable."),
    ] = None,
    runs: Annotated[list[str] | None, options.run("A TREC run of any system: NAME=FILE, or NAME@DATASET=FILE.")] = None,
    split: options.Split = None,
    measures: Annotated[str, options.measures()] = "nDCG@10 R@100",
    report: Annotated[list[Path] | None, options.report(".html, .md, .csv, .tex or .json")] = None,
    convention: options.Convention = "anserini",
    test: options.Test = "t-test",
    correction: options.Correction = "holm",
    data: options.Data = None,
    k: Annotated[int, options.top_k("How many documents per query are retrieved.")] = 1000,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse the runs of earlier comparisons.")] = True,
    as_json: options.Json = False,
) -> None:
    """Compare models, indexes and runs, with significance tests.

    Runs of models are cached, so that nothing is searched twice.
    """
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import CORRECTIONS, TESTS, Cache, compare, default_folder
    from vizsla.models import parse_model
    from vizsla.reports import as_data, check_ending, write_report
    from vizsla.runs import parse_measures

    for path in report or []:
        check_ending(path)
        console.check_output(path)
    console.check_name("significance test", test, TESTS)
    console.check_name("correction", correction, CORRECTIONS)
    parsed = parse_measures(measures)
    if models or indexes or not runs:
        console.check_depth(k, parsed)
    groups = [open_datasets(name, data) for name in datasets]
    chosen = [(member, group.split(split)) for group in groups for member in group.members]
    searched = [member.name for member, _ in chosen]
    given = _read_runs(runs or [], searched)
    names = split_models(models) if models else [] if given or indexes else ["bm25"]
    for member, which in chosen:
        member.qrels(which)  # a missing file is reported now, not after an hour
    parsed_models = {name: parse_model(name) for name in names}
    with ExitStack() as opened:
        retrievers = _open_indexes(indexes or [], searched, opened)
        comparison = compare(
            chosen, parsed_models, parsed, retrievers=retrievers,
            runs=given, depth=k, convention=convention, test=test, correction=correction,
            cache=Cache(default_folder()) if cache else None, documents=options.dataset_documents,
            groups={g.name: [m.name for m in g.members] for g in groups if len(g.members) > 1},
        )  # fmt: skip
    if as_json:
        console.print_json(as_data(comparison))
    else:
        _show(comparison)
    for path in report or []:
        write_report(
            comparison, path, [d for d, _ in chosen], parsed_models, f"{', '.join(comparison.systems)} compared"
        )
        console.remark(f"Written: {path}")


def _read_runs(given: list[str], datasets: list[str]) -> dict[str, dict[str, Run]]:
    """Runs by system, then by data set."""
    from vizsla.runs import Run

    runs: dict[str, dict[str, Run]] = {}
    for text in given:
        system, dataset, path = named_file(text)
        dataset = _dataset(dataset, datasets, f"is {text!r} a run on? write {system}@{datasets[0]}=FILE")
        by_dataset = runs.setdefault(system, {})
        if dataset in by_dataset:
            raise VizslaError(f"two runs on one data set are called {system!r}; write NAME=FILE")
        by_dataset[dataset] = Run.read(path)
    return runs


def _dataset(named: str, datasets: list[str], question: str) -> str:
    """The data set that is named, which may be left out if there is only one."""
    if not named and len(datasets) > 1:
        raise VizslaError(f"which data set {question}")
    if named and named not in datasets:
        raise UnknownNameError("data set in this comparison", named, datasets)
    return named or datasets[0]


def _open_indexes(given: list[str], datasets: list[str], opened: ExitStack) -> dict[str, dict[str, Retriever]]:
    """Indexes by system, then by data set; `opened` closes them."""
    found: dict[str, dict[str, Retriever]] = {}
    for text in given:
        name, equals, location = text.partition("=")
        system, _, dataset = name.partition("@")
        if not equals or not system or not location:
            raise VizslaError(f"--index is written as NAME=INDEX, not {text!r}")
        dataset = _dataset(dataset, datasets, f"is {text!r} an index of? write {system}@{datasets[0]}=INDEX")
        by_dataset = found.setdefault(system, {})
        if dataset in by_dataset:
            raise VizslaError(f"two indexes of one data set are called {system!r}; give each its own name")
        by_dataset[dataset] = opened.enter_context(open_retriever(location))
    return found


def _show(c: Comparison) -> None:
    from vizsla.reports import legend, rows
    from vizsla.reports.tables import best_of, summary_legend, summary_rows

    lines: list[tuple[object, ...]] = []
    for name, measure, *cells in rows(c):
        shown = [cell_text(cell, "", best) for cell, best in zip(cells, best_of(measure, cells), strict=True)]
        lines.append((name, measure, *shown))
    lines += [(name, measure, *(f"{cell} " for cell in cells)) for name, measure, *cells in summary_rows(c)]
    console.show_table(("data set", "measure", *c.systems), lines, right=c.systems)
    for dataset in c.datasets:
        for system in (s for s in c.systems if c.has(dataset, s)):
            remark_facts(f"{system} on {dataset}", c.results[dataset, system].evaluation.facts)
    for note in c.notes:
        console.remark(note)
    reused = sum(r.cached for r in c.results.values())
    kept = f" {reused} of {len(c.results)} runs were kept from before." if reused else ""
    console.remark(" ".join(filter(None, (legend(c), summary_legend(c)))) + kept)


def cell_text(cell: str, more: str, best: bool) -> object:
    """A figure with its mark of significance in colour, and more text after it."""
    from rich.text import Text

    style = "bold" if best else ""
    mark = cell[-1] if cell[-1] in "+-" else " "
    return Text(cell.rstrip("+-"), style=style).append(mark, style="green" if mark == "+" else "red").append(more)


def remark_facts(name: str, facts: dict[str, int]) -> None:
    """Say which judged queries a run lacks, and which of its queries and documents are unknown."""
    parts = []
    if facts.get("missing"):
        parts.append(f"{facts['missing']:,} of {facts['queries']:,} judged queries are not in the run")
    if facts.get("unjudged"):
        parts.append(f"{console.count(facts['unjudged'], 'query')} without judgements left out")
    if facts.get("unknown"):
        parts.append(f"{console.count(facts['unknown'], 'document')} found that the data set does not have")
    if parts:
        console.remark(f"{name}: {'; '.join(parts)}")
