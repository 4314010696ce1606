"""COIL in the engine: the best are exactly those of comparing every query token with every equal token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    DamagedSegmentError,
    MatchQuery,
    Query,
    Segment,
    VectorPostings,
    Weighting,
    Weightings,
    build_segment,
    convert_rows,
    exact_matches,
    search_many,
)
from vizsla.engine.posting_vectors import MergedVectorPostings
from vizsla.vectors import MatchTexts, TokenMatchVectors

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()] * 2)
STORES = ("float16", "sq8", "float32")


def postings_of(
    rng: np.random.Generator, counts: np.ndarray, width: int, store: str, *, grid: bool = False, tokens: int = 9
) -> VectorPostings:
    """Lists of documents with so many tokens each, few different ones; on a grid many products are equal."""
    size = int(counts.sum())
    rows = rng.integers(-2, 3, (size, width)) / 4 if grid else rng.normal(size=(size, width))
    terms = np.minimum(rng.geometric(0.3, size), tokens)
    vectors = convert_rows(rows.astype(np.float32), store)
    return VectorPostings.of(vectors, terms, np.append(0, np.cumsum(counts)))


def segments_of(
    rng: np.random.Generator, sizes: list[int], width: int, store: str, *, grid: bool, whole: bool
) -> list[Segment]:
    """Segments of two namespaces: words, and tokens with vectors, perhaps with a vector for each document."""
    made, first = [], 0
    for n in sizes:
        counts, tokens = rng.integers(0, 3, n), rng.integers(0, 7, n)
        indices = np.concatenate([*(rng.choice(9, c, replace=False) for c in counts), NOTHING]).astype(np.int64)
        dense = rng.integers(-2, 3, (n, 3)) / 2 * (tokens > 0)[:, None]
        made.append(
            build_segment(
                np.arange(first, first + n),
                np.zeros((2, n), np.int64),
                np.stack([counts, tokens]),
                np.concatenate([np.cumsum([0, *counts]), np.full(n, counts.sum())]),
                indices,
                rng.integers(1, 9, len(indices)),
                {1: dense.astype(np.float32)} if whole else {},
                matches={1: postings_of(rng, tokens, width, store, grid=grid)},
            )
        )
        first += n
    return made


def by_definition(postings: VectorPostings, query: MatchQuery, document: int) -> float | None:
    """The score of a document, number by number in 64 bits; None if it shares no token with the query."""
    total, shares = 0.0, False
    owners = np.repeat(postings.terms, np.diff(postings.starts))
    for term, vector in zip(query.terms.tolist(), query.vectors.astype(np.float64), strict=True):
        rows = postings.vectors[np.flatnonzero((owners == term) & (postings.documents == document))].astype(np.float64)
        if len(rows):
            total += max(np.add.accumulate(vector * row)[-1] for row in rows)
            shares = True
    return total if shares else None


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
        for space, match in query.matches.items():
            for d in range(len(segment)):
                score = by_definition(segment.matches[space], match, d)
                if score is not None:
                    sums[d] += match.weight * score
                    is_hit[d] = True
        chosen = np.flatnonzero(is_hit if mask is None else is_hit & mask).tolist()
        found += [(int(segment.numbers[d]), float(np.float32(sums[d]))) for d in chosen]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


@given(data=st.data())
def test_the_best_are_those_of_comparing_everything(data: st.DataObject) -> None:
    """Repeated tokens, equal scores, documents of no token, filters, tokens that do not occur, sums with words."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    grid, whole, width = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.integers(1, 9))
    segments = segments_of(rng, sizes, width, data.draw(st.sampled_from(STORES)), grid=grid, whole=whole)
    masks = [None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments]
    k = data.draw(st.integers(1, 60))
    queries = []
    for size in data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)):
        n = int(rng.integers(0, 3))
        vectors = rng.integers(-2, 3, (size, width)) / 2 if grid else rng.normal(size=(size, width))
        weight = data.draw(st.sampled_from((1.0, 0.25, -1.0, 0.0)))
        matches = {1: MatchQuery(rng.integers(0, 12, size), vectors.astype(np.float32), weight)}
        dense = {1: weight * rng.integers(-2, 3, 3).astype(np.float64)} if whole else {}
        terms = rng.choice(9, n, replace=False)
        queries.append(Query(terms, np.zeros(n, np.int64), 1 + rng.random(n), dense, matches=matches))
    for query, found in zip(queries, search_many(segments, queries, WEIGHTINGS, k, masks), strict=True):
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == exhaustive(
            segments, query, masks, k
        )


