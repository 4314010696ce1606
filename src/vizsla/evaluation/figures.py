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
    """The mean of each measure, and its value for every query that counts."""

    measures: dict[str, float]
    by_query: dict[str, dict[str, float]]
    convention: Convention = ANSERINI
    facts: dict[str, int] = field(default_factory=dict)
    """Counts: judged `queries`, those `missing` from the run, and `unjudged` queries of the run."""


def evaluate(
    run: Run, qrels: Qrels, measures: str | Sequence[str | Measure], convention: str | Convention = "anserini"
) -> Evaluation:
    """Evaluate a run against judgements, by measures such as `nDCG@10 R@100`; see `Convention` for the conventions.

    >>> qrels = Qrels({"q1": {"d1": 1}, "q2": {"d9": 1}})
    >>> run = Run({"q1": [("d1", 2.0)]})
    >>> evaluate(run, qrels, "R@10").measures, evaluate(run, qrels, "R@10", "beir").measures
    ({'R@10': 0.5}, {'R@10': 1.0})
    """
    rules = Convention.parse(convention) if isinstance(convention, str) else convention
    wanted = parse_measures(measures)
    if not qrels.judgements:
        raise InputError("there are no judgements to evaluate against")
    matches: dict[bool, Matches] = {}
    by_query, means = {}, {}
    in_run = np.array([q in run for q in qrels.judgements])
    others = _elsewhere(run, qrels, [m for m in wanted if not m.is_own], rules)
    for measure in wanted:
        ties = rules.keeps_ties(measure.name)
        if not measure.is_own:
            values = others[measure]
        elif measure.name == "Hole":
            assert measure.cutoff is not None
            by_itself = bool(measure.rest)
            values = holes(run, qrels, measure.cutoff, keep_ties=ties, own_ids=rules.own_ids, by_query=by_itself)
        else:
            if ties not in matches:
                matches[ties] = match(run, qrels, keep_ties=ties, own_ids=rules.own_ids)
            values = compute(measure, matches[ties])
        counts = np.ones(len(values), np.bool_) if rules.counts_missing(measure.name) else in_run
        names = (q for q, counted in zip(qrels.judgements, counts.tolist(), strict=True) if counted)
        by_query[str(measure)] = dict(zip(names, values[counts].tolist(), strict=True))
        means[str(measure)] = float(values[counts].mean()) if counts.any() else 0.0
    unjudged = sum(q not in qrels.judgements for q in run)
    facts = {"queries": len(in_run), "missing": int((~in_run).sum()), "unjudged": unjudged}
    return Evaluation(means, by_query, rules, facts)


def _elsewhere(run: Run, qrels: Qrels, measures: list[Measure], rules: Convention) -> dict[Measure, np.ndarray]:
    """The values of measures that only ir_measures computes."""
    if not measures:
        return {}
    import ir_measures

    own = run if rules.own_ids else run.without_own_ids()
    judged = [ir_measures.Qrel(q, d, grade) for q, docs in qrels.judgements.items() for d, grade in docs.items()]
    scored = [ir_measures.ScoredDoc(q, d, s) for q in qrels.judgements if q in own for d, s in own[q]]
    names = {m.implementation: m for m in measures}
    places = {q: i for i, q in enumerate(qrels.judgements)}
    values = {m: np.zeros(len(places)) for m in measures}
    try:
        metrics = list(ir_measures.iter_calc(list(names), judged, scored)) if scored else []
    except Exception as e:  # its providers run other programs, which fail in ways of their own
        listed = ", ".join(map(str, measures))
        raise VizslaError(f"ir_measures cannot compute {listed} here ({type(e).__name__}: {e})") from None
    for metric in metrics:
        values[names[metric.measure]][places[metric.query_id]] = float(metric.value)
    for measure, figures in values.items():
        if not np.isfinite(figures).all():  # neither a mean nor a test can be computed then
            query = list(places)[int(np.flatnonzero(~np.isfinite(figures))[0])]
            raise VizslaError(f"ir_measures has no number for {measure} on the query {query!r}; leave {measure} out")
    return values
