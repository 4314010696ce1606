"""The engine on collections of many document ranges, against exhaustive scoring: pruning, ties, overflow, merging."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    DamagedSegmentError,
    Merge,
    PostingLists,
    Query,
    Segment,
    TopDocuments,
    Weighting,
    Weightings,
    build_segment,
    by_document,
    search_many,
)
from vizsla.engine.blocks import RANGE_SIZE
from vizsla.engine.list_directory import BlockTable, ListDirectory
from vizsla.engine.merge import Piece
from vizsla.engine.posting_lists import pack

BM25_LIKE = Weighting(slope=0.9, norms=0.6 + 0.4 * np.arange(64) / 20)
LINEAR = Weighting(scale=0.01)


class Collection:
    """Random documents with Zipf's law in their terms, as one matrix of values to score by the definition."""

    def __init__(self, seed: int, documents: int, terms: int, most: int, cuts: tuple[int, ...] = ()) -> None:
        rng = np.random.default_rng(seed)
        shares = 0.6 / np.arange(1, terms + 1) ** 0.8
        self.values = np.where(rng.random((documents, terms)) < shares, rng.geometric(0.6, (documents, terms)), 0)
        self.values = np.minimum(self.values * (1 if most < 10 else rng.integers(1, most, terms)), most)
        self.codes = rng.integers(1, 64, documents)
        self.segments = [self._segment(a, z) for a, z in zip((0, *cuts), (*cuts, documents), strict=True)]

    def _segment(self, a: int, z: int) -> Segment:
        row, term = np.nonzero(self.values[a:z])
        pointers = np.append(0, np.cumsum(np.bincount(row, minlength=z - a)))
        codes = self.codes[None, a:z]
        return build_segment(np.arange(a, z), codes, codes, pointers, term, self.values[a:z][row, term])

    def exhaustive(self, query: Query, weighting: Weighting, k: int, mask: np.ndarray | None = None) -> TopDocuments:
        sums, touched = np.zeros(len(self.codes)), np.zeros(len(self.codes), np.bool_)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            at = np.flatnonzero(self.values[:, term])
            sums[at] += weight * weighting.weigh(self.values[at, term], self.codes[at])
            touched[at] = True
        hits = np.flatnonzero(touched if mask is None else touched & mask)
        with np.errstate(over="ignore"):
            rounded = sums[hits].astype(np.float32)
        best = np.lexsort((hits, -rounded))[:k]
        return TopDocuments(hits[best], rounded[best])


def assert_equal(found: TopDocuments, expected: TopDocuments) -> None:
    assert found.numbers.tolist() == expected.numbers.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


def random_queries(rng: np.random.Generator, terms: int, count: int) -> list[Query]:
    out = []
    for _ in range(count):
        chosen = rng.choice(terms, int(rng.integers(1, 9)), replace=False)
        weights = np.log1p(chosen + 1) * rng.random(len(chosen)) + 0.01
        out.append(Query(chosen, np.zeros(len(chosen), np.int64), weights))
    return out


@pytest.mark.parametrize(("weighting", "most"), [(BM25_LIKE, 9), (LINEAR, 255), (LINEAR, 60_000)])
@pytest.mark.parametrize("cuts", [(), (20_000, 20_001, 41_000)])
def test_many_ranges(weighting: Weighting, most: int, cuts: tuple[int, ...]) -> None:
    collection = Collection(3, 3 * RANGE_SIZE + 500, 40, most, cuts)
    rng = np.random.default_rng(4)
    mask = rng.random(len(collection.codes)) < 0.02
    masks = [mask[s.numbers] for s in collection.segments]
    weightings = Weightings.pack([weighting])
    queries = random_queries(rng, 40, 25)
    for k in (1, 10, 200, 5000):
        for query, hits in zip(queries, search_many(collection.segments, queries, weightings, k), strict=True):
            assert_equal(hits, collection.exhaustive(query, weighting, k))
        for query, hits in zip(queries, search_many(collection.segments, queries, weightings, k, masks), strict=True):
            assert_equal(hits, collection.exhaustive(query, weighting, k, mask))


@pytest.mark.parametrize("weighting", [BM25_LIKE, LINEAR])
def test_small_values_in_large_lists(weighting: Weighting) -> None:
    """As learned weights are: one in ten is below 5, and the large list has it, too."""
    collection, rng = Collection(8, 2 * RANGE_SIZE + 70, 12, 9), np.random.default_rng(9)
    collection.values = np.where(collection.values, rng.integers(1, 41, collection.values.shape), 0)
    segment = collection._segment(0, len(collection.codes))
    assert len(segment.small) == 0
    queries = random_queries(rng, 12, 10)
    for k in (1, 10, 1000):
        for query, hits in zip(queries, search_many([segment], queries, Weightings.pack([weighting]), k), strict=True):
            assert_equal(hits, collection.exhaustive(query, weighting, k))


