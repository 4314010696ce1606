"""Runs to figures by a named convention: where judged documents are ranked, and the formulas of the measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.runs import Measure, Qrels, Ranking, Run, parse_measures

# What the beir package computes itself and not through trec_eval: over all judged queries, ties in the run's order.
_BEIR_ITSELF = ("RR", "R_cap", "Hole", "Success")


@dataclass(frozen=True)
class Convention:
    """How figures are computed.

    `anserini`: trec_eval with -c on a run without own ids (-removeQuery): every judged query counts, with 0 where the
    run has nothing; scores are compared as 32-bit floats, equal ones go by document id descending.

    `beir`: what the beir package prints. nDCG, AP, R and P as trec_eval has them, but over the queries that the run
    has; RR, R_cap, Hole and Success over all judged queries, with equal scores in the order of the run; own ids
    are left out.

    `trec`: trec_eval -c on the run as it is.

    >>> Convention.parse("beir").counts_missing("nDCG"), Convention.parse("beir").counts_missing("RR")
    (False, True)
    """

    name: str
    own_ids: bool
    """Whether documents whose id is the query's own are kept."""
    package: bool = False
    """Whether figures are computed as the beir package does."""

    @classmethod
    def parse(cls, name: str) -> Convention:
        if name not in CONVENTIONS:
            raise UnknownNameError("convention", name, tuple(CONVENTIONS))
        return CONVENTIONS[name]

    def __str__(self) -> str:
        return self.name

    def counts_missing(self, measure: str) -> bool:
        """Whether judged queries that the run does not have count, with 0."""
        return not self.package or measure in _BEIR_ITSELF

    def keeps_ties(self, measure: str) -> bool:
        """Whether equal scores keep the order of the run; else they are ordered by descending document id."""
        return self.package and measure in _BEIR_ITSELF


CONVENTIONS = {
    c.name: c
    for c in (
        Convention("anserini", own_ids=False),
        Convention("beir", own_ids=False, package=True),
        Convention("trec", own_ids=True),
    )
}
ANSWER_CONVENTION = "trec"
"""The convention for judgements by answers: a passage with the id of the question counts as well."""


UNJUDGED = -(1 << 30)


