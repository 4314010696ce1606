"""Runs to figures, by the convention of Anserini's regressions.

Every query with judgements counts, with 0 where the run has nothing for it (trec_eval's -c); documents whose id is
the query's own are left out (-removeQuery); equal scores are ordered by document id ascending, as Anserini writes
its runs. (trec_eval itself orders them descending: on NFCorpus that alone moves nDCG@10 from 0.3218 to 0.3206.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vizsla.errors import InputError
from vizsla.runs import Measure, Qrels, Run


@dataclass(frozen=True)
class Evaluation:
    """Each measure's mean, and its value for every query."""

    measures: dict[str, float]
    by_query: dict[str, dict[str, float]]


def evaluate(run: Run, qrels: Qrels, measures: Sequence[Measure]) -> Evaluation:
    """Evaluate a run against judgements.

    >>> qrels = Qrels({"q1": {"d1": 1}, "q2": {"d9": 1}})
    >>> evaluate(Run({"q1": [("d1", 2.0)]}), qrels, [Measure.parse("R@10")]).measures
    {'R@10': 0.5}
    """
    import ir_measures

    if not qrels.judgements:
        raise InputError("there are no judgements to evaluate against")
    judged = [ir_measures.Qrel(q, d, rel) for q, docs in qrels.judgements.items() for d, rel in docs.items()]
    scored = [
        ir_measures.ScoredDoc(q, d, -rank)
        for q, ranking in run.without_own_ids().rankings.items()
        if q in qrels.judgements
        for rank, (d, _) in enumerate(sorted(ranking, key=lambda hit: (-hit[1], hit[0])))
    ]
    by_query = {str(m): dict.fromkeys(qrels.judgements, 0.0) for m in measures}
    if scored:
        names = {m.implementation: str(m) for m in measures}
        for metric in ir_measures.iter_calc(list(names), judged, scored):
            by_query[names[metric.measure]][metric.query_id] = float(metric.value)
    means = {name: sum(values.values()) / len(values) for name, values in by_query.items()}
    return Evaluation(means, by_query)
