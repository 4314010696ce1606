"""How alike two rankings are, without any judgements: rank-biased overlap, overlap, the consistency factor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.errors import VizslaError
from vizsla.runs import Run


def rbo(a: Sequence[str], b: Sequence[str], p: float = 0.9, depth: int = 100, *, extrapolated: bool = True) -> float:
    """Rank-biased overlap of two lists without ties (Webber, Moffat and Zobel, 2010).

    The agreement at each depth, weighted by p to the power of the depth. `extrapolated` assumes that what was seen
    goes on beyond the lists (their equation 32, for lists of different lengths); truncated, nothing counts there, so
    even equal lists stay below 1.

    >>> round(rbo(["a", "b", "c"], ["a", "c", "b"]), 4), round(rbo("abc", "abc"), 4)
    (0.955, 1.0)
    >>> round(rbo("abc", "abc", extrapolated=False), 4)
    0.271
    """
    if not 0 < p < 1:
        raise VizslaError(f"p of rank-biased overlap lies between 0 and 1, not {p:g}")
    short, long = sorted((list(a)[:depth], list(b)[:depth]), key=len)
    if len(set(short)) < len(short) or len(set(long)) < len(long):
        raise VizslaError("rank-biased overlap is for lists without repetitions")
    if not short:
        return 1.0 if extrapolated and not long else 0.0
    s, n = len(short), len(long)
    overlap = _overlaps(short, long)
    ranks = np.arange(1, n + 1)
    weights = p**ranks
    agreement = overlap / ranks
    if not extrapolated:
        return float((1 - p) / p * (agreement * weights).sum())
    tail = overlap[s - 1] * (ranks[s:] - s) / (s * ranks[s:])
    total = (agreement * weights).sum() + (tail * weights[s:]).sum()
    return float((1 - p) / p * total + ((overlap[-1] - overlap[s - 1]) / n + overlap[s - 1] / s) * p**n)


def _overlaps(short: list[str], long: list[str]) -> np.ndarray:
    """How many documents both have among their first d, for every d; the short list ends where it ends."""
    place = {document: i for i, document in enumerate(long)}
    common = np.zeros(len(long), np.int64)
    for i, document in enumerate(short):
        if document in place:
            common[max(i, place[document])] += 1
    return np.cumsum(common)


def overlap(a: Run, b: Run, depth: int = 10) -> dict[str, float]:
    """For each query of both, the share of the first `depth` documents, or of the longer list, they have in common."""
    shares = {}
    for query in a:
        if query in b:
            x, y = set(a[query].documents[:depth]), set(b[query].documents[:depth])
            shares[query] = len(x & y) / max(len(x), len(y)) if x or y else 1.0
    return shares


def rank_biased_overlap(
    a: Run, b: Run, p: float = 0.9, depth: int = 100, *, extrapolated: bool = True
) -> dict[str, float]:
    """RBO of two runs for each query of both."""
    return {
        q: rbo(a[q].documents, b[q].documents, p, depth, extrapolated=extrapolated) for q in a if q in b
    }  # fmt: skip


def consistency_factor(run: Run, pool: Run, depth: int, pool_depth: int = 1000) -> float:
    """The mean share of a run's first `depth` documents that are in the first `pool_depth` of another.

    The RepBERT paper's measure of how much a reranker trained on the pool (BM25's) is at home in the run.
    Queries count that both runs have; each share is over `depth`, or over what the run has if that is less.
    """
    shares = []
    for query in run:
        if query in pool and len(run[query]):
            known = set(pool[query].documents[:pool_depth])
            first = run[query].documents[:depth]
            shares.append(sum(d in known for d in first) / len(first))
    return float(np.mean(shares)) if shares else 0.0
