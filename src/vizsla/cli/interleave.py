"""vizsla interleave: every two of several runs taking turns, and how consistent each is with a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console
from vizsla.cli.compare import Correction, Test, cell_text
from vizsla.cli.datasets import Data
from vizsla.cli.named import named_file, read_named
from vizsla.errors import InputError, UnknownNameError, VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import Consistency, Interleaving
    from vizsla.runs import Measure, Qrels, Run

BY_JUDGEMENTS, BY_ANSWERS = "RR@10 R@1000", "Success@20 Success@100"


def interleave(
    runs: Annotated[list[str], typer.Argument(help="TREC runs, two or more: FILE or NAME=FILE.")],
    qrels: Annotated[
        str | None, typer.Option("--qrels", help="A data set by folder or name, or a file of judgements.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which judgements of a data set.")] = None,
    questions: Annotated[
        Path | None, typer.Option("--questions", help="Questions with answers instead of judgements; needs --index.")
    ] = None,
    index: Annotated[Path | None, typer.Option("--index", help="An index with the texts to find answers in.")] = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions.")] = False,
    measures: Annotated[
        str | None, typer.Option("--measures", help=f"{BY_JUDGEMENTS}, or by answers {BY_ANSWERS}, if not told.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How deep interleaved runs are.")] = 1000,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="Consistency with what: one of the runs (else the first), or a run."),
    ] = None,
    depths: Annotated[
        str, typer.Option("--depths", help="Consistency: of how many documents.")
    ] = "1,5,10,20,50,100,200,500,1000",
    pool: Annotated[int, typer.Option("--pool", help="Consistency: how much of the reference counts.")] = 1000,
    convention: Annotated[
        str | None, typer.Option("--convention", help="How figures are made: anserini, beir or trec (for answers).")
    ] = None,
    test: Test = "t-test",
    correction: Correction = "holm",
    report: Annotated[
        list[Path] | None, typer.Option("--report", help="Write it: .html with a chart, .md, .csv, .json.")
    ] = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Interleave every two of several runs, in both orders; and RepBERT's consistency with a reference run."""
    from vizsla.evaluation import ANSWER_CONVENTION, CONVENTIONS, CORRECTIONS, TESTS, consistency_of, interleave_all
    from vizsla.reports.interleaved import INTERLEAVING_FORMATS, interleaved_data
    from vizsla.runs import parse_measures

    how = convention or (ANSWER_CONVENTION if questions else "anserini")
    console.one_of("convention", how, CONVENTIONS)
    console.one_of("significance test", test, TESTS)
    console.one_of("correction", correction, CORRECTIONS)
    cuts = console.parse_depths(depths)
    for path in report or []:
        INTERLEAVING_FORMATS.check(path)
        console.check_output(path)
    parsed = parse_measures(measures or (BY_ANSWERS if questions else BY_JUDGEMENTS))
    _check_depths(k, pool, parsed)
    if (qrels is None) == (questions is None):
        raise VizslaError("give --qrels, a data set or a file of judgements, or else --questions with answers")
    named = _read(runs)
    pool_name, pool_run = _reference(reference, named)
    if qrels is not None:
        judged, judgements = _judgements(qrels, split, data)
    else:
        assert questions is not None
        judged, judgements = _by_answers(questions, index, list(named.values()), parsed, regex=regex)
    found = interleave_all(
        named, judgements, parsed, judged=judged, depth=k, convention=how, test=test, correction=correction,
    )  # fmt: skip
    asked = {name: run.only(judgements.judgements.keys()) for name, run in named.items()}
    found = found.with_consistency(consistency_of(asked, pool_name, pool_run, cuts, pool))
    if as_json:
        console.print_json(interleaved_data(found))
    else:
        _show(found)
    for path in report or []:
        INTERLEAVING_FORMATS.write(found, path)
        console.remark(f"Written: {path}")


def _read(runs: list[str]) -> dict[str, Run]:
    """Two runs or more, by their names."""
    from vizsla.evaluation import check_common_queries

    if len(runs) < 2:
        raise VizslaError("there must be two runs at least")
    named = {name: run for by_name in read_named(runs).values() for name, run in by_name.items()}
    if len(named) < len(runs):
        raise VizslaError("two runs have one name; write NAME=FILE")
    check_common_queries(named)
    return named


def _check_depths(k: int, pool: int, measures: list[Measure]) -> None:
    if pool < 1:
        raise VizslaError(f"--pool, how much of the reference counts, must be 1 or more, not {pool}")
    if k < 1:
        raise VizslaError(f"-k, how deep interleaved runs are, must be 1 or more, not {k}")
    deeper = next((m for m in measures if m.cutoff and m.cutoff > k), None)
    if deeper is not None:
        raise VizslaError(f"{deeper} looks deeper than interleaved runs are, {k}; give a larger -k")


def _reference(given: str | None, runs: dict[str, Run]) -> tuple[str, Run]:
    """The run that consistency is measured with: one of the runs, or one more from a file."""
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
    from vizsla.evaluation import QuestionSet
    from vizsla.runs import Qrels

    path = Path(source)
    if path.is_file():
        if split is not None:
            raise VizslaError("--split is for a data set; a file of judgements has none")
        read = Qrels.read(path)
        if not read.judgements:
            raise InputError("there are no judgements here", file=source)
        return path.name, read
    opened = QuestionSet.open(source, data, split)
    assert opened.qrels is not None
    return opened.name, opened.qrels


def _by_answers(
    questions: Path, index: Path | None, runs: list[Run], measures: list[Measure], *, regex: bool
) -> tuple[str, Qrels]:
    from vizsla.datasets import read_questions
    from vizsla.evaluation import answer_qrels
    from vizsla.index import Index

    if index is None:
        raise VizslaError("answers are looked for in the texts of an index; name it by --index")
    _, answers = read_questions(questions)
    with Index.open(index) as opened:
        deepest = max(m.cutoff or 1000 for m in measures)
        return questions.name, answer_qrels(opened, runs, answers, deepest, regex=regex)


def _show(found: Interleaving) -> None:
    from vizsla.reports.interleaved import consistency_legend, interleaved_legend, interleaved_rows

    seconds = [f"+ {name}" for name in found.names]
    for measure in found.measures:
        rows = [
            (first, *(cell_text(*_split(cell), best) for cell, best in zip(cells, bests, strict=True)))
            for first, cells, bests in interleaved_rows(found, measure)
        ]
        console.show_table((measure, *seconds), rows, right=seconds)
        console.line()
    console.remark(interleaved_legend(found))
    assert found.consistency is not None
    console.line()
    _show_consistency(found.consistency)
    console.remark(consistency_legend(found.consistency))


def _split(cell: str) -> tuple[str, str]:
    """A figure with its mark, and its gain in a column of even width."""
    figure, _, gain = cell.partition(" ")
    return figure, f"{gain:>8}"


def _show_consistency(c: Consistency) -> None:
    from vizsla.cli.chart import show_curves

    names = [str(n) for n in c.depths]
    rows = [(run, f"{c.queries[run]:,}", *(f"{v:.3f}" for v in curve.values())) for run, curve in c.curves.items()]
    console.show_table((f"C(n) with {c.reference}", "queries", *names), rows, right=("queries", *names))
    console.line()
    show_curves({run: list(curve.values()) for run, curve in c.curves.items()}, names, "C(n) over n")
