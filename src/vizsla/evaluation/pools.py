"""Choose the weight of the second of two models by rescoring the documents that either finds, as in SPAR.

A question's pool are the best documents of each model. Their exact scores by both models are computed once; weights are
then tried in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.answers import answer_qrels
from vizsla.evaluation.figures import ANSWER_CONVENTION, evaluate
from vizsla.evaluation.questions import QuestionSet
from vizsla.index import Index, Pool, pools
from vizsla.models import Model, Part, Sum
from vizsla.runs import Measure, Qrels, Ranking, Run

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
