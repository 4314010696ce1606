"""The formulas of the measures, for all queries at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vizsla.evaluation.matching import Matches
from vizsla.runs import Measure

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