def test_more_equal_documents_than_there_is_room_for_candidates() -> None:
    """All have the same bound, so none can be dropped without being scored."""
    count = 6 * RANGE_SIZE + 9
    codes = np.ones((1, count), np.int64)
    segment = build_segment(
        np.arange(count), codes, codes, np.arange(count + 1), np.zeros(count, np.int64), np.ones(count, np.int64)
    )
    query = Query(np.array([0]), np.array([0]), np.array([2.0]))
    for k in (1, 10, RANGE_SIZE + 1, count):
        (hits,) = search_many([segment], [query], Weightings.pack([BM25_LIKE]), k)
        assert hits.numbers.tolist() == list(range(k))
        assert len(set(hits.scores.tolist())) == 1


@pytest.mark.parametrize("weights", [[1e9, 1e-3], [1e-190, 3e-190], [1e150, 1e-150], [1.0, 1e-12]])
def test_weights_far_apart(weights: list[float]) -> None:
    collection = Collection(5, RANGE_SIZE + 300, 6, 9)
    query = Query(np.array([1, 4]), np.zeros(2, np.int64), np.array(weights))
    for k in (5, 500):
        (hits,) = search_many(collection.segments, [query], Weightings.pack([BM25_LIKE]), k)
        assert_equal(hits, collection.exhaustive(query, BM25_LIKE, k))


@pytest.mark.slow
def test_more_length_codes_than_bounds_tell_apart() -> None:
    norms = 0.6 + 0.4 * np.arange(5000) / 100
    weighting = Weighting(slope=0.9, norms=norms)
    collection = Collection(6, RANGE_SIZE + 300, 10, 9)
    collection.codes = np.random.default_rng(1).integers(0, 5000, len(collection.codes))
    segments = [collection._segment(0, len(collection.codes))]
    queries = random_queries(np.random.default_rng(2), 10, 10)
    for query, hits in zip(queries, search_many(segments, queries, Weightings.pack([weighting]), 20), strict=True):
        assert_equal(hits, collection.exhaustive(query, weighting, 20))


def test_long_documents_do_not_hide_better_ones() -> None:
    """Beyond the lengths bounds tell apart a bound says little about the score."""
    weighting = Weighting(slope=0.9, norms=0.6 + 0.4 * np.arange(5001) / 100)
    codes = np.array([[5000, 400]])
    rows = np.array([0, 1, 2]), np.array([0, 0]), np.array([4, 1])
    segment = build_segment(np.arange(2), codes, codes, *rows)
    query = Query(np.array([0]), np.array([0]), np.array([1.0]))
    (hits,) = search_many([segment], [query], Weightings.pack([weighting]), 1)
    assert hits.numbers.tolist() == [1]


@pytest.mark.parametrize("weight", [1e-60, 1e-44, 1e60, 1e-199])
def test_sums_that_are_equal_only_as_scores(weight: float) -> None:
    codes = np.ones((1, 4), np.int64)
    rows = np.arange(5), np.zeros(4, np.int64), np.array([1, 1, 1, 4])
    segment = build_segment(np.arange(4), codes, codes, *rows)
    query = Query(np.array([0]), np.array([0]), np.array([weight]))
    (hits,) = search_many([segment], [query], Weightings.pack([Weighting()]), 1)
    with np.errstate(over="ignore"):
        scores = (weight * np.array([1.0, 1, 1, 4])).astype(np.float32)
    assert hits.numbers.tolist() == [int(np.argmax(scores))]


def test_damaged_maxima_never_lead_outside() -> None:
    codes = np.ones((1, 2 * RANGE_SIZE), np.int64)
    values = np.full(2 * RANGE_SIZE, 200)
    rows = np.arange(2 * RANGE_SIZE + 1), np.zeros(2 * RANGE_SIZE, np.int64), values
    sound = build_segment(np.arange(2 * RANGE_SIZE), codes, codes, *rows)
    query = Query(np.array([0]), np.array([0]), np.array([1.0]))
    for top in (6.0, 0.0, -1.0, np.nan, np.inf):
        large = replace(sound.large, maxima=np.array([top]))
        damaged = replace(sound, large=large)
        if top == 6.0:
            search_many([damaged], [query], Weightings.pack([LINEAR]), 3)
        else:
            with pytest.raises(DamagedSegmentError):
                search_many([damaged], [query], Weightings.pack([LINEAR]), 3)


