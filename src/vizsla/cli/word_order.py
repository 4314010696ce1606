"""vizsla run word-order: what a model loses when the words of the questions are shuffled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.evaluate import split_measures
from vizsla.cli.models import split_models
from vizsla.cli.options import open_retriever, searched_with
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import QuestionMeasures, QuestionSet, ShuffleEffect


def word_order(
    sets: options.QuestionSets,
    index: Annotated[str | None, options.index_option("The index to search.")] = None,
    models: Annotated[list[str] | None, options.several_models("The models; default: that of the index.")] = None,
    shuffles: Annotated[
        int, typer.Option("--shuffles", metavar="N", help="How many times the words are shuffled.")
    ] = 5,
    run: Annotated[Path | None, options.run("Instead of --index: a TREC run on the original questions.")] = None,
    shuffled_runs: Annotated[
        list[Path] | None,
        typer.Option("--shuffled-run", metavar="FILE", help="With --run: a TREC run on shuffled questions. Repeat it."),
    ] = None,
    output: Annotated[Path | None, options.output("Write the shuffled questions to this folder, and stop.")] = None,
    measures: Annotated[
        str, options.measures("For data sets, measures as in ir_measures; for answers, Acc@k.")
    ] = "nDCG@10 R@100 Acc@20 Acc@100",
    regex: options.Regex = False,
    split: options.Split = None,
    limit: options.Limit = None,
    test: options.Test = "t-test",
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Does a model use word order? Shuffle the words and see.

    The words of each question are shuffled, and results on shuffled questions are compared with those on the original
    ones.
    """
    from vizsla.evaluation import TESTS, QuestionMeasures

    console.check_name("significance test", test, TESTS)
    if shuffles < 1:
        raise VizslaError(f"--shuffles, how many times words are shuffled, must be 1 or more, not {shuffles}")
    judging = QuestionMeasures(*split_measures(measures), regex)
    questions = _open(sets, data, split, limit)
    if output is not None:
        _write(questions, output, shuffles)
        return
    if (run is None) != (not shuffled_runs):
        raise VizslaError("--run and --shuffled-run go together: the original questions, and shuffled ones")
    if run is not None and (models or len(questions) > 1):
        raise VizslaError("runs are of one system on one set of questions; leave out --model and other questions")
    if run is not None:
        results = _of_runs(questions[0], run, shuffled_runs or [], index, judging, test)
    elif index is None:
        raise VizslaError("name the index to search with --index, or give --run and --shuffled-run")
    else:
        results = _of_models(questions, index, split_models(models or []), shuffles, judging, test)
    times = len(shuffled_runs or []) or shuffles
    if as_json:
        console.print_json({"shuffles": times, "test": test, "results": list(map(_as_json, results))})
    else:
        _show(results, questions, times, test)


