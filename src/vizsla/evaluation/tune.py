"""Settings chosen on a dev split: k1, b, the weights of fields and sums; one index serves them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.systems import answer
from vizsla.index import Index
from vizsla.models import BM25, Model, Part, Sum
from vizsla.runs import Fusion, Measure, Qrels, Run

MOST_COMBINATIONS = 150  # beyond, one setting at a time is varied until nothing gets better
DEFAULTS = {
    "k1": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.4, 3.0),
    "b": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9),
    "weight": (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0),
}
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
                count = round((high - low) / step) + 1 if step > 0 else 0
                found = tuple(round(low + i * step, 10) for i in range(count))
            else:
                found = tuple(float(v) for v in values.split(",")) if equals else ()
        except ValueError:
            found = ()
        if not name or not found:
            raise VizslaError(f"{text!r} is no setting; expected name=first:last:step or name=value,value")
        return cls(name, found)


def settings_of(model: Model) -> list[Setting]:
    """What is worth varying in a model: k1 and b, and in a sum the weights of all parts but the first."""
    weights = [Setting(f"{p.component.namespace}.weight", DEFAULTS["weight"]) for p in model.parts[1:]]
    return [Setting("k1", DEFAULTS["k1"]), Setting("b", DEFAULTS["b"]), *weights]


def with_setting(model: Model, name: str, value: float) -> Model:
    """The model with something set.

    >>> with_setting(BM25(), "k1", 1.5).parts[0].component.k1
    1.5
    """
    namespace, dot, option = name.rpartition(".")
    if dot and namespace not in model.namespaces:
        raise UnknownNameError("part of the model", namespace, model.namespaces)
    if option == "weight" and not dot:
        raise VizslaError("a weight belongs to a part; write its namespace first, as in title.weight")
    parts = []
    for part in model.parts:
        if dot and part.component.namespace != namespace:
            parts.append(part)
        elif option == "weight":
            parts.append(Part(value, part.component))
        elif option in ("k1", "b", "delta") and isinstance(part.component, BM25):
            changed: dict[str, Any] = {option: value}
            parts.append(Part(part.weight, replace(part.component, **changed)))
        else:
            raise UnknownNameError("setting", option, ("k1", "b", "delta", "weight"))
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
    depth = measure.cutoff or 1000
    tried: dict[tuple[float, ...], float] = {}

    def value_of(values: tuple[float, ...]) -> float:
        if values not in tried:
            run = answer(index, queries, depth, _with_all(model, settings, values))
            tried[values] = evaluate(run, qrels, [measure]).measures[str(measure)]
            progress(len(tried))
        return tried[values]

    before = evaluate(answer(index, queries, depth, model), qrels, [measure]).measures[str(measure)]
    start = tuple(s.values[len(s.values) // 2] for s in settings)
    if prod(len(s.values) for s in settings) <= MOST_COMBINATIONS:
        best = max(product(*(s.values for s in settings)), key=value_of)
    else:
        best = _ascend(start, settings, value_of)
    names = [s.name for s in settings]
    listed = tuple((dict(zip(names, values, strict=True)), found) for values, found in tried.items())
    chosen = dict(zip(names, best, strict=True))
    return Tuned(_with_all(model, settings, best), chosen, tried[best], before, listed)


def _with_all(model: Model, settings: Sequence[Setting], values: Sequence[float]) -> Model:
    for setting, value in zip(settings, values, strict=True):
        model = with_setting(model, setting.name, value)
    return model


def _ascend(
    start: tuple[float, ...], settings: Sequence[Setting], value_of: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Coordinate ascent on the grid."""
    best = start
    while True:
        before = best
        for i, setting in enumerate(settings):
            best = max(((*best[:i], v, *best[i + 1 :]) for v in setting.values), key=value_of)
        if best == before:
            return best


def tune_fusion(
    runs: Sequence[Run], qrels: Qrels, measure: Measure, fusion: Fusion, weights: Sequence[float] = DEFAULTS["weight"]
) -> tuple[tuple[float, ...], float]:
    """The weights of runs, the first one's being 1, with which their fusion does best on judged queries."""
    known = [run.only(qrels.judgements.keys()) for run in runs]
    best, highest = (1.0,) * len(runs), -np.inf
    for rest in _weightings(len(runs) - 1, weights):
        fused = fusion.fuse(known, (1.0, *rest), measure.cutoff or 1000)
        value = evaluate(fused, qrels, [measure]).measures[str(measure)]
        if value > highest:
            best, highest = (1.0, *rest), value
    return best, float(highest)


def _weightings(count: int, values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """All combinations; of fewer values where there are many runs."""
    fewer = values if count <= 2 else values[:: max(count - 1, 1)]
    yield from product(fewer, repeat=count)