@pytest.mark.parametrize("whole", [False, True])
def test_long_lists_of_short_vectors_are_not_read(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds leave out a list that can change nothing, and the best are the same."""
    rng, n, width = np.random.default_rng(4), 30_000, 4
    counts = np.full(n, 4)
    rows = rng.normal(size=(4 * n, width)).astype(np.float32)
    terms = np.tile([1, 1, 1, 0], n)
    terms[3::4] = rng.integers(2, 3000, n)
    rows[terms == 1] *= 1e-4
    postings = VectorPostings.of(rows.astype(np.float16), terms, np.append(0, np.cumsum(counts)))
    dense = {0: rng.normal(size=(n, 3)).astype(np.float32)} if whole else {}
    lengths = np.full((1, n), 4)
    segment = build_segment(
        np.arange(n), lengths, lengths, np.zeros(n + 1, np.int64), NOTHING, NOTHING, dense, matches={0: postings}
    )
    vectors = rng.normal(size=(5, width)).astype(np.float32)
    matches = {0: MatchQuery(np.array([1, 7, 8, 9, 1]), vectors, 1.0)}
    query = Query(NOTHING, NOTHING, np.zeros(0), {0: rng.normal(size=3)} if whole else {}, matches=matches)
    from vizsla.engine import match_lists

    read = []
    add = match_lists._TokenList.add
    monkeypatch.setattr(match_lists._TokenList, "add", lambda own, *rest: read.append(len(own)) or add(own, *rest))
    (found,) = search_many([segment], [query], Weightings.pack([Weighting()]), 5)
    assert len(read) == 3
    assert max(read) < 100
    scores, _, _ = exact_matches(postings, np.arange(n), matches[0])
    if whole:
        scores = scores + segment.dense[0].astype(np.float64) @ query.dense[0]
    best = np.argsort(-scores.astype(np.float32), kind="stable")[:5]
    assert found.numbers.tolist() == best.tolist()
    assert np.allclose(found.scores, scores[best])


@pytest.mark.parametrize("store", STORES)
def test_merged_lists_are_those_of_the_living_documents(store: str) -> None:
    rng = np.random.default_rng(5)
    counts = [rng.integers(0, 5, n) for n in (30, 1, 20)]
    old = [postings_of(rng, some, 3, store) for some in counts]
    alive = [rng.random(len(some)) < 0.6 for some in counts]
    moved, count = [], 0
    for mask in alive:
        moved.append(np.where(mask, count + np.cumsum(mask) - 1, -1))
        count += int(mask.sum())
    merged = MergedVectorPostings.plan(old, moved)
    query = MatchQuery(np.arange(10), rng.normal(size=(10, 3)).astype(np.float32))
    wanted = np.concatenate(
        [exact_matches(one, np.flatnonzero(mask), query)[1] for one, mask in zip(old, alive, strict=True)]
    )
    for chunk in (1, 30, 10_000):
        pieces = list(merged.pieces(chunk))
        documents = np.concatenate([piece.documents for piece in pieces])
        rows = np.concatenate([piece.vectors[:].astype(np.float32) for piece in pieces])
        places = np.concatenate([piece.places for piece in pieces])
        assert (np.diff(places) >= 0).all()
        assert np.array_equal(np.bincount(places, minlength=len(merged.terms)), np.diff(merged.starts))
        norms = np.full(len(merged.terms), 1e9)
        lists = VectorPostings(merged.terms, merged.starts, norms, documents, rows)
        assert lists.is_sound(count)
        assert np.array_equal(exact_matches(lists, np.arange(count), query)[1], wanted)


def test_vectors_that_32_bits_cannot_multiply_are_still_exact() -> None:
    rng = np.random.default_rng(2)
    for store, scale in (("float32", 1e30), ("sq8", 1e30)):
        counts = rng.integers(0, 7, 30)
        rows = (rng.normal(size=(counts.sum(), 5)) * scale).astype(np.float32)
        terms = rng.integers(0, 5, len(rows))
        postings = VectorPostings.of(convert_rows(rows, store), terms, np.append(0, np.cumsum(counts)))
        lengths = np.stack([np.zeros(30, np.int64), counts])
        segment = build_segment(
            np.arange(30), 0 * lengths, lengths, np.zeros(61, np.int64), NOTHING, NOTHING, matches={1: postings}
        )
        vectors = 1e20 * rng.normal(size=(3, 5))
        query = Query(NOTHING, NOTHING, np.zeros(0), matches={1: MatchQuery(np.array([0, 1, 9]), vectors, 1e-20)})
        (found,) = search_many([segment], [query], WEIGHTINGS, 5)
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == exhaustive(
            [segment], query, [None], 5
        )


def test_damaged_lists_are_refused() -> None:
    rows = np.ones((4, 2), np.float16)
    sound = VectorPostings.of(rows, np.array([1, 2, 2, 2]), np.array([0, 2, 4]))
    assert sound.is_sound(2)
    assert not sound.is_sound(1)
    lengths = np.full((1, 2), 2)
    for changes in (
        {"documents": np.array([0, 0, 900, 1], np.uint32)},
        {"starts": np.array([0, 9, 4])},
        {"norms": sound.norms * np.nan},
    ):
        damaged = VectorPostings(**{**vars(sound), **changes})
        segment = build_segment(
            np.arange(2), lengths, lengths, np.zeros(3, np.int64), NOTHING, NOTHING, matches={0: damaged}
        )
        query = Query(NOTHING, NOTHING, np.zeros(0), matches={0: MatchQuery(np.array([2]), np.ones((1, 2)))})
        assert not damaged.is_sound(2)
        with pytest.raises(DamagedSegmentError):
            search_many([segment], [query], Weightings.pack([Weighting()]), 2)


def test_vectors_scale_and_do_not_concatenate() -> None:
    texts = MatchTexts([np.array([3, 4])], [np.eye(2)], np.zeros((1, 0)))
    vectors = TokenMatchVectors("a", texts)
    assert (2 * vectors).dot(vectors * 0.5).tolist() == [[2.0]]
    assert vectors.dot(TokenMatchVectors("b", texts)).tolist() == [[0.0]]
    with pytest.raises(ValueError, match="cannot be concatenated"):
        vectors + vectors
