"""Parameters tuned on a dev split: k1, b, and the weights of fields and sums. One index serves all values.

`tune` searches with each candidate. `choose_weight` rescores the documents that either of two models finds, as SPAR's
authors do: the exact scores of a question's pool by both models are computed once, and weights are tried in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import Any, Protocol, cast

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.evaluation.answers import answer_qrels
from vizsla.evaluation.figures import ANSWER_CONVENTION, evaluate
from vizsla.evaluation.questions import QuestionSet
from vizsla.evaluation.retrieval import DEPTH, retrieve
from vizsla.index import Index, Pool, pools
from vizsla.models import BM25OverCounts, Component, Model, Part, Sum
from vizsla.numbers import short
from vizsla.runs import Fusion, Measure, Qrels, Ranking, Retriever, Run
from vizsla.spec import Option, options_of

MAX_COMBINATIONS = 150  # with more, one parameter at a time is varied until nothing improves
MAX_VALUES = 10_000
DEFAULTS = {
    "k1": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.4, 3.0),
    "b": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9),
    "weight": (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0),
}
COUNTS_K1 = (0.5, 0.9, 2.0, 5.0, 10.0, 18.0, 30.0, 60.0, 120.0)
"""Values of k1 for given counts, which may be as high as a hundred, while a text repeats a word only a few times."""


class ModelRetriever(Protocol):
    """A retriever whose model can be swapped, such as an `Index` and the result of `Index.with_model`."""

    def with_model(self, model: str | Model) -> Retriever:
        """A retriever over the same documents with another model; an error if the index does not fit that model."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a model and the values to try.

    The name is an option of all parts of a model that have it, such as `k1`, or of the part with a namespace
    (`title.k1`), or the weight of a part (`title.weight`).

    >>> Parameter.parse("k1=0.6:1.2:0.3"), Parameter.parse("title.weight=0.5,1").values
    (Parameter(name='k1', values=(0.6, 0.9, 1.2)), (0.5, 1.0))
    """

    name: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Parameter:
        """A parameter from `name=first:last:step` or `name=value,value`."""
        name, equals, written = (part.strip() for part in text.partition("="))
        try:
            if match := re.fullmatch(r"([\d.]+):([\d.]+):([\d.]+)", written):
                low, high, step = map(float, match.groups())
                count = (high - low) / step + 1 + 1e-9 if step > 0 and high >= low else 0
                if count > MAX_VALUES:
                    raise VizslaError(f"{short(text)} has too many values to try; {MAX_VALUES:,} is the limit")
                values = tuple(round(low + i * step, 10) for i in range(int(count)))
            else:
                values = tuple(float(v) for v in written.split(",")) if equals else ()
        except ValueError:
            values = ()
        if not name or not values:
            raise VizslaError(f"{short(text)} is not a parameter; expected name=first:last:step or name=value,value")
        return cls(name, values)


def tunable_parameters(model: Model) -> list[Parameter]:
    """The parameters worth tuning: k1 and b, and in a sum the weights of all parts but the first.

    If one part counts words and another has given counts, k1 and b of each are tuned separately.

    >>> from vizsla.models import BM25
    >>> [p.name for p in tunable_parameters(2 * BM25() + BM25(fields=("title",), namespace="title"))]
    ['k1', 'b', 'title.weight']
    """
    weights = [Parameter(f"{p.component.namespace}.weight", DEFAULTS["weight"]) for p in model.parts[1:]]
    with_k1 = [p.component for p in model.parts if {"k1", "b"} <= numeric_options(p.component).keys()]
    counted = [isinstance(component, BM25OverCounts) for component in with_k1]
    if any(counted) and not all(counted):
        apart = [(f"{component.namespace}.", given) for component, given in zip(with_k1, counted, strict=True)]
    else:
        apart = [("", all(counted))] if with_k1 else []
    own = [
        Parameter(f"{prefix}{name}", COUNTS_K1 if name == "k1" and given else DEFAULTS[name])
        for prefix, given in apart
        for name in ("k1", "b")
    ]
    return own + weights


def with_parameter(model: Model, name: str, value: float) -> Model:
    """The model with another value for a parameter.

    >>> from vizsla.models import BM25
    >>> with_parameter(BM25(), "k1", 1.5).parts[0].component.k1
    1.5
    """
    namespace, dot, option = name.rpartition(".")
    if dot and namespace not in model.namespaces:
        raise UnknownNameError("part of the model", namespace, model.namespaces)
    if option == "weight" and not dot:
        raise VizslaError("a weight belongs to a part; write its namespace first, as in title.weight")
    chosen = [p for p in model.parts if not dot or p.component.namespace == namespace]
    known = dict.fromkeys(o for p in chosen for o in (*numeric_options(p.component), "weight"))
    if option not in known:
        raise UnknownNameError("parameter", option, tuple(known))
    parts = []
    for part in model.parts:
        if part in chosen and option == "weight":
            parts.append(Part(value, part.component))
        elif part in chosen and option in numeric_options(part.component):
            parts.append(Part(part.weight, _with_option(part.component, option, value)))
        else:
            parts.append(part)
    return parts[0].component if len(parts) == 1 and parts[0].weight == 1 else Sum(tuple(parts), model.name)


def numeric_options(component: Component) -> dict[str, Option]:
    """The options of a component that are numbers, by name.

    >>> from vizsla.models import BM25
    >>> list(numeric_options(BM25()))
    ['k1', 'b', 'delta', 'query_norm']
    """
    options = options_of(type(component), **{f.name: "" for f in fields(component)})  # type: ignore[arg-type]
    return {o.name: o for o in options if o.type.removesuffix(" | None") in ("int", "float")}


def _with_option(component: Component, option: str, value: float) -> Component:
    """The component with another value for an option; one that changes what an index stores is refused."""
    whole = numeric_options(component)[option].type.startswith("int")
    if whole and not float(value).is_integer():
        raise VizslaError(f"{option} of {component.name} is a whole number, not {value:g}")
    given = int(value) if whole else value
    changed: Any = replace(component, **{option: given})  # type: ignore[type-var]
    if changed.index_signature != component.index_signature:
        raise VizslaError(
            f"{option} of {component.name} changes what an index stores, so it cannot be tuned; compare a model for "
            "each value with vizsla compare"
        )
    return cast(Component, changed)


@dataclass(frozen=True)
class TunedModel:
    """The best values, the model with them, its figure and the figure before, and all values that were tried."""

    model: Model
    parameters: dict[str, float]
    value: float
    before: float
    tried: tuple[tuple[dict[str, float], float], ...]


def tune(
    retriever: ModelRetriever,
    model: Model,
    queries: Mapping[str, str],
    qrels: Qrels,
    measure: Measure,
    parameters: Sequence[Parameter],
    progress: Callable[[int], None] = lambda _: None,
) -> TunedModel:
    """Find the parameters with which a model does best on judged queries.

    All combinations are tried if they are few. Otherwise one parameter at a time is varied until nothing gets better.
    Of equally good values those tried first are taken. The retriever, such as an `Index`, must be able to search with
    the model. `progress` is called with the number of combinations tried so far.
    """
    if measure.name in ("Hole", "Judged"):
        raise VizslaError(f"{measure} does not measure quality, so it cannot be tuned for")
    depth = measure.cutoff or DEPTH
    tried: dict[tuple[float, ...], float] = {}

    def figure_of(candidate: Model) -> float:
        run = retrieve(retriever.with_model(candidate), queries, depth)
        return evaluate(run, qrels, [measure]).measures[str(measure)]

    def value_of(values: tuple[float, ...]) -> float:
        if values not in tried:
            tried[values] = figure_of(_with_all(model, parameters, values))
            progress(len(tried))
        return tried[values]

    before = figure_of(model)
    if prod(len(p.values) for p in parameters) <= MAX_COMBINATIONS:
        best = max(product(*(p.values for p in parameters)), key=value_of)
    else:
        best = _ascend(tuple(_nearest(model, p) for p in parameters), parameters, value_of)
    names = [p.name for p in parameters]
    listed = tuple((dict(zip(names, values, strict=True)), value) for values, value in tried.items())
    if tried[best] < before:  # no value on the grid is as good as the original ones
        return TunedModel(model, {}, before, before, listed)
    chosen = dict(zip(names, best, strict=True))
    return TunedModel(_with_all(model, parameters, best), chosen, tried[best], before, listed)


def _nearest(model: Model, parameter: Parameter) -> float:
    """The value to begin with: the one to try that is nearest to the model's own."""
    namespace, dot, option = parameter.name.rpartition(".")
    part = next((p for p in model.parts if not dot or p.component.namespace == namespace), model.parts[0])
    own = part.weight if option == "weight" else getattr(part.component, option, None) or 0.0
    return min(parameter.values, key=lambda v: abs(v - own))


