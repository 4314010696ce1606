"""Where in the rankings the judged documents are: all that most measures need to know."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from vizsla.runs import Qrels, Ranking, Run

UNJUDGED = -(1 << 30)


@dataclass(frozen=True, eq=False)
class Matches:
    """For the judged queries, in their order, every judged document that was found: query, rank from 0, grade.

    Sparse, since of a thousand documents found a handful are judged; so all queries are computed at once.
    """

    queries: list[str]
    depths: np.ndarray
    """How many documents were found."""
    query: np.ndarray
    rank: np.ndarray
    grade: np.ndarray
    judged_query: np.ndarray
    judged_grade: np.ndarray
    """All judgements, found or not."""

    def relevant(self, least: int) -> np.ndarray:
        """For each query how many documents have at least this grade."""
        return np.bincount(self.judged_query[self.judged_grade >= least], minlength=len(self.queries))

    def per_query(self, chosen: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Sums by query over the documents chosen by a mask."""
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
        found = np.fromiter(map(qrels.judgements[query].get, documents, repeat(UNJUDGED)), np.int64, len(documents))
        here = np.flatnonzero(found != UNJUDGED)
        ranks.append(here)
        grades.append(found[here])
        sizes[i] = len(here)
    empty = [np.zeros(0, np.int64)]
    counts = [len(judged) for judged in qrels.judgements.values()]
    return Matches(
        queries, depths,
        np.repeat(np.arange(len(queries)), sizes), np.concatenate(ranks or empty), np.concatenate(grades or empty),
        np.repeat(np.arange(len(queries)), counts),
        np.array([g for judged in qrels.judgements.values() for g in judged.values()], np.int64),
    )  # fmt: skip


def in_order(ranking: Ranking, query: str, *, keep_ties: bool, own_ids: bool) -> list[str]:
    """The documents as trec_eval sorts them: by score as a 32-bit float, then by id descending; own ids kept or not."""
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
    """For each judged query the share of its first `cutoff` documents that nobody has judged.

    Judged for the query itself, or for any query at all. Short rankings are divided by the cutoff all the same, as
    the beir package does.
    """
    anywhere = set() if by_query else {d for judged in qrels.judgements.values() for d in judged}
    shares = np.zeros(len(qrels.judgements))
    for i, (query, judged) in enumerate(qrels.judgements.items()):
        if query in run:
            documents = in_order(run[query], query, keep_ties=keep_ties, own_ids=own_ids)
            known = judged if by_query else anywhere
            shares[i] = sum(d not in known for d in documents[:cutoff]) / cutoff
    return shares
