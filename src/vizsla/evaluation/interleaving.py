"""Every pair of several runs interleaved, and how consistent each run is with a reference.

The RepBERT paper's tables 3 and 4, and its figure 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vizsla.errors import VizslaError
from vizsla.evaluation.agreement import consistency_curve
from vizsla.evaluation.figures import Convention, evaluate, in_order
from vizsla.evaluation.retrieval import DEPTH
from vizsla.evaluation.significance import Difference
from vizsla.evaluation.systems import Comparison, SystemResult
from vizsla.runs import Measure, Qrels, Ranking, Run, fuse


@dataclass(frozen=True)
class Interleaving:
    """Every ordered pair of runs interleaved; the best document of the first run comes first."""

    rows: dict[str, Comparison]
    """By the name of the first run: that run alone, the baseline, compared with its interleaving with each other."""
    judged: str
    """The name of the judgements."""
    depth: int
    consistency: Consistency | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.rows)

    @property
    def measures(self) -> tuple[str, ...]:
        return next(iter(self.rows.values())).measures

    def value(self, first: str, second: str, measure: str) -> float:
        """The figure of two runs interleaved; for a run and itself, the figure of that run alone."""
        return self.rows[first].value(self.judged, second, measure)

    def gain(self, first: str, second: str, measure: str) -> float | None:
        """The relative gain of interleaving over the first run alone; None if that run's figure is 0."""
        alone = self.value(first, first, measure)
        return self.value(first, second, measure) / alone - 1 if alone else None

    def mark(self, first: str, second: str, measure: str) -> str:
        """`+` or `-` if interleaving is significantly better or worse than the first run alone, else an empty text."""
        return self.rows[first].mark(self.judged, second, measure)

    def difference(self, first: str, second: str, measure: str) -> tuple[Difference, float]:
        """How two runs interleaved differ from the first alone, with a p-value corrected for the pairs of its row."""
        return self.rows[first].differences(self.judged, measure)[second]

    def with_consistency(self, consistency: Consistency) -> Interleaving:
        """The same with the consistency of the runs."""
        return replace(self, consistency=consistency)


@dataclass(frozen=True)
class Consistency:
    """For several n, the share of each run's first n documents that a reference has among its first documents."""

    reference: str
    pool_depth: int
    depths: tuple[int, ...]
    curves: dict[str, dict[int, float]]
    queries: dict[str, int]
    """How many queries each run has in common with the reference."""


def interleave_all(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    *,
    judged: str = "judgements",
    depth: int = DEPTH,
    convention: str | Convention = "anserini",
    test: str = "t-test",
    correction: str = "holm",
) -> Interleaving:
    """Interleave every ordered pair of runs, evaluate, and compare with the first run alone.

    A run alone is evaluated as it is. Before runs are interleaved, documents that the convention leaves out are
    removed, and equal scores are ordered as trec_eval orders them.

    >>> a, b = Run({"q": [("x", 2.0), ("y", 1.0)]}), Run({"q": [("z", 2.0), ("y", 1.0)]})
    >>> pairs = interleave_all({"a": a, "b": b}, Qrels({"q": {"z": 1}}), [Measure.parse("RR@10")])
    >>> pairs.value("a", "a", "RR@10"), pairs.value("a", "b", "RR@10"), pairs.value("b", "a", "RR@10")
    (0.0, 0.5, 1.0)
    """
    if len(runs) < 2:
        raise VizslaError("interleaving needs two runs or more")
    if depth < 1:
        raise VizslaError(f"the depth of interleaved runs must be 1 or more, not {depth}")
    rules = Convention.parse(convention) if isinstance(convention, str) else convention
    for name, run in runs.items():
        if not any(q in qrels.judgements for q in run):
            raise VizslaError(f"{name} has none of the queries of {judged}; is it a run on other queries?")
    judged_runs = {name: run.only(qrels.judgements.keys()) for name, run in runs.items()}
    check_common_queries(judged_runs)
    ordered = {name: _ordered(run, rules) for name, run in judged_runs.items()}
    alone = {name: SystemResult(evaluate(run, qrels, measures, rules), run) for name, run in runs.items()}
    rows = {}
    for first in runs:
        others = [name for name in runs if name != first]
        results = {(judged, first): alone[first]}
        for second in others:
            both = fuse([ordered[first], ordered[second]], "interleave", depth=depth)
            results[judged, second] = SystemResult(evaluate(both, qrels, measures, rules), both)
        names = tuple(map(str, measures))
        rows[first] = Comparison(
            (first, *others), (judged,), names, {judged: "test"}, results, rules, test, correction
        )  # fmt: skip
    return Interleaving(rows, judged, depth)


def check_common_queries(runs: Mapping[str, Run]) -> None:
    """Refuse runs if two of them have no query in common."""
    names = list(runs)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if runs[a].keys().isdisjoint(runs[b].keys()):
                raise VizslaError(f"{a} and {b} have no query in common")


def _ordered(run: Run, rules: Convention) -> Run:
    """A run in the order of the convention, with scores that fall from rank to rank."""
    rankings = {}
    for query, ranking in run.items():
        documents = in_order(ranking, query, keep_ties=False, own_ids=rules.own_ids)
        rankings[query] = Ranking(documents, [1 / (i + 1) for i in range(len(documents))])
    return Run(rankings, run.name)


def consistency_of(
    runs: Mapping[str, Run], reference: str, pool: Run, depths: Sequence[int], pool_depth: int = DEPTH
) -> Consistency:
    """The consistency of runs with a reference; the reference itself is left out if it is among them."""
    curves, queries = {}, {}
    for name, run in runs.items():
        if name != reference:
            queries[name] = sum(q in pool for q in run)
            if not queries[name]:
                raise VizslaError(f"{name} and {reference} have no query in common")
            curves[name] = consistency_curve(run, pool, depths, pool_depth)
    return Consistency(reference, pool_depth, tuple(depths), curves, queries)
