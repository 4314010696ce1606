"""Where the judged documents are in the rankings, which is all that most measures need."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from vizsla.runs import Qrels, Ranking, Run

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
        """How many documents have at least a grade, for each query."""
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

    With `by_query` a judgement for the query itself counts, else one for any query. Short rankings are divided by the
    cutoff, too, as the beir package does.
    """
    anywhere = set() if by_query else {d for judged in qrels.judgements.values() for d in judged}
    shares = np.zeros(len(qrels.judgements))
    for i, (query, judged) in enumerate(qrels.judgements.items()):
        if query in run:
            documents = in_order(run[query], query, keep_ties=keep_ties, own_ids=own_ids)
            known = judged if by_query else anywhere
            shares[i] = sum(d not in known for d in documents[:cutoff]) / cutoff
    return shares
