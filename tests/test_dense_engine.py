"""Dense vectors in the engine: the best are exactly those of scoring everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import Query, Segment, Weighting, Weightings, build_segment, convert_rows, search_many


def segments_of(
    rng: np.random.Generator,
    sizes: list[int],
    width: int,
    terms: int,
    grid: bool,
    scales: list[float] | None = None,
    form: str = "float32",
    length: int = 0,
) -> list[Segment]:
    """Segments of two namespaces: counted words, and dense vectors; some documents lack one or the other."""
    made, first = [], 0
    for n, scale in zip(sizes, scales or [1.0] * len(sizes), strict=True):
        counts = rng.integers(0, 4, n)
        rows = [rng.choice(terms, c, replace=False) for c in counts]
        pointers = np.concatenate([np.cumsum([0, *counts]), np.full(n, counts.sum())])
        vectors = rng.integers(-2, 3, (n, width)).astype(np.float32) if grid else rng.normal(size=(n, width))
        there = rng.random(n) < 0.9
        dense = {1: convert_rows((vectors * there[:, None] * scale).astype(np.float32), form)}
        indices = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)
        values = rng.integers(1, 9, len(indices))
        made.append(
            build_segment(
                np.arange(first, first + n),
                np.full((2, n), length),
                np.stack([counts, there.astype(np.int64)]),
                pointers,
                indices,
                values,
                dense,
            )
        )
        first += n
    return made


def exhaustive(
    segments: list[Segment], query: Query, masks: list[np.ndarray | None], k: int
) -> list[tuple[int, float]]:
    found = []
    for segment, mask in zip(segments, masks, strict=True):
        sums, touched = np.zeros(len(segment)), np.zeros(len(segment), bool)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            documents, values = segment.list_of(term)
            sums[documents] += weight * values.astype(np.float64)
            touched[documents] = True
        for space, vector in query.dense.items():
            sums += np.einsum("ij,j->i", segment.dense[space][:].astype(np.float64), vector)
            touched |= segment.sizes[space] > 0
        chosen = np.flatnonzero(touched if mask is None else touched & mask).tolist()
        found += [(int(segment.numbers[d]), float(np.float32(sums[d]))) for d in chosen]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


@given(data=st.data())
def test_the_best_are_those_of_scoring_everything(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3))
    grid, width, terms = data.draw(st.booleans()), data.draw(st.integers(1, 9)), 12
    length = data.draw(st.sampled_from((0, 300)))  # a code that takes more than a byte; words are counted as they are
    segments = segments_of(rng, sizes, width, terms, grid, length=length)
    masks: list[np.ndarray | None] = [
        None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments
    ]
    k = data.draw(st.integers(1, 80))
    queries = []
    for _ in range(3):
        n = int(rng.integers(0, 4))
        chosen = rng.choice(terms, n, replace=False)
        vector = rng.integers(-2, 3, width).astype(np.float64) if grid else rng.normal(size=width)
        dense = {1: vector} if rng.random() < 0.8 else {}
        queries.append(Query(chosen, np.zeros(n, np.int64), 1 + rng.random(n), dense))
    weightings = Weightings.pack([Weighting(), Weighting()])
    hits = search_many(segments, queries, weightings, k, masks)
    for query, found in zip(queries, hits, strict=True):
        expected = exhaustive(segments, query, masks, k)
        assert found.numbers.tolist() == [number for number, _ in expected]
        assert found.scores.tolist() == [score for _, score in expected]


@given(data=st.data())
def test_the_best_are_exact_whatever_the_size_of_numbers(data: st.DataObject) -> None:
    """Segments, queries and words on scales of their own, up to those that 32 bits cannot multiply."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    form = data.draw(st.sampled_from(("float32", "float16", "sq8")))
    exponents = st.integers(-6, 3) if form == "float16" else st.integers(-42, 37)
    scales = data.draw(st.lists(exponents.map(lambda e: 10.0**e), min_size=1, max_size=3))
    segments = segments_of(rng, [int(n) for n in rng.integers(1, 60, len(scales))], 6, 12, False, scales, form)
    masks = [None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments]
    asked = rng.normal(size=(data.draw(st.sampled_from((1, 3, 9))), 6))
    asked *= 10.0 ** rng.choice([-300.0, -40.0, -3.0, 0.0, 5.0, 38.0, 200.0], (len(asked), 1))
    queries = []
    for vector in asked:
        n = int(rng.integers(0, 4))
        weights = (1 + rng.random(n)) * np.abs(vector).max() * rng.choice(scales)
        queries.append(Query(rng.choice(12, n, replace=False), np.zeros(n, np.int64), weights, {1: vector}))
    k = data.draw(st.integers(1, 20))
    hits = search_many(segments, queries, Weightings.pack([Weighting(), Weighting()]), k, masks)
    for query, found in zip(queries, hits, strict=True):
        with np.errstate(over="ignore"):
            expected = exhaustive(segments, query, masks, k)
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == expected


def test_long_vectors_beside_short_ones_are_not_missed() -> None:
    """Products with the long ones are far off in 32 bits: more so than the best of the short ones score."""
    rng = np.random.default_rng(0)
    vector = rng.normal(size=32)
    short = rng.normal(size=(3000, 32))
    short *= 1e-4 / np.linalg.norm(short, axis=1, keepdims=True)
    across = rng.normal(size=(400, 32))
    across -= (across @ vector / (vector @ vector))[:, None] * vector
    long = 1e6 * across / np.linalg.norm(across, axis=1, keepdims=True)
    nothing = np.zeros(0, np.int64)
    for vectors in ((short, long), (long, short)):
        segments, first = [], 0
        for rows in vectors:
            n, first = len(rows), first + len(rows)
            empty = np.zeros(n + 1, np.int64), nothing, nothing.astype(np.uint32)
            ones, zeros = np.ones((1, n), np.int64), np.zeros((1, n), np.int64)
            segments.append(
                build_segment(np.arange(first - n, first), zeros, ones, *empty, {0: rows.astype(np.float32)})
            )
        queries = [Query(nothing, nothing, np.zeros(0), {0: sign * vector}) for sign in (1, -1)]
        for query, found in zip(
            queries, search_many(segments, queries, Weightings.pack([Weighting()]), 3), strict=True
        ):
            expected = exhaustive(segments, query, [None, None], 3)
            assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == expected


def test_many_equal_documents_come_in_their_order() -> None:
    n, width = 30_000, 8
    vectors = np.ones((n, width), np.float32)
    vectors[17_000] = 2.0
    nothing = np.zeros(0, np.int64)
    sizes = np.ones((1, n), np.int64)
    rows = np.zeros(n + 1, np.int64), nothing, nothing.astype(np.uint32)
    segment = build_segment(np.arange(n), np.zeros((1, n), np.int64), sizes, *rows, {0: vectors})
    query = Query(nothing, nothing, np.zeros(0), {0: np.full(width, 0.1)})
    (hits,) = search_many([segment], [query], Weightings.pack([Weighting()]), 10)
    assert hits.numbers.tolist() == [17_000, *range(9)]
