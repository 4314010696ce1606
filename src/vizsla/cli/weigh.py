"""vizsla weigh: how much the second of two models is to count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError


def weigh(
    folder: Annotated[Path, typer.Argument(help="An index that holds both models.", metavar="DIR")],
    questions: Annotated[
        list[str], typer.Argument(help="Files of questions with answers, or data sets by folder or name.")
    ],
    model: Annotated[str | None, typer.Option("--model", "-m", help='The two, as in "minilm + my-lambda".')] = None,
    measure: Annotated[
        str | None, typer.Option("--measure", help="What to make best: Success@100 for answers, else nDCG@10.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", help="How many documents of each model are looked at.")] = 100,
    weights: Annotated[
        str | None, typer.Option("--weights", help="Which to try, separated by commas; else the 19 of SPAR's paper.")
    ] = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions.")] = False,
    split: Annotated[str, typer.Option("--split", help="Which judgements of a data set.")] = "dev",
    most: Annotated[int | None, typer.Option("--most", help="Only the first so many questions of each.")] = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Choose the weight of the second of two models on questions, by ranking anew what either finds."""
    from vizsla.evaluation import QuestionSet, choose_weight
    from vizsla.index import Index
    from vizsla.models import parse_model
    from vizsla.runs import parse_measures

    if depth < 1:
        raise VizslaError(f"--depth, how many documents are looked at, must be 1 or more, not {depth}")
    sets = [QuestionSet.open(source, data, split).first(most) for source in questions]
    usual = "nDCG@10" if all(asked.qrels is not None for asked in sets) else "Success@100"
    chosen, *others = parse_measures(measure or usual)
    if others:
        raise VizslaError("one measure can be made best, not several")
    with Index.open(folder) as index:
        both = index.model if model is None else parse_model(model)
        grid = _grid(weights) if weights else None
        found = choose_weight(index, both, sets, chosen, depth=depth, grid=grid, regex=regex)
    names = [part.component.name for part in both.parts]
    if as_json:
        tried = [{"weight": w, str(chosen): value} for w, value in found.tried.items()]
        console.print_json({"models": names, "weight": found.weight, "value": found.value, "tried": tried})
        return
    rows = [(f"{w:g}", f"{value:.4f}", "<" if w == found.weight else "") for w, value in found.tried.items()]
    console.show_table((f"weight of {names[1]}", str(chosen), ""), rows, right=(f"weight of {names[1]}", str(chosen)))
    console.line(f"{names[0]} + {found.weight:g} * {names[1]}")
    if found.weight in (min(found.tried), max(found.tried)):
        console.remark("This is at the edge of what was tried; more may be gained beyond")


def _grid(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < w < float("inf") for w in found):
        raise VizslaError(f"{text!r} are no weights; expected numbers above 0, as in 0.1,0.5,1")
    return found