@dataclass(frozen=True, eq=False)
class Matches:
    """Every judged document that is in a ranking: the number of its query, its rank from 0, its grade.

    Only a few of the documents found are judged, so the arrays are small, and all queries are computed at once.
    """

    queries: list[str]
    depths: np.ndarray
    """How many documents the run has for each query."""
    query: np.ndarray
    rank: np.ndarray
    grade: np.ndarray
    judged_query: np.ndarray
    judged_grade: np.ndarray
    """All judgements, whether the documents are in the rankings or not."""

    def relevant(self, least: int) -> np.ndarray:
        """How many documents have at least this grade, for each query."""
        return np.bincount(self.judged_query[self.judged_grade >= least], minlength=len(self.queries))

    def per_query(self, chosen: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """The sum of weights, or the count, of the documents chosen by a mask, for each query."""
        given = None if weights is None else weights[chosen]
        return np.bincount(self.query[chosen], given, minlength=len(self.queries))


def match(run: Run, qrels: Qrels, *, keep_ties: bool, own_ids: bool) -> Matches:
    """Find the judged documents of each query in its ranking."""
    queries = list(qrels.judgements)
    depths = np.zeros(len(queries), np.int64)
    ranks, grades, sizes = [], [], np.zeros(len(queries), np.int64)
    for i, query in enumerate(queries):
        ranking = run.get(query)
        if ranking is None:
            continue
        documents = in_order(ranking, query, keep_ties=keep_ties, own_ids=own_ids)
        depths[i] = len(documents)
        found_grades = np.fromiter(
            map(qrels.judgements[query].get, documents, repeat(UNJUDGED)), np.int64, len(documents)
        )
        judged_ranks = np.flatnonzero(found_grades != UNJUDGED)
        ranks.append(judged_ranks)
        grades.append(found_grades[judged_ranks])
        sizes[i] = len(judged_ranks)
    empty = [np.zeros(0, np.int64)]
    counts = [len(judged) for judged in qrels.judgements.values()]
    return Matches(
        queries, depths,
        np.repeat(np.arange(len(queries)), sizes), np.concatenate(ranks or empty), np.concatenate(grades or empty),
        np.repeat(np.arange(len(queries)), counts),
        np.array([g for judged in qrels.judgements.values() for g in judged.values()], np.int64),
    )  # fmt: skip


def in_order(ranking: Ranking, query: str, *, keep_ties: bool, own_ids: bool) -> list[str]:
    """The documents as trec_eval sorts them: by score as a 32-bit float, then by descending id.

    `keep_ties` keeps the order of the run; without `own_ids` the document with the query's id is removed.
    """
    if not own_ids:
        ranking = ranking.without(query)
    if keep_ties or len(ranking) < 2:
        return ranking.documents
    with np.errstate(over="ignore"):
        scores = ranking.scores.astype(np.float32)
    if (scores[1:] < scores[:-1]).all():
        return ranking.documents
    pairs = sorted(zip(scores.tolist(), ranking.documents, strict=True), reverse=True)
    return [d for _, d in pairs]


def holes(run: Run, qrels: Qrels, cutoff: int, *, keep_ties: bool, own_ids: bool, by_query: bool) -> np.ndarray:
    """For each judged query the share of its first `cutoff` documents without a judgement.

    With `by_query` only judgements for the query itself count, otherwise those for any query. Short rankings are also
    divided by the cutoff, as in the beir package.
    """
    anywhere = set() if by_query else {d for judged in qrels.judgements.values() for d in judged}
    shares = np.zeros(len(qrels.judgements))
    for i, (query, judged) in enumerate(qrels.judgements.items()):
        if query in run:
            documents = in_order(run[query], query, keep_ties=keep_ties, own_ids=own_ids)
            known = judged if by_query else anywhere
            shares[i] = sum(d not in known for d in documents[:cutoff]) / cutoff
    return shares


ENDLESS = 1 << 40


def compute(measure: Measure, m: Matches) -> np.ndarray:
    """The value of a measure for each judged query; 0 where a query has no relevant document or no ranking."""
    return _FORMULAS[measure.name](m, measure.cutoff or ENDLESS, measure.rel)


def _share(parts: np.ndarray, of: np.ndarray) -> np.ndarray:
    shares = np.zeros(len(parts))
    np.divide(parts, of, out=shares, where=of > 0)
    return shares


def _hits(m: Matches, k: int, rel: int) -> np.ndarray:
    """How many relevant documents are among the first k."""
    return m.per_query((m.rank < k) & (m.grade >= rel))


def _ndcg(m: Matches, k: int, rel: int) -> np.ndarray:
    """Gains are the grades themselves, discounted by log2(rank + 1), over those of the best possible ranking."""
    del rel
    gain = m.per_query((m.rank < k) & (m.grade > 0), m.grade / np.log2(m.rank + 2.0))
    positive = m.judged_grade > 0
    query, grade = m.judged_query[positive], m.judged_grade[positive]
    order = np.lexsort((-grade, query))
    query, grade = query[order], grade[order]
    starts = np.searchsorted(query, np.arange(len(m.queries)))
    rank = np.arange(len(query)) - starts[query]
    within = rank < k
    ideal = np.bincount(query[within], grade[within] / np.log2(rank[within] + 2.0), minlength=len(m.queries))
    return _share(gain, ideal)


def _average_precision(m: Matches, k: int, rel: int) -> np.ndarray:
    chosen = (m.rank < k) & (m.grade >= rel)
    query = m.query[chosen]
    starts = np.searchsorted(query, np.arange(len(m.queries)))
    so_far = np.arange(len(query)) - starts[query] + 1
    precision = np.zeros(len(chosen))
    precision[chosen] = so_far / (m.rank[chosen] + 1)
    return _share(m.per_query(chosen, precision), m.relevant(rel))


def _reciprocal_rank(m: Matches, k: int, rel: int) -> np.ndarray:
    chosen = (m.rank < k) & (m.grade >= rel)
    first = np.full(len(m.queries), ENDLESS, np.int64)
    np.minimum.at(first, m.query[chosen], m.rank[chosen])
    return np.where(first < ENDLESS, 1 / (first + 1.0), 0.0)


def _r_precision(m: Matches, k: int, rel: int) -> np.ndarray:
    """Precision at as many documents as are relevant."""
    relevant = m.relevant(rel)
    chosen = (m.rank < np.minimum(relevant, k)[m.query]) & (m.grade >= rel)
    return _share(m.per_query(chosen), relevant)


_FORMULAS: dict[str, Callable[[Matches, int, int], np.ndarray]] = {
    "nDCG": _ndcg,
    "AP": _average_precision,
    "RR": _reciprocal_rank,
    "Rprec": _r_precision,
    "P": lambda m, k, rel: _hits(m, k, rel) / k,
    "R": lambda m, k, rel: _share(_hits(m, k, rel), m.relevant(rel)),
    "R_cap": lambda m, k, rel: _share(_hits(m, k, rel), np.minimum(m.relevant(rel), k)),
    "Success": lambda m, k, rel: np.minimum(_hits(m, k, rel), 1.0),
    "Judged": lambda m, k, _: _share(m.per_query(m.rank < k), np.minimum(m.depths, k)),
}


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
    except Exception as e:  # its providers run other programs, which may fail in any way
        listed = ", ".join(map(str, measures))
        raise VizslaError(f"ir_measures cannot compute {listed} here ({type(e).__name__}: {e})") from None
    for metric in metrics:
        values[names[metric.measure]][places[metric.query_id]] = float(metric.value)
    for measure, figures in values.items():
        if not np.isfinite(figures).all():  # neither a mean nor a test can be computed then
            query = list(places)[int(np.flatnonzero(~np.isfinite(figures))[0])]
            raise VizslaError(f"ir_measures has no number for {measure} on the query {query!r}; leave {measure} out")
    return values
