"""Blocks with many postings are bitmaps: everything finds in them what it would find in plain blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_ranges import BM25_LIKE, LINEAR, Collection, assert_equal, random_queries
from vizsla.engine import (
    Merge,
    Query,
    Weighting,
    Weightings,
    build_segment,
    by_document,
    live_frequencies,
    live_frequencies_without,
    rows_with_all,
    rows_with_any,
    search_many,
)
from vizsla.engine.blocks import (
    MANY,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    WORDS,
    unpack_bitmap,
    value_in_bitmap,
    with_bitmaps,
)


def random_block(seed: int, count: int, share_of_fours: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    offsets = np.sort(rng.choice(RANGE_SIZE, count, replace=False))
    values = np.where(rng.random(count) < share_of_fours, 4, rng.integers(1, 4, count))
    return (offsets | ((values - 1) << RANGE_BITS)).astype(np.uint16)


@given(
    seed=st.integers(0, 99),
    count=st.one_of(st.integers(MANY, RANGE_SIZE), st.sampled_from([MANY - 1, MANY, RANGE_SIZE])),
    fours=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
)
def test_a_bitmap_gives_back_its_postings(seed: int, count: int, fours: float) -> None:
    block = random_block(seed, count, fours)
    starts, stored = with_bitmaps(np.array([0, 1, count + 1]), np.append(np.uint16(7), block))
    a, z = starts[1:].tolist()
    assert stored[0] == 7
    if count < MANY:
        assert stored[a:z].tolist() == block.tolist()
        return
    values = (block >> RANGE_BITS) + 1
    assert z - a == WORDS + np.count_nonzero(values == 4)
    out = np.empty(RANGE_SIZE, np.uint16)
    assert unpack_bitmap(stored, a, z, out) == count
    assert out[:count].tolist() == block.tolist()
    wanted = dict(zip((block & OFFSET_MASK).tolist(), values.tolist(), strict=True))
    some = [*range(0, RANGE_SIZE, 331), *wanted][: 2 * RANGE_SIZE // 331]  # all over the range, and postings
    assert [value_in_bitmap(stored, a, z, offset) for offset in some] == [wanted.get(offset, 0) for offset in some]


@pytest.fixture(scope="module")
def collection() -> Collection:
    """So many ranges that a first threshold is guessed; half of the terms have bitmaps."""
    collection = Collection(11, 9 * RANGE_SIZE + 77, 12, 9)
    assert len(collection.segments[0].small.postings) < len(collection.segments[0].small)
    return collection


@pytest.mark.parametrize(
    "weighting", [BM25_LIKE, LINEAR, Weighting(shift=0.3, slope=2.5, floor=0.1, norms=BM25_LIKE.norms)]
)
def test_searches_in_bitmaps_are_exact(collection: Collection, weighting: Weighting) -> None:
    rng = np.random.default_rng(4)
    mask = rng.random(len(collection.codes)) < 0.05
    weightings, queries = Weightings.pack([weighting]), random_queries(rng, 12, 15)
    for k in (1, 10, 300, 3000):
        for query, hits in zip(queries, search_many(collection.segments, queries, weightings, k), strict=True):
            assert_equal(hits, collection.exhaustive(query, weighting, k))
        found = search_many(collection.segments, queries, weightings, k, [mask])
        for query, hits in zip(queries, found, strict=True):
            assert_equal(hits, collection.exhaustive(query, weighting, k, mask))


@pytest.mark.parametrize("best", [4, 0, 8])
def test_a_first_threshold_that_is_too_high_does_no_harm(best: int) -> None:
    """All good documents are in one range. If the threshold is guessed from it, the search starts again."""
    collection = Collection(12, 9 * RANGE_SIZE, 9, 9)
    first = best * RANGE_SIZE
    collection.values[:first] = np.minimum(collection.values[:first], 1)
    collection.values[first + RANGE_SIZE :] = np.minimum(collection.values[first + RANGE_SIZE :], 1)
    collection.codes[first : first + RANGE_SIZE] = 1
    segments = [collection._segment(0, len(collection.codes))]
    queries = random_queries(np.random.default_rng(5), 9, 8)
    for k in (10, 1000, RANGE_SIZE + 10):
        for query, hits in zip(queries, search_many(segments, queries, Weightings.pack([BM25_LIKE]), k), strict=True):
            assert_equal(hits, collection.exhaustive(query, BM25_LIKE, k))


@pytest.mark.parametrize("kept", [0.97, 0.4])
def test_merged_bitmaps_equal_those_of_a_segment_built_at_once(kept: float) -> None:
    """Deletions move documents to other ranges, and bitmaps become plain blocks."""
    collection = Collection(13, 3 * RANGE_SIZE + 11, 12, 9, (20_000, 20_003))
    alive = np.random.default_rng(6).random(len(collection.codes)) < kept
    merge = Merge.plan(collection.segments, [alive[s.numbers] for s in collection.segments])
    values = collection.values[alive]
    row, term = np.nonzero(values)
    codes = collection.codes[None, alive]
    pointers = np.append(0, np.cumsum(np.bincount(row, minlength=len(values))))
    expected = build_segment(np.flatnonzero(alive), codes, codes, pointers, term, values[row, term])
    for lists, wanted in ((merge.small, expected.small), (merge.large, expected.large)):  # all terms have small lists
        pieces, table = list(lists.pieces(5000)), wanted.table()
        assert np.array_equal(np.concatenate([p.postings for p in pieces]), wanted.postings)
        assert np.array_equal(np.concatenate([p.starts for p in pieces]), table.starts[:-1])
        assert (lists.size, lists.counts.tolist()) == (len(wanted.postings), table.counts.tolist())


def test_counts_of_living_documents(collection: Collection) -> None:
    (segment,), rng = collection.segments, np.random.default_rng(7)
    alive = rng.random(len(segment)) < 0.9
    counts = {t: int(n) for t, n in enumerate((collection.values[alive] > 0).sum(axis=0))}
    living = live_frequencies(segment, alive)
    assert segment.frequencies(np.arange(12), living).tolist() == [*counts.values()]
    without = live_frequencies_without(segment, None, np.flatnonzero(~alive))
    assert without.tolist() == living.tolist()
    assert segment.frequencies(np.arange(12)).tolist() == (collection.values > 0).sum(axis=0).tolist()


def test_rows_by_terms(collection: Collection) -> None:
    (segment,) = collection.segments
    for terms in ([0], [11], [0, 1], [2, 0, 9], [*range(12)]):
        has = collection.values[:, terms] > 0
        assert np.array_equal(rows_with_all(segment, np.array(terms)), np.flatnonzero(has.all(axis=1)))
        assert np.array_equal(rows_with_any(segment, np.array(terms)), has.any(axis=1))


def test_documents_come_back_from_bitmaps(collection: Collection) -> None:
    (segment,) = collection.segments
    first = 0
    for pointers, terms, values in by_document(segment):
        row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        again = np.zeros((len(pointers) - 1, 12), np.int64)
        again[row, terms] = values
        assert np.array_equal(again, collection.values[first : first + len(again)])
        first += len(again)
    documents, values = segment.list_of(0)
    assert np.array_equal(documents, np.flatnonzero(collection.values[:, 0]))
    assert np.array_equal(values, collection.values[documents, 0])


def test_a_query_of_one_dense_term(collection: Collection) -> None:
    for k in (1, 100, 20_000):
        query = Query(np.array([0]), np.array([0]), np.array([1.5]))
        (hits,) = search_many(collection.segments, [query], Weightings.pack([BM25_LIKE]), k)
        assert_equal(hits, collection.exhaustive(query, BM25_LIKE, k))
