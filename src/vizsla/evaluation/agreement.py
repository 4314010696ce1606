"""How similar two rankings are, without judgements: rank-biased overlap, overlap, the consistency factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vizsla.errors import VizslaError
from vizsla.runs import Ranking, Run


def rbo(
    a: Sequence[str] | Ranking,
    b: Sequence[str] | Ranking,
    p: float = 0.9,
    depth: int = 100,
    *,
    extrapolated: bool = True,
) -> float:
    """Rank-biased overlap of two lists (Webber, Moffat and Zobel, 2010).

    The agreement at each depth, weighted by p to the power of the depth. `extrapolated` assumes that the agreement
    continues beyond the lists (their equation 32, for lists of different lengths); otherwise nothing counts there, so
    even equal lists stay below 1. In a `Ranking`, documents with equal scores share the first of their ranks, and the
    agreement is twice the common documents over the documents of both lists, as they propose for ties.

    >>> round(rbo(["a", "b", "c"], ["a", "c", "b"]), 4), round(rbo("abc", "abc"), 4)
    (0.955, 1.0)
    >>> round(rbo("abc", "abc", extrapolated=False), 4)
    0.271
    """
    if not 0 < p < 1:
        raise VizslaError(f"p of rank-biased overlap lies between 0 and 1, not {p:g}")
    if depth < 1:
        raise VizslaError(f"the depth of rank-biased overlap must be 1 or more, not {depth}")
    short, long = sorted((_places(a, depth), _places(b, depth)), key=len)
    if not short:
        return 1.0 if extrapolated and not long else 0.0
    s, n = len(short), len(long)
    ranks = np.arange(1, n + 1)
    weights = (1 - p) * p ** (ranks - 1)
    common = _counts((max(place, long[d]) for d, place in short.items() if d in long), n)
    sizes = _counts(short.values(), n), _counts(long.values(), n)
    if not extrapolated:
        return float((2 * common / (np.maximum(sizes[0], ranks) + sizes[1]) * weights).sum())
    at_end = 2 * common[s - 1] / (sizes[0][s - 1] + sizes[1][s - 1])
    unseen = np.maximum(ranks - s, 0)  # how many more documents the short list would have
    agreement = 2 * (common + at_end * unseen) / (sizes[0] + unseen + sizes[1])
    return float((agreement * weights).sum() + agreement[-1] * p**n)


def _places(documents: Sequence[str] | Ranking, depth: int) -> dict[str, int]:
    """The first documents with their ranks from 0, equal scores sharing the first of theirs."""
    if isinstance(documents, Ranking):
        names, scores = documents.documents[:depth], documents.scores[:depth]
        new = np.ones(len(names), np.bool_)
        new[1:] = scores[1:] < scores[:-1]
        ranks = np.maximum.accumulate(np.where(new, np.arange(len(names)), 0)).tolist()
    else:
        names = list(documents)[:depth]
        ranks = list(range(len(names)))
    places = dict(zip(names, ranks, strict=True))
    if len(places) < len(names):
        raise VizslaError("rank-biased overlap is for lists without repetitions")
    return places


def _counts(places: Iterable[int], depth: int) -> np.ndarray:
    """How many of the ranks are below d, for each d from 1 to the depth."""
    return np.cumsum(np.bincount(np.fromiter(places, np.int64), minlength=depth))


def overlap(a: Run, b: Run, depth: int = 10) -> dict[str, float]:
    """For each query of both runs, the share of the first `depth` documents, or of the longer list, that both have."""
    shares = {}
    for query in a:
        if query in b:
            x, y = set(a[query].documents[:depth]), set(b[query].documents[:depth])
            shares[query] = len(x & y) / max(len(x), len(y)) if x or y else 1.0
    return shares


def rank_biased_overlap(
    a: Run, b: Run, p: float = 0.9, depth: int = 100, *, extrapolated: bool = True
) -> dict[str, float]:
    """The rank-biased overlap of two runs, for each query that both have."""
    return {q: rbo(a[q], b[q], p, depth, extrapolated=extrapolated) for q in a if q in b}


def consistency_factor(run: Run, pool: Run, depth: int, pool_depth: int = 1000) -> float:
    """The mean share of a run's first `depth` documents that are in the first `pool_depth` of another.

    The RepBERT paper uses it to see how well a reranker trained on the pool (BM25's) fits the run. Only queries of
    both runs count. Each share is over `depth`, or over the length of the run's ranking if that is less.
    """
    return consistency_curve(run, pool, [depth], pool_depth)[depth]


def consistency_curve(run: Run, pool: Run, depths: Sequence[int], pool_depth: int = 1000) -> dict[int, float]:
    """The consistency factor at several depths: the RepBERT paper's figure 2.

    >>> run, pool = Run({"q": [("a", 3.0), ("b", 2.0), ("c", 1.0)]}), Run({"q": [("a", 2.0), ("c", 1.0)]})
    >>> consistency_curve(run, pool, [1, 2])
    {1: 1.0, 2: 0.5}
    """
    if min(depths, default=0) < 1 or pool_depth < 1:
        raise VizslaError("consistency is measured at depths of 1 or more")
    shares = []
    for query in run:
        if query in pool and len(run[query]):
            known = set(pool[query].documents[:pool_depth])
            shared = np.cumsum([d in known for d in run[query].documents[: max(depths)]])
            reached = np.minimum(depths, len(shared))
            shares.append(shared[reached - 1] / reached)
    means = np.mean(shares, axis=0) if shares else np.zeros(len(depths))
    return dict(zip(depths, means.tolist(), strict=True))
