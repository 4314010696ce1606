"""Late interaction in the engine: the best are exactly those of scoring every token of every document."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    DamagedSegmentError,
    Query,
    Segment,
    TokenQuery,
    TokenRows,
    Weighting,
    Weightings,
    build_segment,
    convert_rows,
    exact_max_sims,
    search_many,
)
from vizsla.engine.max_sim import max_sims
from vizsla.vectors import DenseVectors, SparseVectors, TokenVectors

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()] * 3)


def segments_of(
    rng: np.random.Generator, sizes: list[int], width: int, grid: bool, store: str, longest: int = 6
) -> list[Segment]:
    """Segments of three namespaces: words, a dense vector, token vectors; some documents lack one or another."""
    made, first = [], 0
    for n in sizes:
        counts = rng.integers(0, 3, n)
        indices = np.concatenate([*(rng.choice(9, c, replace=False) for c in counts), NOTHING]).astype(np.int64)
        pointers = np.concatenate([np.cumsum([0, *counts]), np.full(2 * n, counts.sum())])
        tokens = rng.integers(0, longest + 1, n)
        rows = [rng.integers(-2, 3, (m, width)) / 4 if grid else rng.normal(size=(m, width)) for m in (n, tokens.sum())]
        has_vector = rng.random(n) < 0.8
        made.append(
            build_segment(
                np.arange(first, first + n),
                np.zeros((3, n), np.int64),
                np.stack([counts, has_vector.astype(np.int64), tokens]),
                pointers,
                indices,
                rng.integers(1, 9, len(indices)),
                {1: (rows[0] * has_vector[:, None]).astype(np.float32)},
                {2: TokenRows(convert_rows(rows[1].astype(np.float32), store), np.cumsum([0, *tokens]))},
            )
        )
        first += n
    return made


def max_sim(query: np.ndarray, document: np.ndarray) -> float:
    """The definition, number by number in 64 bits."""
    total = 0.0
    for q in query.astype(np.float64):
        total += max(np.add.accumulate(q * d.astype(np.float64))[-1] for d in document)
    return total


def exhaustive(
    segments: list[Segment], query: Query, masks: list[np.ndarray | None], k: int
) -> list[tuple[int, float]]:
    found = []
    for segment, mask in zip(segments, masks, strict=True):
        sums, is_hit = np.zeros(len(segment)), np.zeros(len(segment), bool)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            documents, values = segment.list_of(term)
            sums[documents] += weight * values.astype(np.float64)
            is_hit[documents] = True
        for space, vector in query.dense.items():
            sums += np.einsum("ij,j->i", segment.dense[space][:].astype(np.float64), vector)
            is_hit |= segment.sizes[space] > 0
        for space, (vectors, weight) in query.tokens.items():
            for d in np.flatnonzero(segment.sizes[space]).tolist():
                sums[d] += weight * max_sim(vectors, segment.tokens[space].of(d))
            is_hit |= segment.sizes[space] > 0
        chosen = np.flatnonzero(is_hit if mask is None else is_hit & mask).tolist()
        found += [(int(segment.numbers[d]), float(np.float32(sums[d]))) for d in chosen]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


@given(data=st.data())
def test_the_best_are_those_of_scoring_everything(data: st.DataObject) -> None:
    """Equal scores, documents of no token, filters, negative weights, sums with words and dense vectors."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    grid, width = data.draw(st.booleans()), data.draw(st.integers(1, 9))
    segments = segments_of(rng, sizes, width, grid, data.draw(st.sampled_from(("float16", "sq8", "float32"))))
    masks = [None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments]
    k = data.draw(st.integers(1, 60))
    queries = []
    for size in data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)):
        n = int(rng.integers(0, 3))
        vectors = rng.integers(-2, 3, (size, width)) / 2 if grid else rng.normal(size=(size, width))
        tokens = {2: TokenQuery(vectors.astype(np.float32), data.draw(st.sampled_from((1.0, 0.25, -1.0, 0.0))))}
        dense = {1: rng.normal(size=width)} if data.draw(st.booleans()) else {}
        terms = rng.choice(9, n, replace=False)
        queries.append(Query(terms, np.zeros(n, np.int64), 1 + rng.random(n), dense, tokens))
    for query, found in zip(queries, search_many(segments, queries, WEIGHTINGS, k, masks), strict=True):
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == exhaustive(
            segments, query, masks, k
        )


def test_many_tokens_and_many_queries_are_multiplied_in_blocks() -> None:
    """A document of 10,000 tokens, and more query tokens than are multiplied at once."""
    rng = np.random.default_rng(1)
    counts = [3, 0, 10_000, 1, 700, 0]
    rows = rng.normal(size=(sum(counts), 4)).astype(np.float16)
    tokens = TokenRows(rows, np.cumsum([0, *counts]))
    queries = [rng.normal(size=(32, 4)).astype(np.float32) for _ in range(40)]
    documents = TokenVectors("t", rows, tokens.starts)
    expected = TokenVectors.of(queries, "t").dot(documents)
    assert np.allclose(max_sims(tokens, queries, 0, len(counts)), expected, atol=1e-3)
    assert np.allclose(max_sims(tokens, queries, 2, 4), expected[:, 2:4], atol=1e-3)
    scores, best, which = exact_max_sims(tokens, np.arange(len(counts)), queries[0], 10.0)
    assert np.allclose(scores, expected[0])
    assert np.allclose(best.sum(axis=1), scores)
    assert (which[[1, 5]] == -1).all()
    assert (which[3] == 0).all()
    assert which.max() < 10_000


def test_vectors_that_32_bits_cannot_multiply_are_still_exact() -> None:
    rng = np.random.default_rng(2)
    for store, scale in (("float32", 1e30), ("sq8", 1e30), ("float16", 1.0)):
        segments = segments_of(rng, [30], 5, False, store)
        rows = segments[0].tokens[2]
        scaled = TokenRows(convert_rows((rows.vectors[:].astype(np.float32) * np.float32(scale)), store), rows.starts)
        segment = Segment(**{**vars(segments[0]), "tokens": {2: scaled}})
        query = Query(NOTHING, NOTHING, np.zeros(0), {}, {2: TokenQuery(1e20 * rng.normal(size=(3, 5)), 1e-20)})
        (found,) = search_many([segment], [query], WEIGHTINGS, 5)
        expected = exhaustive([segment], query, [None], 5)
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == expected


def test_starts_that_go_back_are_damage() -> None:
    rows = TokenRows(np.zeros((4, 2), np.float16), np.array([0, 3, 1, 4]))
    assert rows.fits(3)
    with pytest.raises(DamagedSegmentError):
        max_sims(rows, [np.ones((1, 2), np.float32)], 0, 3)


def test_token_vectors_scale_and_do_not_concatenate() -> None:
    vectors = TokenVectors.of([np.eye(2), np.ones((1, 2))], "a")
    assert (2 * vectors).dot(vectors * 0.5).tolist() == [[2.0, 2.0], [1.0, 2.0]]
    assert vectors.dot(TokenVectors.of([np.eye(2)], "b")).tolist() == [[0.0], [0.0]]
    assert vectors[1].tolist() == [[1.0, 1.0]]
    others = DenseVectors.of(np.eye(2), "b"), SparseVectors.from_rows([{"x": 1.0}, {}], "c")
    for other in (*others, others[1] + others[0]):
        for one, two in ((vectors, other), (other, vectors)):
            with pytest.raises(ValueError, match="cannot be concatenated"):
                one + two
