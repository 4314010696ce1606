"""Every two of several runs interleaved, beside each alone, and how consistent each is with one of them.

The RepBERT paper's tables 3 and 4, and its figure 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vizsla.errors import VizslaError
from vizsla.evaluation.agreement import consistency_curve
from vizsla.evaluation.compare import Comparison, Result
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.matching import in_order
from vizsla.evaluation.significance import Difference
from vizsla.evaluation.retrieval import DEPTH
from vizsla.runs import Measure, Qrels, Ranking, Run, fuse


@dataclass(frozen=True)
class Interleaving:
    """Runs interleaved two by two; the order matters, the first one's best document comes first."""

    rows: dict[str, Comparison]
    """By the name of the first run: that run alone, which is the baseline, and interleaved with each other one."""
    judged: str
    """What the figures are on."""
    depth: int
    consistency: Consistency | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.rows)

    @property
    def measures(self) -> tuple[str, ...]:
        return next(iter(self.rows.values())).measures

    def value(self, first: str, second: str, measure: str) -> float:
        """A figure of two runs interleaved; of a run and itself, the figure of that run alone."""
        return self.rows[first].value(self.judged, second, measure)

    def gain(self, first: str, second: str, measure: str) -> float | None:
        """How much more interleaving reaches than the first run alone, as a share of that; None where that is 0."""
        alone = self.value(first, first, measure)
        return self.value(first, second, measure) / alone - 1 if alone else None

    def mark(self, first: str, second: str, measure: str) -> str:
        """`+` or `-` where interleaving is better or worse than the first run alone beyond chance."""
        return self.rows[first].mark(self.judged, second, measure)

    def difference(self, first: str, second: str, measure: str) -> tuple[Difference, float]:
        """How two runs interleaved differ from the first alone, with p corrected for the others of its row."""
        return self.rows[first].differences(self.judged, measure)[second]

    def with_consistency(self, consistency: Consistency) -> Interleaving:
        return replace(self, consistency=consistency)


@dataclass(frozen=True)
class Consistency:
    """The share of each run's first n documents that a reference has among its own first, at several n."""

    reference: str
    pool_depth: int
    depths: tuple[int, ...]
    curves: dict[str, dict[int, float]]
    queries: dict[str, int]
    """How many queries each run and the reference both have."""


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
    """Interleave every ordered pair of runs and evaluate, each beside its first run alone.

    A run alone is evaluated as it is. Before runs are interleaved, documents that the convention leaves out are
    left out, and equal scores are ordered as trec_eval orders them.

    >>> a, b = Run({"q": [("x", 2.0), ("y", 1.0)]}), Run({"q": [("z", 2.0), ("y", 1.0)]})
    >>> found = interleave_all({"a": a, "b": b}, Qrels({"q": {"z": 1}}), [Measure.parse("RR@10")])
    >>> found.value("a", "a", "RR@10"), found.value("a", "b", "RR@10"), found.value("b", "a", "RR@10")
    (0.0, 0.5, 1.0)
    """
    if len(runs) < 2:
        raise VizslaError("there must be two runs at least")
    if depth < 1:
        raise VizslaError(f"runs are interleaved 1 deep or more, not {depth}")
    how = Convention.parse(convention) if isinstance(convention, str) else convention
    for name, run in runs.items():
        if not any(q in qrels.judgements for q in run):
            raise VizslaError(f"{name} has none of the queries of {judged}; is it a run on other queries?")
    known = {name: run.only(qrels.judgements.keys()) for name, run in runs.items()}
    check_common_queries(known)
    ordered = {name: _ordered(run, how) for name, run in known.items()}
    alone = {name: Result(evaluate(run, qrels, measures, how), run) for name, run in runs.items()}
    rows = {}
    for first in runs:
        others = [name for name in runs if name != first]
        results = {(judged, first): alone[first]}
        for second in others:
            both = fuse([ordered[first], ordered[second]], "interleave", depth=depth)
            results[judged, second] = Result(evaluate(both, qrels, measures, how), both)
        names = tuple(map(str, measures))
        rows[first] = Comparison(
            (first, *others), (judged,), names, {judged: "test"}, results, how, test, correction
        )  # fmt: skip
    return Interleaving(rows, judged, depth)


def check_common_queries(runs: Mapping[str, Run]) -> None:
    """Refuse runs of which two have no query in common."""
    names = list(runs)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if runs[a].keys().isdisjoint(runs[b].keys()):
                raise VizslaError(f"{a} and {b} have no query in common")


def _ordered(run: Run, how: Convention) -> Run:
    """A run as the convention sees it, with scores that fall from rank to rank."""
    found = {}
    for query, ranking in run.items():
        documents = in_order(ranking, query, keep_ties=False, own_ids=how.own_ids)
        found[query] = Ranking(documents, [1 / (i + 1) for i in range(len(documents))])
    return Run(found, run.name)


def consistency_of(
    runs: Mapping[str, Run], reference: str, pool: Run, depths: Sequence[int], pool_depth: int = DEPTH
) -> Consistency:
    """How consistent runs are with a reference, which is left out if it is among them."""
    curves, queries = {}, {}
    for name, run in runs.items():
        if name != reference:
            queries[name] = sum(q in pool for q in run)
            if not queries[name]:
                raise VizslaError(f"{name} and {reference} have no query in common")
            curves[name] = consistency_curve(run, pool, depths, pool_depth)
    return Consistency(reference, pool_depth, tuple(depths), curves, queries)
