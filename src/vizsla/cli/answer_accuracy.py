"""Answer accuracy, for `vizsla eval`: how many questions find a document that contains an answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.cli import console
from vizsla.cli.models import split_models
from vizsla.cli.opening import SearchChoices, open_retriever, searched_with
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.runs import Measure, Retriever, Run

DEFAULT = "Acc@5 Acc@20 Acc@100"
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


def evaluate_answers(
    location: str | None, files: Sequence[Path], models: list[str], run: Path | None, measures: str | None,
    regex: bool, limit: int | None, search_options: SearchChoices, as_json: bool,
) -> None:  # fmt: skip
    """Print the share of questions with an answer in the top k, for each file and model.

    `search_options`: how the index is searched, as `searched_with` takes it.
    """
    from vizsla.runs import Run

    if location is None:
        raise VizslaError("answers are searched for in the texts of an index; name it with --index INDEX")
    if limit is not None and limit < 1:
        raise VizslaError(f"--limit, the number of questions, must be 1 or more, not {limit}")
    judged, cutoffs = split_measures(measures or DEFAULT)
    if judged:
        raise VizslaError(f"{judged[0]} needs judgements; questions with answers are measured by Acc@k, as in Acc@20")
    if run is not None and models:
        raise VizslaError("give --run or --model, not both")
    given = Run.read(run) if run else None
    results: list[dict[str, Any]] = []
    with open_retriever(location) as opened:
        systems = {name: searched_with(opened, model=name, **search_options) for name in split_models(models)}
        if not systems:
            systems = {run.name if run else opened.name: searched_with(opened, **search_options)}
        for file in files:
            results += _evaluate_file(file, systems, given, cutoffs, regex=regex, limit=limit)
    if as_json:
        console.print_json({"index": str(location), "results": results})
    else:
        _show(results, cutoffs, with_models=bool(models))


def _evaluate_file(
    file: Path, systems: dict[str, Retriever], run: Run | None, cutoffs: list[int], *,
    regex: bool, limit: int | None,
) -> list[dict[str, Any]]:  # fmt: skip
    from vizsla.datasets import read_questions
    from vizsla.evaluation import answer_accuracy

    texts, answers = read_questions(file)
    questions = dict(list(texts.items())[:limit])
    results = []
    for name, retriever in systems.items():
        with console.progress(f"Matching {file.name}", len(questions), "questions") as advance:
            figures = answer_accuracy(retriever, questions, answers, cutoffs, run=run, regex=regex, progress=advance)
        results.append({"file": file.name, "model": name, "questions": len(questions), "accuracy": figures})
    return results


def _show(results: list[dict[str, Any]], cutoffs: list[int], *, with_models: bool) -> None:
    names = [f"Acc@{k}" for k in cutoffs]
    rows = []
    for r in results:
        figures = (f"{r['accuracy'][name]:.4f}" for name in names)
        rows.append((r["file"], *([r["model"]] if with_models else []), f"{r['questions']:,}", *figures))
    columns = ("questions", *(["model"] if with_models else []), "count", *names)
    console.show_table(columns, rows, right=("count", *names))