def test_approximate_search_only_by_name() -> None:
    collection = Collection(7, 4 * RANGE_SIZE, 60, 9)
    weightings, queries = Weightings.pack([BM25_LIKE]), random_queries(np.random.default_rng(8), 60, 40)
    exact = search_many(collection.segments, queries, weightings, 10)
    assert [h.numbers.tolist() for h in search_many(collection.segments, queries, weightings, 10, expected=1.0)] == [
        h.numbers.tolist() for h in exact
    ]
    recalls = []
    for query, hits, truth in zip(
        queries, search_many(collection.segments, queries, weightings, 10, expected=0.2), exact, strict=True
    ):
        every = collection.exhaustive(query, BM25_LIKE, 10**9)
        scores = dict(zip(every.numbers.tolist(), every.scores.tolist(), strict=True))
        assert [scores[n] for n in hits.numbers.tolist()] == hits.scores.tolist()
        recalls.append(len(np.intersect1d(hits.numbers, truth.numbers)) / len(truth))
    assert 0.5 < np.mean(recalls) <= 1


ROW = st.dictionaries(st.integers(0, 30), st.one_of(st.integers(1, 6), st.integers(1, 70_000)), max_size=6)


@given(rows=st.lists(ROW, max_size=30), stride=st.sampled_from([1, 700, 5000]))
def test_packed_lists_hold_what_was_packed(rows: list[dict[int, int]], stride: int) -> None:
    entries = sorted((t, d * stride, v) for d, row in enumerate(rows) for t, v in row.items())
    terms = np.array(sorted({t for t, *_ in entries}), np.int64)
    pointers = np.searchsorted([t for t, *_ in entries], [*terms, 31])
    documents, values = np.array([d for _, d, _ in entries], np.uint32), np.array([v for *_, v in entries], np.uint32)
    found = []
    for lists in pack(terms, pointers, documents, values):
        starts, some, counts = lists.unpack(30 * stride)
        lists.check()
        for i, term in enumerate(lists.terms.tolist()):
            part = slice(starts[i], starts[i + 1])
            found += [(term, d, v) for d, v in zip(some[part].tolist(), counts[part].tolist(), strict=True)]
    assert sorted(found) == entries


@given(
    rows=st.lists(ROW, min_size=1, max_size=40),
    cut=st.integers(0, 40),
    seed=st.integers(0, 5),
    chunk=st.integers(1, 50),
)
def test_merged_segments_equal_a_segment_built_at_once(
    rows: list[dict[int, int]], cut: int, seed: int, chunk: int
) -> None:
    alive = np.random.default_rng(seed).random(len(rows)) < 0.7
    bounds = [(a, z) for a, z in ((0, min(cut, len(rows))), (min(cut, len(rows)), len(rows))) if z > a]
    segments = [build_rows(rows[a:z], np.arange(a, z)) for a, z in bounds]
    merge = Merge.plan(segments, [alive[a:z] for a, z in bounds])
    living = np.flatnonzero(alive)
    expected = build_rows([rows[d] for d in living], living)
    assert merge.numbers.tolist() == living.tolist()
    assert merged_postings(merge, chunk) == postings_of(expected.small, expected.large)


@pytest.mark.parametrize("weights", [False, True])
def test_merged_lists_of_one_kind_equal_those_of_a_segment_built_at_once(*, weights: bool) -> None:
    """Terms that have small lists only or large ones only, in every segment."""
    rng = np.random.default_rng(4)
    rows = [{int(t): int(rng.integers(1, 5)) + 100 * weights for t in rng.integers(0, 30, 6)} for _ in range(40)]
    alive = rng.random(40) < 0.7
    merge = Merge.plan([build_rows(rows[a:z], np.arange(a, z)) for a, z in ((0, 15), (15, 40))], np.split(alive, [15]))
    living = np.flatnonzero(alive)
    expected = build_rows([rows[d] for d in living], living)
    for lists, wanted in ((merge.small, expected.small), (merge.large, expected.large)):
        pieces, table = list(lists.pieces(9)), wanted.table()
        for part, array in (("ranges", table.ranges), ("postings", wanted.postings), ("values", wanted.values)):
            joined = np.concatenate([getattr(p, part) for p in pieces]) if pieces else np.zeros(0)
            assert joined.tolist() == array.tolist()
        starts = np.concatenate([*(p.starts for p in pieces), [lists.size]])
        assert lists.terms.tolist() == table.terms.tolist()
        assert lists.block_starts.tolist() == table.block_starts.tolist()
        assert (starts.tolist(), lists.maxima.tolist()) == (table.starts.tolist(), wanted.maxima.tolist())


