"""Rows that are asked for by number are scored as the definition says."""

from __future__ import annotations

import numpy as np
import pytest

from vizsla.engine import Query, Weighting, Weightings, build_segment, search_rows
from vizsla.engine.blocks import RANGE_SIZE


@pytest.mark.parametrize("rows_asked", [1, 7, 40_000])
def test_rows_are_scored_in_parts(rows_asked: int) -> None:
    """More rows than the memory of a thread holds: the scores are those of the definition."""
    rng = np.random.default_rng(3)
    count = 3 * RANGE_SIZE + 5
    terms = [np.sort(rng.choice(count, size, replace=False)) for size in (30, 900, 14_000, 30_000)]
    rows = np.concatenate(terms)
    indices = np.repeat(np.arange(len(terms)), [len(t) for t in terms])
    values = rng.integers(1, 7, len(rows))
    order = np.lexsort((indices, rows))
    pointers = np.searchsorted(rows[order], np.arange(count + 1))
    codes = rng.integers(0, 4, (1, count))
    segment = build_segment(np.arange(count), codes, codes, pointers, indices[order], values[order])
    weighting = Weighting(1.9, 0.3, 0.9, 0.1, np.array([0.0, 0.5, 1.0, 3.0]))
    weights = np.array([3.0, 2.0, 1.0, 0.5])
    expected = np.zeros(count)
    for term, weight in enumerate(weights):
        mine = indices == term
        expected[rows[mine]] += weight * weighting.weigh(values[mine], codes[0, rows[mine]])
    asked = np.sort(rng.choice(count, rows_asked, replace=False))
    query = Query(np.arange(4), np.zeros(4, np.int64), weights)
    hits = search_rows([segment], query, Weightings.pack([weighting]), [asked], rows_asked)
    best = asked[np.lexsort((asked, -expected[asked].astype(np.float32)))]
    assert hits.numbers.tolist() == best.tolist()
    assert hits.scores.tolist() == expected[best].astype(np.float32).tolist()
