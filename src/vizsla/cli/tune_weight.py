"""The weight of the second of two models, tuned in an index that holds both: for `vizsla tune --index`."""

from __future__ import annotations

from pathlib import Path

from vizsla.cli import console
from vizsla.cli.opening import open_index
from vizsla.cli.tune_parameters import one_measure
from vizsla.errors import VizslaError


def tune_weight(
    location: str, sources: list[str], model: str | None, measure: str | None, weights: str | None, depth: int,
    regex: bool, split: str, limit: int | None, data: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Try weights for the second model of a sum, and print what each gains and which is best."""
    from vizsla.evaluation import QuestionSet, choose_weight
    from vizsla.models import parse_model

    if depth < 1:
        raise VizslaError(f"--depth, how many documents are scored, must be 1 or more, not {depth}")
    sets = [QuestionSet.open(source, data, split).first(limit) for source in sources]
    usual = "nDCG@10" if all(questions.qrels is not None for questions in sets) else "Success@100"
    maximised = one_measure(measure or usual)
    grid = _parse_grid(weights) if weights else None
    with open_index(location) as index:
        both = index.model if model is None else parse_model(model)
        best = choose_weight(index, both, sets, maximised, depth=depth, grid=grid, regex=regex)
    first, second = (part.component.name for part in both.parts)
    if as_json:
        tried = [{"weight": w, str(maximised): value} for w, value in best.tried.items()]
        console.print_json({"models": [first, second], "weight": best.weight, "value": best.value, "tried": tried})
        return
    rows = [(f"{w:g}", f"{value:.4f}", "<" if w == best.weight else "") for w, value in best.tried.items()]
    columns = (f"weight of {second}", str(maximised))
    console.show_table((*columns, ""), rows, right=columns)
    console.line(f"{first} + {best.weight:g} * {second}")
    if best.weight in (min(best.tried), max(best.tried)):
        console.remark("This is at the edge of what was tried; a wider range may be better")


def _parse_grid(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 < w < float("inf") for w in weights):
        raise VizslaError(f"{text!r} are not weights; expected numbers above 0, as in 0.1,0.5,1")
    return weights