def _with_all(model: Model, parameters: Sequence[Parameter], values: Sequence[float]) -> Model:
    for parameter, value in zip(parameters, values, strict=True):
        model = with_parameter(model, parameter.name, value)
    return model


def _ascend(
    start: tuple[float, ...], parameters: Sequence[Parameter], value_of: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Coordinate ascent on the grid."""
    best = start
    while True:
        before = best
        for i, parameter in enumerate(parameters):
            others = ((*best[:i], v, *best[i + 1 :]) for v in parameter.values)
            best = max([best, *others], key=value_of)  # of equally good ones the first
        if best == before:
            return best


def tune_fusion(
    runs: Sequence[Run], qrels: Qrels, measure: Measure, fusion: Fusion, weights: Sequence[float] = DEFAULTS["weight"]
) -> tuple[tuple[float, ...], float]:
    """The weights of runs with which their fusion does best on judged queries, and the figure with them.

    The first run has weight 1. One weight at a time is varied, starting from equal ones, until nothing gets better.
    """
    judged = [run.only(qrels.judgements.keys()) for run in runs]
    tried: dict[tuple[float, ...], float] = {}

    def value_of(others: tuple[float, ...]) -> float:
        if others not in tried:
            fused = fusion.fuse(judged, (1.0, *others), measure.cutoff or DEPTH)
            tried[others] = evaluate(fused, qrels, [measure]).measures[str(measure)]
        return tried[others]

    parameters = [Parameter(f"{i}", tuple(weights)) for i in range(1, len(runs))]
    best = _ascend((1.0,) * len(parameters), parameters, value_of)
    return (1.0, *best), tried[best]


GRID = (*(i / 10 for i in range(1, 11)), 1.1, 1.25, 1.43, 1.67, 2.0, 2.5, 3.33, 5.0, 10.0)
"""The 19 weights of SPAR's paper."""
_WIDER = 100.0
_MAX_GRIDS = 3  # the grid of the paper, and further ones if the best weight is at its edge


@dataclass(frozen=True)
class QuestionPools:
    """For each question the documents that two models find, with the scores by both models."""

    pools: Mapping[str, Pool]

    @classmethod
    def search(cls, index: Index, model: Model, texts: Mapping[str, str], depth: int = 100) -> QuestionPools:
        """The pools of questions in an index with both parts of a sum; the weights of the sum are ignored."""
        if len(model.parts) != 2:
            raise VizslaError(f"{model.name} has {len(model.parts)} parts; a weight is chosen between two")
        unweighted = Sum(tuple(Part(1.0, part.component) for part in model.parts))
        return cls(dict(zip(texts, pools(index, list(texts.values()), depth, unweighted), strict=True)))

    def run(self, weight: float) -> Run:
        """The documents of each pool ranked by the sum of both scores, the second one multiplied by a weight."""
        ranked = {q: Ranking(list(pool.documents), (1.0, weight) @ pool.scores) for q, pool in self.pools.items()}
        return Run({q: ranking for q, ranking in ranked.items() if len(ranking)})


@dataclass(frozen=True)
class ChosenWeight:
    """The best weight, the value of the measure with it, and the values of all weights that were tried."""

    weight: float
    value: float
    tried: Mapping[float, float]
    measure: Measure


@dataclass(frozen=True)
class _JudgedPools:
    pools: QuestionPools
    qrels: Qrels
    convention: str


def choose_weight(
    index: Index,
    model: Model,
    sets: Sequence[QuestionSet],
    measure: Measure,
    *,
    depth: int = 100,
    grid: Sequence[float] | None = None,
    regex: bool = False,
) -> ChosenWeight:
    """The weight of the second part of a sum that ranks pools best, by the mean over all questions.

    Ties are broken by the greater mean of k times accuracy at k. Without a `grid` the weights of the paper are tried;
    if the best is at their edge, weights a hundred times smaller or greater follow.
    """
    judged = [_judge_pools(index, model, questions, depth, regex) for questions in sets]
    tried: dict[float, tuple[float, float]] = {}
    weights = tuple(sorted(grid or GRID))
    for _ in range(1 if grid else _MAX_GRIDS):
        for weight in weights:
            tried.setdefault(weight, _figures(judged, weight, measure, depth))
        best = max(tried, key=lambda w: tried[w])
        if best not in (min(tried), max(tried)):
            break
        factor = _WIDER if best == max(tried) else 1 / _WIDER
        weights = tuple(float(f"{w * factor:.6g}") for w in weights)
    return ChosenWeight(best, tried[best][0], {w: tried[w][0] for w in sorted(tried)}, measure)


def _judge_pools(index: Index, model: Model, questions: QuestionSet, depth: int, regex: bool) -> _JudgedPools:
    """The pools of a set of questions, with its judgements, or with judgements by its answers."""
    pools = QuestionPools.search(index, model, questions.texts, depth)
    if questions.qrels is not None:
        return _JudgedPools(pools, questions.qrels, "anserini")
    if not questions.answers:
        raise VizslaError(f"{questions.name} has neither judgements nor answers, so no weight can be chosen by it")
    qrels = answer_qrels(index, [pools.run(1.0)], questions.answers, 2 * depth, regex=regex)
    return _JudgedPools(pools, qrels, ANSWER_CONVENTION)


def _figures(judged: Sequence[_JudgedPools], weight: float, measure: Measure, depth: int) -> tuple[float, float]:
    """The mean of a measure over all questions, and the mean of k times accuracy at k over all k."""
    values: list[float] = []
    ranks: list[int] = []
    for each in judged:
        run = each.pools.run(weight)
        values += evaluate(run, each.qrels, [measure], each.convention).by_query[str(measure)].values()
        for question, grades in each.qrels.judgements.items():
            ranking = run[question].documents if question in run else []
            ranks.append(next((i for i, d in enumerate(ranking, 1) if grades.get(d, 0) > 0), depth + 1))
    counts = np.bincount(np.minimum(ranks, depth + 1), minlength=depth + 2)[1:-1]
    accuracies = np.cumsum(counts) / max(len(ranks), 1)
    return float(np.mean(values)), float((np.arange(1, depth + 1) * accuracies).mean())
