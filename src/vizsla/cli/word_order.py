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
    index: Annotated[str, options.index_option("The index to search.")],
    models: Annotated[list[str] | None, options.several_models("The models; default: that of the index.")] = None,
    shuffles: Annotated[
        int, typer.Option("--shuffles", metavar="N", help="How many times the words are shuffled.")
    ] = 5,
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
    results = _compare(questions, index, split_models(models or []), shuffles, judging, test)
    if as_json:
        console.print_json({"shuffles": shuffles, "test": test, "results": list(map(_as_json, results))})
    else:
        _show(results, questions, shuffles, test)


def _open(sources: list[str], data: Path | None, split: str | None, limit: int | None) -> list[QuestionSet]:
    """Sets of questions with distinct names."""
    from vizsla.evaluation import QuestionSet

    if limit is not None and limit < 1:
        raise VizslaError(f"--limit, the number of questions, must be 1 or more, not {limit}")
    sets = [QuestionSet.open(source, data, split).first(limit) for source in sources]
    names = [questions.name for questions in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VizslaError(f"two sets of questions are called {twice!r}; give each its own name")
    return sets


Results = list[tuple[str, str, "ShuffleEffect"]]
"""For each set of questions, model and measure: the figures before and after."""


def _compare(
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
                        values.append(questions.values(judging, retriever, texts))
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
