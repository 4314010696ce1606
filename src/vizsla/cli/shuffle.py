"""vizsla shuffle: what a model loses when the words of the questions are shuffled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.compare import Test, split_models
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import QuestionMeasures, QuestionSet, ShuffleEffect


def shuffle(
    questions: Annotated[
        list[str], typer.Argument(help="Files of questions with answers, or data sets by folder or name.")
    ],
    index: Annotated[Path | None, typer.Option("--index", help="The index that is asked.")] = None,
    models: Annotated[
        list[str] | None, typer.Option("--models", "-m", help="Models, separated by commas; else the index's own.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many times words are shuffled.")] = 5,
    run: Annotated[Path | None, typer.Option("--run", help="A TREC run on the questions as they are.")] = None,
    again: Annotated[
        list[Path] | None, typer.Option("--shuffled", help="A TREC run on shuffled questions; may be repeated.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write-questions", help="Write the shuffled questions into this folder, and stop.")
    ] = None,
    measures: Annotated[str, typer.Option("--measures", help="For data sets.")] = "nDCG@10 R@100",
    depths: Annotated[str, typer.Option("--depths", help="For answers: accuracy at which depths.")] = "20,100",
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions.")] = False,
    split: Annotated[str | None, typer.Option("--split", help="Which judgements of a data set.")] = None,
    most: Annotated[int | None, typer.Option("--most", help="Only the first so many questions of each.")] = None,
    test: Test = "t-test",
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Shuffle the words of questions and ask again: does a model follow words, or their order?"""
    from vizsla.evaluation import TESTS, QuestionMeasures, QuestionSet
    from vizsla.runs import parse_measures

    console.one_of("significance test", test, TESTS)
    if seeds < 1:
        raise VizslaError(f"--seeds, how many times words are shuffled, must be 1 or more, not {seeds}")
    if most is not None and most < 1:
        raise VizslaError(f"--most, the number of questions, must be 1 or more, not {most}")
    how = QuestionMeasures(parse_measures(measures), console.parse_depths(depths), regex)
    sets = [QuestionSet.open(source, data, split).first(most) for source in questions]
    names = [asked.name for asked in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VizslaError(f"two sets of questions are called {twice!r}; results go by name, so each needs its own")
    if write is not None:
        _write(sets, write, seeds)
        return
    if (run is None) != (not again):
        raise VizslaError("--run and --shuffled go together: the questions as they are, and shuffled")
    if run is not None and (models or len(sets) > 1):
        raise VizslaError("runs are of one system on one set of questions; leave out models and other questions")
    if run is None and index is None:
        raise VizslaError("name the index to ask by --index, or give --run and --shuffled")
    if run is not None:
        results = _of_runs(sets[0], run, again or [], index, how, test)
    else:
        assert index is not None
        results = _of_models(sets, index, split_models(",".join(models or [])), seeds, how, test)
    if as_json:
        console.print_json({"seeds": len(again or []) or seeds, "test": test, "results": list(map(_as_data, results))})
    else:
        _show(results, sets, len(again or []) or seeds, test)


Results = list[tuple[str, str, "ShuffleEffect"]]
"""The questions, the model, and a figure."""


def _write(sets: list[QuestionSet], folder: Path, seeds: int) -> None:
    from vizsla.evaluation import shuffle_words

    console.check_folder(folder, "what is written")
    if folder.exists() and not folder.is_dir():
        raise VizslaError(f"{folder}: this is a file; shuffled questions go into a folder, one file for each seed")
    folder.mkdir(parents=True, exist_ok=True)
    for asked in sets:
        for seed in range(1, seeds + 1):
            asked.write(folder / f"{asked.name}-shuffled-{seed}.jsonl", shuffle_words(asked.texts, seed))
    files = console.count(seeds * len(sets), "file")
    console.remark(f"{files} written to {folder}; ids are those of the questions as they were")


def _of_runs(
    asked: QuestionSet, run: Path, again: list[Path], index: Path | None, how: QuestionMeasures, test: str
) -> Results:
    from contextlib import ExitStack

    from vizsla.evaluation import compare_shuffled
    from vizsla.index import Index
    from vizsla.runs import Run

    known = asked.qrels.judgements if asked.qrels else asked.texts
    runs = [Run.read(path) for path in (run, *again)]
    for path, read in zip((run, *again), runs, strict=True):
        if not any(q in known for q in read):
            raise VizslaError(f"{path}: the run has none of the questions of {asked.name}")
    with ExitStack() as stack:
        opened = stack.enter_context(Index.open(index)) if index else None
        before, *after = (asked.values(how, retriever=opened, run=read) for read in runs)
    return [(asked.name, run.stem, figure) for figure in compare_shuffled(before, after, test)]


def _of_models(
    sets: list[QuestionSet], folder: Path, models: list[str], seeds: int, how: QuestionMeasures, test: str
) -> Results:
    from vizsla.evaluation import compare_shuffled, shuffle_words
    from vizsla.index import Index
    from vizsla.models import parse_model

    results: Results = []
    with Index.open(folder) as index:
        chosen = {name: parse_model(name) for name in models} or {index.model.name: index.model}
        for asked in sets:
            with console.progress(f"Searching with {asked.name}", len(chosen) * (seeds + 1), "rounds") as advance:
                done = 0
                for name, model in chosen.items():
                    view, values = index.with_model(model), []
                    for texts in (asked.texts, *(shuffle_words(asked.texts, seed) for seed in range(1, seeds + 1))):
                        values.append(asked.values(how, retriever=view, texts=texts))
                        done += 1
                        advance(done, done)
                    results += [(asked.name, name, f) for f in compare_shuffled(values[0], values[1:], test)]
    return results


def _as_data(result: tuple[str, str, ShuffleEffect]) -> dict[str, Any]:
    questions, model, f = result
    return {
        "questions": questions, "model": model, "measure": f.measure, "before": f.before, "after": f.after,
        "by_seed": list(f.by_seed), "difference": f.difference.mean, "p": f.difference.p,
        "wins": f.difference.wins, "ties": f.difference.ties, "losses": f.difference.losses,
    }  # fmt: skip


def _show(results: Results, sets: list[QuestionSet], times: int, test: str) -> None:
    from vizsla.reports.tables import TEST_NAMES

    numbers = ("as asked", "shuffled", "points", *(["by seed"] if times > 1 else []))
    rows = []
    for questions, model, f in results:
        points = [100 * (value - f.before) for value in f.by_seed]
        mark = "*" if f.difference.p < 0.05 else " "
        spread = f"{min(points):+.1f} to {max(points):+.1f}"
        cells = (f"{f.before:.4f}", f"{f.after:.4f}", f"{100 * f.difference.mean:+.1f}{mark}", spread)
        rows.append((questions, model, f.measure, *cells[: len(numbers)]))
    console.show_table(("questions", "model", "measure", *numbers), rows, right=numbers)
    often = "once" if times == 1 else f"{times} times, the mean"
    console.remark(f"Words shuffled {often}; * a difference beyond chance ({TEST_NAMES[test]}, p < 0.05).")
    for asked in sets:
        short = sum(len(text.split()) < 2 for text in asked.texts.values())
        if short:
            have = "has" if short == 1 else "have"
            console.remark(f"{asked.name}: {short:,} of {len(asked.texts):,} questions {have} a single word or none")