def _open(sources: list[str], data: Path | None, split: str | None, limit: int | None) -> list[QuestionSet]:
    """Sets of questions, no two of one name."""
    from vizsla.evaluation import QuestionSet

    if limit is not None and limit < 1:
        raise VizslaError(f"--limit, the number of questions, must be 1 or more, not {limit}")
    sets = [QuestionSet.open(source, data, split).first(limit) for source in sources]
    names = [questions.name for questions in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VizslaError(f"two sets of questions are called {twice!r}; results go by name, so each needs its own")
    return sets


Results = list[tuple[str, str, "ShuffleEffect"]]
"""For each set of questions, model and measure: the figures before and after."""


def _write(sets: list[QuestionSet], folder: Path, shuffles: int) -> None:
    """Write a file for each set of questions and each shuffle."""
    from vizsla.evaluation import shuffle_words

    console.check_folder(folder, "the output")
    if folder.exists() and not folder.is_dir():
        raise VizslaError(f"{folder}: this is a file; shuffled questions go into a folder, one file for each shuffle")
    folder.mkdir(parents=True, exist_ok=True)
    for questions in sets:
        for seed in range(1, shuffles + 1):
            questions.write(folder / f"{questions.name}-shuffled-{seed}.jsonl", shuffle_words(questions.texts, seed))
    files = console.count(shuffles * len(sets), "file")
    console.remark(f"{files} written to {folder}; ids are those of the original questions")


def _of_runs(
    questions: QuestionSet,
    run: Path,
    shuffled_runs: list[Path],
    location: str | None,
    judging: QuestionMeasures,
    test: str,
) -> Results:
    """Figures of a run on the original questions and of runs on shuffled ones."""
    from contextlib import ExitStack

    from vizsla.evaluation import compare_shuffled
    from vizsla.runs import Run

    known = questions.qrels.judgements if questions.qrels else questions.texts
    runs = [Run.read(path) for path in (run, *shuffled_runs)]
    for path, read in zip((run, *shuffled_runs), runs, strict=True):
        if not any(q in known for q in read):
            raise VizslaError(f"{path}: the run has none of the questions of {questions.name}")
    with ExitStack() as stack:
        opened = stack.enter_context(open_retriever(location)) if location else None
        before, *after = (questions.values(judging, retriever=opened, run=read) for read in runs)
    return [(questions.name, run.stem, figure) for figure in compare_shuffled(before, after, test)]


def _of_models(
    sets: list[QuestionSet], location: str, models: list[str], shuffles: int, judging: QuestionMeasures, test: str
) -> Results:
    """Figures of models on the original questions and on shuffled ones."""
    from vizsla.evaluation import compare_shuffled, shuffle_words

    results: Results = []
    with open_retriever(location) as opened:
        chosen = {name: searched_with(opened, model=name) for name in models} or {opened.name: opened}
        for questions in sets:
            rounds = len(chosen) * (shuffles + 1)
            with console.progress(f"Searching with {questions.name}", rounds, "rounds") as advance:
                done = 0
                for name, retriever in chosen.items():
                    values = []
                    seeds = range(1, shuffles + 1)
                    for texts in (questions.texts, *(shuffle_words(questions.texts, seed) for seed in seeds)):
                        values.append(questions.values(judging, retriever=retriever, texts=texts))
                        done += 1
                        advance(done, done)
                    results += [(questions.name, name, f) for f in compare_shuffled(values[0], values[1:], test)]
    return results


def _as_json(result: tuple[str, str, ShuffleEffect]) -> dict[str, Any]:
    questions, model, f = result
    return {
        "questions": questions, "model": model, "measure": f.measure, "before": f.before, "after": f.after,
        "by_shuffle": list(f.by_seed), "difference": f.difference.mean, "p": f.difference.p,
        "wins": f.difference.wins, "ties": f.difference.ties, "losses": f.difference.losses,
    }  # fmt: skip


def _show(results: Results, sets: list[QuestionSet], times: int, test: str) -> None:
    from vizsla.reports.tables import TEST_NAMES

    numbers = ("original", "shuffled", "points", *(["range"] if times > 1 else []))
    rows = []
    for name, model, f in results:
        points = [100 * (value - f.before) for value in f.by_seed]
        mark = "*" if f.difference.p < 0.05 else " "
        spread = f"{min(points):+.1f} to {max(points):+.1f}"
        cells = (f"{f.before:.4f}", f"{f.after:.4f}", f"{100 * f.difference.mean:+.1f}{mark}", spread)
        rows.append((name, model, f.measure, *cells[: len(numbers)]))
    console.show_table(("questions", "model", "measure", *numbers), rows, right=numbers)
    often = "once" if times == 1 else f"{times} times, the mean"
    console.remark(f"Words shuffled {often}; * a significant difference ({TEST_NAMES[test]}, p < 0.05).")
    for questions in sets:
        short = sum(len(text.split()) < 2 for text in questions.texts.values())
        if short:
            have = "has" if short == 1 else "have"
            console.remark(
                f"{questions.name}: {short:,} of {len(questions.texts):,} questions {have} fewer than two words"
            )
