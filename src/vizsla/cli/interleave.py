"""vizsla run interleave: every two of several runs interleaved, and how consistent each is with a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.compare import cell_text
from vizsla.cli.options import named_file, read_named
from vizsla.errors import InputError, UnknownNameError, VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import Consistency, Interleaving
    from vizsla.runs import Measure, Qrels, Run


def interleave(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Two or more TREC runs: FILE or NAME=FILE.")],
    qrels: Annotated[str, typer.Option("--qrels", metavar="DATASET", help="A data set, or a file of judgements.")],
    split: options.Split = None,
    measures: Annotated[str, options.measures()] = "RR@10 R@1000",
    k: Annotated[int, options.top_k("How many documents per query interleaved runs have.")] = 1000,
    reference: Annotated[
        str | None,
        typer.Option("--reference", metavar="RUN", help="Consistency with this run; default: the first of the runs."),
    ] = None,
    cutoffs: Annotated[
        str, typer.Option("--cutoffs", metavar="N,...", help="Consistency of the first N documents, for each N.")
    ] = "1,5,10,20,50,100,200,500,1000",
    pool_depth: options.PoolDepth = 1000,
    convention: options.Convention = "anserini",
    test: options.Test = "t-test",
    correction: options.Correction = "holm",
    report: Annotated[list[Path] | None, options.report(".html with a chart, .md, .csv or .json")] = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show which runs complement each other: interleave each pair.

    Each pair of runs is interleaved in both orders and evaluated, which shows whether one finds what the other misses.
    Then, as in the RepBERT paper, the consistency of each run with a reference run.
    """
    from vizsla.evaluation import consistency_of, interleave_all
    from vizsla.runs import parse_measures

    depths = console.parse_depths(cutoffs)
    parsed = parse_measures(measures)
    _check(convention, test, correction, report or [])
    _check_depths(k, pool_depth, parsed)
    named = _read(runs)
    reference_run = _reference(reference, named)
    judged, judgements = _judgements(qrels, split, data)
    interleaving = interleave_all(
        named, judgements, parsed, judged=judged, depth=k, convention=convention, test=test, correction=correction,
    )  # fmt: skip
    on_judged = {name: run.only(judgements.judgements.keys()) for name, run in named.items()}
    consistency = consistency_of(on_judged, *reference_run, depths, pool_depth)
    _present(interleaving.with_consistency(consistency), report or [], as_json)


def _check(convention: str, test: str, correction: str, reports: list[Path]) -> None:
    """Refuse unknown names and reports that cannot be written, before anything is read."""
    from vizsla.evaluation import CONVENTIONS, CORRECTIONS, TESTS
    from vizsla.reports.interleaved import INTERLEAVING_FORMATS

    console.check_name("convention", convention, CONVENTIONS)
    console.check_name("significance test", test, TESTS)
    console.check_name("correction", correction, CORRECTIONS)
    for path in reports:
        INTERLEAVING_FORMATS.check(path)
        console.check_output(path)


def _read(runs: list[str]) -> dict[str, Run]:
    """Two runs or more, by their names."""
    from vizsla.evaluation import check_common_queries

    if len(runs) < 2:
        raise VizslaError("interleaving needs at least two runs")
    named = {name: run for by_name in read_named(runs).values() for name, run in by_name.items()}
    if len(named) < len(runs):
        raise VizslaError("two runs have the same name; write NAME=FILE")
    check_common_queries(named)
    return named


def _check_depths(k: int, pool_depth: int, measures: list[Measure]) -> None:
    if pool_depth < 1:
        raise VizslaError(f"--pool-depth, the depth of the reference run, must be 1 or more, not {pool_depth}")
    if k < 1:
        raise VizslaError(f"-k, the depth of interleaved runs, must be 1 or more, not {k}")
    deeper = next((m for m in measures if m.cutoff and m.cutoff > k), None)
    if deeper is not None:
        raise VizslaError(f"{deeper} needs more than the {k} documents of interleaved runs; give a larger -k")


def _reference(given: str | None, runs: dict[str, Run]) -> tuple[str, Run]:
    """The reference run of consistency: one of the runs, or another one from a file."""
    from vizsla.runs import Run

    if given is None:
        return next(iter(runs.items()))
    if given in runs:
        return given, runs[given]
    if "=" not in given and not Path(given).exists():
        raise UnknownNameError("run or file", given, tuple(runs))
    name, _, path = named_file(given)
    if name in runs:
        raise VizslaError(f"two runs are called {name!r}; write --reference NAME=FILE")
    return name, Run.read(path)


def _judgements(source: str, split: str | None, data: Path | None) -> tuple[str, Qrels]:
    """The name of what judges, a data set or a file, and the judgements."""
    from vizsla.evaluation import QuestionSet
    from vizsla.runs import Qrels

    path = Path(source)
    if path.is_file():
        if split is not None:
            raise VizslaError("--split is for a data set; a file of judgements has no splits")
        read = Qrels.read(path)
        if not read.judgements:
            raise InputError("there are no judgements here", file=source)
        return path.name, read
    opened = QuestionSet.open(source, data, split)
    assert opened.qrels is not None
    return opened.name, opened.qrels


def _present(interleaving: Interleaving, reports: list[Path], as_json: bool) -> None:
    """Print the findings, and write them to reports."""
    from vizsla.reports.interleaved import INTERLEAVING_FORMATS, interleaved_data

    if as_json:
        console.print_json(interleaved_data(interleaving))
    else:
        _show(interleaving)
    for path in reports:
        INTERLEAVING_FORMATS.write(interleaving, path)
        console.remark(f"Written: {path}")


def _show(interleaving: Interleaving) -> None:
    from vizsla.reports.interleaved import consistency_legend, interleaved_legend, interleaved_rows

    seconds = [f"+ {name}" for name in interleaving.names]
    for measure in interleaving.measures:
        rows = [
            (first, *(cell_text(*_split(cell), best) for cell, best in zip(cells, bests, strict=True)))
            for first, cells, bests in interleaved_rows(interleaving, measure)
        ]
        console.show_table((measure, *seconds), rows, right=seconds)
        console.line()
    console.remark(interleaved_legend(interleaving))
    assert interleaving.consistency is not None
    console.line()
    _show_consistency(interleaving.consistency)
    console.remark(consistency_legend(interleaving.consistency))


def _split(cell: str) -> tuple[str, str]:
    """A figure with its mark, and its gain in a column of even width."""
    figure, _, gain = cell.partition(" ")
    return figure, f"{gain:>8}"


def _show_consistency(c: Consistency) -> None:
    names = [str(n) for n in c.depths]
    rows = [(run, f"{c.queries[run]:,}", *(f"{v:.3f}" for v in curve.values())) for run, curve in c.curves.items()]
    console.show_table((f"C(n) with {c.reference}", "queries", *names), rows, right=("queries", *names))