def postings_of(*lists: PostingLists) -> list[tuple[int, int, float]]:
    """All postings of some lists: terms, documents and values. Maxima are checked, too."""
    found = []
    for some in lists:
        starts, documents, values = some.unpack(1 << 20)
        some.check()
        found += zip(np.repeat(some.terms, np.diff(starts)).tolist(), documents.tolist(), values.tolist(), strict=True)
        if len(some.maxima):
            assert some.maxima.tolist() == np.maximum.reduceat(values, starts[:-1]).tolist()
    return sorted(found)


def merged_postings(merge: Merge, chunk: int) -> list[tuple[int, int, float]]:
    """What the merged lists hold, small and large ones together."""
    both = []
    for lists in (merge.small, merge.large):
        pieces = list(lists.pieces(chunk))
        parts = [np.concatenate([getattr(p, name) for p in pieces] or [[]]) for name in Piece._fields]
        ranges, starts, postings, values = parts
        table = BlockTable(
            lists.terms, lists.block_starts, ranges.astype(np.uint16), np.append(starts, lists.size), lists.counts
        )
        both.append(
            PostingLists(
                ListDirectory.pack(table),
                postings.astype(np.uint16),
                values.astype(lists.value_type) if lists.has_values else np.zeros(0, np.uint8),
                lists.maxima,
            )
        )
    return postings_of(*both)


def build_rows(rows: list[dict[int, int]], numbers: np.ndarray) -> Segment:
    codes = np.ones((1, len(rows)), np.int64)
    pointers = np.append(0, np.cumsum([len(r) for r in rows])).astype(np.int64)
    terms = np.array([t for r in rows for t in r], np.int64)
    return build_segment(
        numbers, codes, codes, pointers, terms, np.array([v for r in rows for v in r.values()], np.int64)
    )


def test_rows_of_documents_come_back() -> None:
    rows: list[dict[int, int]] = [{3: 1, 9: 700}, {}, {9: 2}]
    ((pointers, terms, values),) = by_document(build_rows(rows, np.arange(3)))
    assert [dict(zip(terms[a:z].tolist(), values[a:z].tolist(), strict=True)) for a, z in pairwise(pointers)] == rows


@pytest.mark.parametrize(
    ("values", "small_count"), [([1, 9, 9, 9], 0), ([1, 2, 9, 9], 2), ([1, 9, 9], 1), ([0.5, 1], 1)]
)
def test_a_term_with_few_small_values_has_one_list(values: list[float], small_count: int) -> None:
    kind = np.float32 if isinstance(values[0], float) else np.uint8
    documents = np.arange(len(values), dtype=np.uint32)
    small, large = pack(np.array([7]), np.array([0, len(values)]), documents, np.array(values, kind))
    assert (len(small), len(large)) == (small_count, len(values) - small_count)
    assert postings_of(small, large) == [(7, d, v) for d, v in enumerate(values)]


def test_two_bytes_a_posting() -> None:
    small, large = pack(
        np.array([1]), np.array([0, 3]), np.array([0, 1, RANGE_SIZE], np.uint32), np.array([1, 4, 5], np.uint8)
    )
    assert isinstance(small, PostingLists)
    assert (small.postings.nbytes, small.values.nbytes) == (4, 0)
    assert (large.postings.nbytes, large.maxima.tolist()) == (2, [5.0])


def test_documents_of_each_range_again() -> None:
    size = 2 * RANGE_SIZE + 5
    rng = np.random.default_rng(3)
    rows = [
        {int(t): int(v) for t, v in zip(rng.integers(0, 9, 3), rng.integers(1, 9, 3), strict=True)} for _ in range(40)
    ]
    kept = dict(zip(sorted(rng.choice(size, 40, replace=False).tolist()), rows, strict=True))
    segment = build_rows([kept.get(i, {}) for i in range(size)], np.arange(size))
    found = {}
    for doc_range, (pointers, terms, values) in enumerate(by_document(segment)):
        assert len(pointers) == min(RANGE_SIZE, size - doc_range * RANGE_SIZE) + 1
        for row in np.flatnonzero(np.diff(pointers)).tolist():
            own = slice(*pointers[row : row + 2].tolist())
            found[doc_range * RANGE_SIZE + row] = dict(zip(terms[own].tolist(), values[own].tolist(), strict=True))
    assert found == kept
