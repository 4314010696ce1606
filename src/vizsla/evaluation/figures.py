"""Runs to figures, by a named convention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.formulas import compute
from vizsla.evaluation.matching import Matches, holes, match
from vizsla.runs import Measure, Qrels, Run, parse_measures

ANSERINI = Convention.parse("anserini")


@dataclass(frozen=True)
class Evaluation:
    """Each measure's mean, and its value for every query that counts."""

    measures: dict[str, float]
    by_query: dict[str, dict[str, float]]
    convention: Convention = ANSERINI
    facts: dict[str, int] = field(default_factory=dict)
    """How many queries are judged, how many of them the run does not answer, how many it answers that are not."""


def evaluate(
    run: Run, qrels: Qrels, measures: str | Sequence[str | Measure], convention: str | Convention = "anserini"
) -> Evaluation:
    """Evaluate a run against judgements. Neither is changed.

    >>> qrels = Qrels({"q1": {"d1": 1}, "q2": {"d9": 1}})
    >>> run = Run({"q1": [("d1", 2.0)]})
    >>> evaluate(run, qrels, "R@10").measures, evaluate(run, qrels, "R@10", "beir").measures
    ({'R@10': 0.5}, {'R@10': 1.0})
    """
    how = Convention.parse(convention) if isinstance(convention, str) else convention
    wanted = parse_measures(measures)
    if not qrels.judgements:
        raise InputError("there are no judgements to evaluate against")
    matches: dict[bool, Matches] = {}
    by_query, means = {}, {}
    answered = np.array([q in run for q in qrels.judgements])
    others = _elsewhere(run, qrels, [m for m in wanted if not m.is_own], how)
    for measure in wanted:
        ties = how.keeps_ties(measure.name)
        if not measure.is_own:
            values = others[measure]
        elif measure.name == "Hole":
            assert measure.cutoff is not None
            values = holes(run, qrels, measure.cutoff, keep_ties=ties, own_ids=how.own_ids, by_query=bool(measure.rest))
        else:
            if ties not in matches:
                matches[ties] = match(run, qrels, keep_ties=ties, own_ids=how.own_ids)
            values = compute(measure, matches[ties])
        counts = np.ones(len(values), np.bool_) if how.counts_missing(measure.name) else answered
        names = (q for q, counted in zip(qrels.judgements, counts.tolist(), strict=True) if counted)
        by_query[str(measure)] = dict(zip(names, values[counts].tolist(), strict=True))
        means[str(measure)] = float(values[counts].mean()) if counts.any() else 0.0
    unjudged = sum(q not in qrels.judgements for q in run)
    facts = {"queries": len(answered), "missing": int((~answered).sum()), "unjudged": unjudged}
    return Evaluation(means, by_query, how, facts)


def _elsewhere(run: Run, qrels: Qrels, measures: list[Measure], how: Convention) -> dict[Measure, np.ndarray]:
    """What ir_measures makes of the measures that are left to it."""
    if not measures:
        return {}
    import ir_measures

    own = run if how.own_ids else run.without_own_ids()
    judged = [ir_measures.Qrel(q, d, grade) for q, docs in qrels.judgements.items() for d, grade in docs.items()]
    scored = [ir_measures.ScoredDoc(q, d, s) for q in qrels.judgements if q in own for d, s in own[q]]
    names = {m.implementation: m for m in measures}
    places = {q: i for i, q in enumerate(qrels.judgements)}
    values = {m: np.zeros(len(places)) for m in measures}
    try:
        found = list(ir_measures.iter_calc(list(names), judged, scored)) if scored else []
    except Exception as e:  # its providers run other programs, which fail in ways of their own
        told = ", ".join(map(str, measures))
        raise VizslaError(f"ir_measures cannot compute {told} here ({type(e).__name__}: {e})") from None
    for metric in found:
        values[names[metric.measure]][places[metric.query_id]] = float(metric.value)
    for measure, figures in values.items():
        if not np.isfinite(figures).all():  # a mean, and a test, of what is no number would be none either
            query = list(places)[int(np.flatnonzero(~np.isfinite(figures))[0])]
            raise VizslaError(f"ir_measures has no number for {measure} on the query {query!r}; leave {measure} out")
    return values
