"""The engine against exhaustive scoring, on random and adversarial collections."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    Queries,
    Query,
    Segment,
    TopDocuments,
    Weighting,
    Weightings,
    build_segment,
    search,
    search_many,
)
from vizsla.engine.blocks import RANGE_SIZE

NORMS = np.array([0.0, 0.5, 1.0, 3.0])
SATURATING = Weighting(scale=1.9, shift=0.3, slope=0.9, floor=0.1, norms=NORMS)
WEIGHTINGS = [SATURATING, Weighting(scale=0.25)]


def exhaustive(
    rows: list[dict[int, int]],
    codes: np.ndarray,
    query: list[tuple[int, float]],
    weightings: list[Weighting],
    k: int,
    allowed: list[bool] | None = None,
) -> list[tuple[int, np.float32]]:
    """Score every document by the definition; terms below 1000 are of namespace 0, others of namespace 1."""
    scored = []
    for number, row in enumerate(rows):
        total, shared = 0.0, False
        for term, weight in query:
            if term in row:
                space = int(term >= 1000)
                value = weightings[space].weigh(np.array([row[term]]), codes[space, [number]])[0]
                total += weight * float(value)
                shared = True
        if shared and (allowed is None or allowed[number]):
            scored.append((number, np.float32(total)))
    return sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:k]


def build(rows: list[dict[int, int]], codes: np.ndarray, first: int = 0) -> Segment:
    """One segment of the rows, namespace by namespace."""
    blocks = [[{t: v for t, v in row.items() if (t >= 1000) == bool(space)} for row in rows] for space in (0, 1)]
    flat = [row for block in blocks for row in block]
    pointers = np.concatenate([[0], np.cumsum([len(row) for row in flat])])
    indices = np.array([t for row in flat for t in row], np.int64)
    values = np.array([v for row in flat for v in row.values()], np.int64)
    return build_segment(np.arange(first, first + len(rows)), codes, codes, pointers, indices, values)


def run(
    segments: list[Segment], query: list[tuple[int, float]], k: int, allowed: list[np.ndarray] | None = None
) -> list[tuple[int, np.float32]]:
    return pairs_of(search(segments, encoded(query), Weightings.pack(WEIGHTINGS), k, allowed))


def encoded(query: list[tuple[int, float]]) -> Query:
    terms = np.array([t for t, _ in query], np.int64)
    weights = np.array([w for _, w in query], np.float64)
    return Query(terms, (terms >= 1000).astype(np.int64), weights)


def pairs_of(hits: TopDocuments) -> list[tuple[int, np.float32]]:
    return list(zip(hits.numbers.tolist(), hits.scores, strict=True))


TERMS = st.one_of(st.integers(0, 12), st.integers(1000, 1006))
ROWS = st.lists(st.dictionaries(TERMS, st.one_of(st.integers(1, 3), st.integers(1, 100_000)), max_size=8), max_size=40)
WEIGHT = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, -1.0, 1e-300, -0.5]), st.floats(-5, 5, allow_nan=False), st.floats(0.01, 9)
)
QUERY = st.dictionaries(TERMS, WEIGHT, max_size=10).map(lambda q: list(q.items()))


@given(
    rows=ROWS, query=QUERY, k=st.integers(1, 50), cuts=st.lists(st.integers(0, 40), max_size=3), seed=st.integers(0, 9)
)
def test_search_equals_exhaustive_scoring(
    rows: list[dict[int, int]], query: list[tuple[int, float]], k: int, cuts: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(NORMS), (2, len(rows)))
    allowed = rng.random(len(rows)) < 0.6
    bounds = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    parts = [(a, b) for a, b in pairwise(bounds) if b > a]
    segments = [build(rows[a:b], codes[:, a:b], a) for a, b in parts]
    assert run(segments, query, k) == exhaustive(rows, codes, query, WEIGHTINGS, k)
    masks = [allowed[a:b] for a, b in parts]
    assert run(segments, query, k, masks) == exhaustive(rows, codes, query, WEIGHTINGS, k, allowed.tolist())


@given(
    rows=ROWS, queries=st.lists(QUERY, max_size=6), k=st.integers(1, 50), cut=st.integers(0, 40), gap=st.integers(0, 2)
)
def test_many_queries_at_once(
    rows: list[dict[int, int]], queries: list[list[tuple[int, float]]], k: int, cut: int, gap: int
) -> None:
    """Also some without terms, with weights that bounds do not work for, and with numbers that are left out."""
    codes = np.ones((2, len(rows)), np.int64)
    segments = [build(rows[a:z], codes[:, a:z], first) for a, z, first in ((0, cut, 0), (cut, len(rows), cut + gap))]
    numbers = [i if i < cut else i + gap for i in range(len(rows))]
    wanted = [[(numbers[n], s) for n, s in exhaustive(rows, codes, query, WEIGHTINGS, k)] for query in queries]
    one_by_one = [encoded(query) for query in queries]
    together = Queries.of([query.row for query in one_by_one]) if queries else []
    for given_queries in (one_by_one, together):
        found = search_many(segments, given_queries, Weightings.pack(WEIGHTINGS), k)
        assert list(map(pairs_of, found)) == wanted


@pytest.mark.parametrize("k", [10, 10**6])
def test_many_ranges_and_ties(k: int) -> None:
    rng = np.random.default_rng(5)
    count = 3 * RANGE_SIZE + 17
    codes = rng.integers(1, 3, (2, count))
    rows: list[dict[int, int]] = [{} for _ in range(count)]
    for term, share in [(0, 0.5), (1, 0.01), (2, 0.0005), (1000, 0.2)]:
        for d in np.flatnonzero(rng.random(count) < share):
            rows[d][term] = int(rng.integers(1, 4))
    query = [(0, 0.4), (1, 2.0), (2, 5.0), (1000, 0.1), (77, 3.0)]
    assert run([build(rows, codes)], query, k) == exhaustive(rows, codes, query, WEIGHTINGS, k)


def test_thousands_of_query_terms() -> None:
    rng = np.random.default_rng(3)
    rows = [{int(t): 1 for t in rng.choice(999, 30, replace=False)} for _ in range(50)]
    codes = np.ones((2, 50), np.int64)
    query = [(t, float(w)) for t, w in zip(range(5000), rng.random(5000), strict=True) if t < 999 or t > 2000]
    assert run([build(rows, codes)], query, 10) == exhaustive(rows, codes, query, WEIGHTINGS, 10)


def test_nothing_in_nothing_out() -> None:
    empty = build([], np.zeros((2, 0), np.int64))
    assert run([], [(1, 1.0)], 5) == []
    assert run([empty], [(1, 1.0)], 5) == []
    assert run([build([{1: 1}], np.ones((2, 1), np.int64))], [], 5) == []
    assert run([build([{1: 1}], np.ones((2, 1), np.int64))], [(2, 1.0)], 5) == []


def test_weights_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        run([build([{1: 1}], np.ones((2, 1), np.int64))], [(1, float("nan"))], 5)


def test_values_take_one_byte_where_they_fit() -> None:
    codes = np.ones((2, 1), np.int64)
    assert build([{1: 255}], codes).large.values.dtype == np.uint8
    assert build([{1: 256}], codes).large.values.dtype == np.uint16
    assert build([{1: 1 << 16}], codes).large.values.dtype == np.uint32
    with pytest.raises(ValueError, match="negative"):
        build([{1: -3}], codes)


def test_ties_with_segments_out_of_order_and_a_full_heap() -> None:
    codes = np.ones((2, 200), np.int64)
    late, early = build([{1: 1}] * 200, codes, first=1000), build([{1: 1}] * 200, codes, first=0)
    assert [n for n, _ in run([late, early], [(1, 1.0)], 70)] == list(range(70))
    assert [n for n, _ in run([late, early], [(1, 1.0)], 201)] == [*range(200), 1000]
