"""Settings chosen on a dev split: k1, b, the weights of fields and sums; one index serves them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.retrieval import answer
from vizsla.index import Index
from vizsla.models import BM25, Model, Part, Sum
from vizsla.numbers import short
from vizsla.runs import Fusion, Measure, Qrels, Run

MOST_COMBINATIONS = 150  # beyond, one setting at a time is varied until nothing gets better
MOST_VALUES = 10_000
DEFAULTS = {
    "k1": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.4, 3.0),
    "b": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9),
    "weight": (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0),
}
_OPTIONS = ("k1", "b", "delta", "weight")
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Setting:
    """What may be varied and the values to try.

    `k1`, `b`, `delta` of all parts of a model, or of one by its namespace (`title.k1`); `title.weight`.

    >>> Setting.parse("k1=0.6:1.2:0.3"), Setting.parse("title.weight=0.5,1").values
    (Setting(name='k1', values=(0.6, 0.9, 1.2)), (0.5, 1.0))
    """

    name: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Setting:
        name, equals, values = (part.strip() for part in text.partition("="))
        try:
            if match := re.fullmatch(r"([\d.]+):([\d.]+):([\d.]+)", values):
                low, high, step = map(float, match.groups())
                count = (high - low) / step + 1 + 1e-9 if step > 0 and high >= low else 0
                if count > MOST_VALUES:
                    raise VizslaError(f"{short(text)} are too many values to try; {MOST_VALUES:,} at most are")
                found = tuple(round(low + i * step, 10) for i in range(int(count)))
            else:
                found = tuple(float(v) for v in values.split(",")) if equals else ()
        except ValueError:
            found = ()
        if not name or not found:
            raise VizslaError(f"{short(text)} is no setting; expected name=first:last:step or name=value,value")
        return cls(name, found)


def tunable_parameters(model: Model) -> list[Setting]:
    """What is worth varying in a model: k1 and b, and in a sum the weights of all parts but the first."""
    weights = [Setting(f"{p.component.namespace}.weight", DEFAULTS["weight"]) for p in model.parts[1:]]
    counted = any(isinstance(p.component, BM25) for p in model.parts)
    return [*(Setting(name, DEFAULTS[name]) for name in ("k1", "b") if counted), *weights]


def with_parameter(model: Model, name: str, value: float) -> Model:
    """The model with something set.

    >>> with_parameter(BM25(), "k1", 1.5).parts[0].component.k1
    1.5
    """
    namespace, dot, option = name.rpartition(".")
    if dot and namespace not in model.namespaces:
        raise UnknownNameError("part of the model", namespace, model.namespaces)
    if option == "weight" and not dot:
        raise VizslaError("a weight belongs to a part; write its namespace first, as in title.weight")
    if option not in _OPTIONS:
        raise UnknownNameError("setting", option, _OPTIONS)
    meant = [p for p in model.parts if not dot or p.component.namespace == namespace]
    if option != "weight" and not any(isinstance(p.component, BM25) for p in meant):
        raise VizslaError(f"no part of {model.name!r} that is meant has a {option}")
    parts = []
    for part in model.parts:
        if part in meant and option == "weight":
            parts.append(Part(value, part.component))
        elif part in meant and isinstance(part.component, BM25):
            changed: dict[str, Any] = {option: value}
            parts.append(Part(part.weight, replace(part.component, **changed)))
        else:
            parts.append(part)
    return parts[0].component if len(parts) == 1 and parts[0].weight == 1 else Sum(tuple(parts), model.name)


@dataclass(frozen=True)
class Tuned:
    """What came out: the best settings, the model with them, and all that was tried."""

    model: Model
    settings: dict[str, float]
    value: float
    before: float
    tried: tuple[tuple[dict[str, float], float], ...]


def tune(
    index: Index,
    model: Model,
    queries: Mapping[str, str],
    qrels: Qrels,
    measure: Measure,
    settings: Sequence[Setting],
    progress: Progress = lambda _: None,
) -> Tuned:
    """Try settings on an index that holds what the model needs; of equals the one tried first is taken.

    All combinations if they are few, else one setting after the other until nothing gets better.
    """
    if measure.name in ("Hole", "Judged"):
        raise VizslaError(f"{measure} says nothing of quality, so there is nothing to make best")
    depth = measure.cutoff or 1000
    tried: dict[tuple[float, ...], float] = {}

    def value_of(values: tuple[float, ...]) -> float:
        if values not in tried:
            run = answer(index, queries, depth, _with_all(model, settings, values))
            tried[values] = evaluate(run, qrels, [measure]).measures[str(measure)]
            progress(len(tried))
        return tried[values]

    before = evaluate(answer(index, queries, depth, model), qrels, [measure]).measures[str(measure)]
    start = tuple(_nearest(model, s) for s in settings)
    if prod(len(s.values) for s in settings) <= MOST_COMBINATIONS:
        best = max(product(*(s.values for s in settings)), key=value_of)
    else:
        best = _ascend(start, settings, value_of)
    names = [s.name for s in settings]
    listed = tuple((dict(zip(names, values, strict=True)), found) for values, found in tried.items())
    if tried[best] < before:  # nothing on the grid is as good as what was there
        return Tuned(model, {}, before, before, listed)
    return Tuned(_with_all(model, settings, best), dict(zip(names, best, strict=True)), tried[best], before, listed)


def _nearest(model: Model, setting: Setting) -> float:
    """The value to begin with: of those to try the one nearest to the model's own."""
    namespace, dot, option = setting.name.rpartition(".")
    meant = next((p for p in model.parts if not dot or p.component.namespace == namespace), model.parts[0])
    own = meant.weight if option == "weight" else getattr(meant.component, option, None) or 0.0
    return min(setting.values, key=lambda v: abs(v - own))


def _with_all(model: Model, settings: Sequence[Setting], values: Sequence[float]) -> Model:
    for setting, value in zip(settings, values, strict=True):
        model = with_parameter(model, setting.name, value)
    return model


def _ascend(
    start: tuple[float, ...], settings: Sequence[Setting], value_of: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Coordinate ascent on the grid."""
    best = start
    while True:
        before = best
        for i, setting in enumerate(settings):
            others = ((*best[:i], v, *best[i + 1 :]) for v in setting.values)
            best = max([best, *others], key=value_of)  # of equals the one there was
        if best == before:
            return best


def tune_fusion(
    runs: Sequence[Run], qrels: Qrels, measure: Measure, fusion: Fusion, weights: Sequence[float] = DEFAULTS["weight"]
) -> tuple[tuple[float, ...], float]:
    """The weights of runs, the first one's being 1, with which their fusion does best on judged queries.

    One weight after the other is varied, from equal ones on, until nothing gets better.
    """
    known = [run.only(qrels.judgements.keys()) for run in runs]
    tried: dict[tuple[float, ...], float] = {}

    def value_of(rest: tuple[float, ...]) -> float:
        if rest not in tried:
            fused = fusion.fuse(known, (1.0, *rest), measure.cutoff or 1000)
            tried[rest] = evaluate(fused, qrels, [measure]).measures[str(measure)]
        return tried[rest]

    settings = [Setting(f"{i}", tuple(weights)) for i in range(1, len(runs))]
    best = _ascend((1.0,) * len(settings), settings, value_of)
    return (1.0, *best), tried[best]
