"""The weight of the second of two models, chosen by ranking anew what either finds, as in SPAR.

A question's pool is the best documents of each model. Both exact scores of all of them are found once; every weight is
then tried on numbers in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.questions import QuestionSet
from vizsla.evaluation.conventions import ANSWER_CONVENTION
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.retrieval import answer_qrels
from vizsla.index import Index, Pool
from vizsla.models import Model, Part, Sum
from vizsla.runs import Measure, Qrels, Ranking, Run

GRID = (*(i / 10 for i in range(1, 11)), 1.1, 1.25, 1.43, 1.67, 2.0, 2.5, 3.33, 5.0, 10.0)
"""The 19 weights of SPAR's paper."""
_WIDER = 100.0
_MOST = 3  # times that the grid is moved


@dataclass(frozen=True)
class Pools:
    """For each question the documents that two models find, with the score of each by each."""

    pools: Mapping[str, Pool]

    @classmethod
    def gathered(cls, index: Index, model: Model, texts: Mapping[str, str], depth: int = 100) -> Pools:
        """The pools of questions, asked of an index that holds both parts of a sum; the sum's weights do not count."""
        if len(model.parts) != 2:
            raise VizslaError(f"{model.name} has {len(model.parts)} parts; a weight is chosen between two")
        equal = Sum(tuple(Part(1.0, part.component) for part in model.parts))
        return cls(dict(zip(texts, index.pools(list(texts.values()), depth, model=equal), strict=True)))

    def run(self, weight: float) -> Run:
        """The pools ranked by the sum, the second score weighed so."""
        ranked = {q: Ranking(list(pool.documents), (1.0, weight) @ pool.scores) for q, pool in self.pools.items()}
        return Run({q: ranking for q, ranking in ranked.items() if len(ranking)})


@dataclass(frozen=True)
class Weighed:
    """The best weight, its figure, and what was found with all that were tried; the ends are those of either alone."""

    weight: float
    value: float
    tried: Mapping[float, float]
    measure: Measure


def choose_weight(
    index: Index,
    model: Model,
    sets: Sequence[QuestionSet],
    measure: Measure,
    *,
    depth: int = 100,
    grid: Sequence[float] | None = None,
    regex: bool = False,
) -> Weighed:
    """The weight of the second part of a sum with which pools are ranked best, the mean over all questions.

    Of equals the one with the greater mean of k times the share of questions answered by the first k. Without a `grid`
    of one's own that of the paper is tried, and where the best is at its end, a hundred times as small or as great.
    """
    pools: list[tuple[Pools, Qrels, str]] = []
    for asked in sets:
        made = Pools.gathered(index, model, asked.texts, depth)
        qrels, how = asked.qrels, "anserini"
        if qrels is None:
            how = ANSWER_CONVENTION
            if not asked.answers:
                raise VizslaError(f"{asked.name} has neither judgements nor answers, so no weight can be chosen by it")
            qrels = answer_qrels(index, [made.run(1.0)], asked.answers, 2 * depth, regex=regex)
        pools.append((made, qrels, how))
    tried: dict[float, tuple[float, float]] = {}
    weights = tuple(sorted(grid or GRID))
    for _ in range(1 if grid else _MOST):
        for weight in weights:
            tried.setdefault(weight, _figures(pools, weight, measure, depth))
        best = max(tried, key=lambda w: tried[w])
        if best not in (min(tried), max(tried)):
            break
        factor = _WIDER if best == max(tried) else 1 / _WIDER
        weights = tuple(float(f"{w * factor:.6g}") for w in weights)
    return Weighed(best, tried[best][0], {w: tried[w][0] for w in sorted(tried)}, measure)


def _figures(
    pools: Sequence[tuple[Pools, Qrels, str]], weight: float, measure: Measure, depth: int
) -> tuple[float, float]:
    """The mean of a measure over all questions, and that of k times accuracy at k for all k."""
    values: list[float] = []
    ranks: list[int] = []
    for made, qrels, how in pools:
        run = made.run(weight)
        values += evaluate(run, qrels, [measure], how).by_query[str(measure)].values()
        for question, grades in qrels.judgements.items():
            ranking = run[question].documents if question in run else []
            ranks.append(next((i for i, d in enumerate(ranking, 1) if grades.get(d, 0) > 0), depth + 1))
    answered = np.cumsum(np.bincount(np.minimum(ranks, depth + 1), minlength=depth + 2)[1:-1]) / max(len(ranks), 1)
    return float(np.mean(values)), float((np.arange(1, depth + 1) * answered).mean())
