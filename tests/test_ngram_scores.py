"""SEAL in the engine: documents are scored by n-grams as the definition says, whatever segments they are in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    CollectionNgrams,
    DamagedSegmentError,
    NgramQuery,
    Query,
    Segment,
    SuffixArray,
    Weighting,
    Weightings,
    build_segment,
    ngram_shares,
    search_among,
    search_many,
)
from vizsla.engine.merge import Merge
from vizsla.engine.ngram_scores import best_ngram_scores, ngram_scores, rows_with_ngrams
from vizsla.engine.row_search import rows_with_a_score
from vizsla.engine.suffix_array import BREAK, FIRST, TITLE
from vizsla.errors import StoppedError
from vizsla.stopping import Stop

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()] * 2)
TOKEN = st.integers(FIRST, FIRST + 3)
TEXT = st.lists(TOKEN, max_size=10)
ROWS = st.lists(st.tuples(st.lists(TOKEN, max_size=3), TEXT), min_size=1, max_size=6)
NGRAM = st.one_of(
    st.lists(TOKEN, min_size=1, max_size=4).map(tuple),
    st.lists(TOKEN, max_size=2).map(lambda title: (TITLE, *title, BREAK)),
)
WEIGHTED = st.dictionaries(NGRAM, st.integers(1, 5).map(float), max_size=8)
VOCABULARIES = (100, 1 << 17)


def row(title: list[int], text: list[int]) -> list[int]:
    return [TITLE, *title, BREAK, *text, BREAK]


def shares_of(tokens: list[int], query: NgramQuery) -> list[float]:
    """What each n-gram adds to a document, word for word after the definition."""
    shares, taken, known = [], set(), set()
    for i in range(len(query)):
        ngram = query.ngram(i).tolist()
        places = [p for p in range(len(tokens) - len(ngram) + 1) if tokens[p : p + len(ngram)] == ngram]
        own = [set(range(p, p + len(ngram))) for p in places]
        share = 0.0
        if any(not place & taken for place in own):
            words = {token for token in ngram if token >= FIRST}
            new = len(words - known) / len(words) if words else 1.0
            share = float(query.weights[i]) * (1 - query.overlap + query.overlap * new)
            known |= words
        shares.append(share)
        taken.update(*own)
    return shares


def segment_of(array: SuffixArray, first: int = 0, dense: np.ndarray | None = None) -> Segment:
    """A segment whose first namespace has n-grams, and the second vectors."""
    count = len(array)
    sizes = np.stack([array.sizes(), np.ones(count, np.int64)])
    vectors = {} if dense is None else {1: dense}
    return build_segment(
        first + np.arange(count), np.zeros((2, count), np.uint8), sizes, np.zeros(2 * count + 1, np.int64), NOTHING,
        NOTHING, vectors, ngrams={0: array},
    )  # fmt: skip


def query_of(ngrams: NgramQuery, dense: np.ndarray | None = None) -> Query:
    return Query(NOTHING, NOTHING, np.zeros(0), {} if dense is None else {1: dense}, ngrams={0: ngrams})


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(ROWS, WEIGHTED, st.sampled_from([0.0, 0.8, 1.0]))
def test_scores_are_those_of_the_definition(vocabulary, rows, weighted, overlap):
    array = SuffixArray.of([row(*texts) for texts in rows], vocabulary).built()
    query = NgramQuery.of(list(weighted), list(weighted.values()), overlap, 2.0)
    expected = [shares_of(row(*texts), query) for texts in rows]
    everything = np.arange(len(rows))
    assert ngram_scores(array, everything, query) == pytest.approx([sum(shares) for shares in expected])
    for number, shares in enumerate(expected):
        assert ngram_shares(array, number, query).tolist() == pytest.approx(shares)
    hits = [number for number, shares in enumerate(expected) if any(shares)]
    assert rows_with_ngrams(array, query).tolist() == hits
    assert np.flatnonzero(rows_with_a_score(segment_of(array), query_of(query))).tolist() == hits


@pytest.mark.parametrize("few", [1, 256])
@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(WEIGHTED, min_size=1, max_size=4), st.data())
def test_the_best_by_bounds_are_the_best_of_all(few, rows, weighted, data):
    """Copies of few texts give ties and frequent n-grams; few documents at once give many rounds of bounds."""
    copies = data.draw(st.sampled_from([1, 3, 40]))
    tokens = [row(*texts) for some in rows for texts in some] * copies
    array = SuffixArray.of(tokens).built()
    weights = {ngram: weight * 10**i for i, some in enumerate(weighted) for ngram, weight in some.items()}
    query = NgramQuery.of(list(weights), list(weights.values()), data.draw(st.sampled_from([0.0, 0.8, 1.0])), 0.5)
    seed, scale = data.draw(st.integers(0, 1000)), data.draw(st.sampled_from([0.0, 1.0, 1000.0]))
    rng = np.random.default_rng(seed)
    touched = rng.random(len(tokens)) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    sums = np.where(touched, scale * rng.integers(-2, 5, len(tokens)), 0.0)
    mask = data.draw(st.sampled_from([None, rng.random(len(tokens)) < 0.5, np.zeros(len(tokens), np.bool_)]))
    totals = sums + query.weight * ngram_scores(array, np.arange(len(tokens)), query)
    found = touched.copy()
    found[rows_with_ngrams(array, query)] = True
    numbers = np.flatnonzero(found if mask is None else found & mask)
    for k in (1, 2, 10, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vizsla.engine.ngram_scores._BATCH", few)
            patch.setattr("vizsla.engine.ngram_scores._WORTH", data.draw(st.sampled_from([0, 1, 20, 10**6])))
            given_rows, scores = best_ngram_scores(array, query, sums, touched, mask, k)
        own, hits = sums.copy(), touched.copy()
        own[given_rows] += query.weight * scores
        hits[given_rows] = True
        known = np.flatnonzero(hits if mask is None else hits & mask)
        best, expected = (some[np.lexsort((some, -by[some]))][:k] for some, by in ((known, own), (numbers, totals)))
        assert best.tolist() == expected.tolist()
        assert own[best].tolist() == pytest.approx(totals[expected].tolist())


@given(ROWS, WEIGHTED, st.data())
def test_the_best_are_found_in_any_segments_with_and_without_vectors(rows, weighted, data):
    tokens = [row(*texts) for texts in rows]
    cut = data.draw(st.integers(0, len(rows)))
    parts = [part for part in (tokens[:cut], tokens[cut:]) if part]
    arrays = [SuffixArray.of(part).built() for part in parts]
    alive = np.array([data.draw(st.booleans()) for _ in rows], np.bool_)
    masks = [alive[:cut], alive[cut:]] if len(parts) == 2 else [alive]
    vectors = np.array([[data.draw(st.integers(-2, 2))] for _ in rows], np.float32)
    firsts = [0, cut][-len(parts) :] if len(parts) == 2 else [0]
    query = NgramQuery.of(list(weighted), list(weighted.values()), 0.5, 2.0)
    scores = [2.0 * sum(shares_of(some, query)) for some in tokens]
    for with_vectors in (False, True):
        dense = [vectors[a : a + len(array)] if with_vectors else None for a, array in zip(firsts, arrays, strict=True)]
        segments = [segment_of(array, a, own) for array, a, own in zip(arrays, firsts, dense, strict=True)]
        asked = query_of(query, np.array([1.5]) if with_vectors else None)
        totals = [s + 1.5 * float(v[0]) * with_vectors for s, v in zip(scores, vectors, strict=True)]
        found = [n for n in range(len(rows)) if alive[n] and (with_vectors or scores[n])]
        expected = sorted(found, key=lambda n: (-totals[n], n))
        for k in (1, 3, 10):
            (top,) = search_many(segments, [asked], WEIGHTINGS, k, masks)
            assert top.numbers.tolist() == expected[:k]
            assert top.scores.tolist() == pytest.approx([totals[n] for n in expected[:k]])
        some = np.array(found[::2], np.int64)
        among = search_among(segments, asked, WEIGHTINGS, some, 10)
        assert among.numbers.tolist() == [n for n in expected if n in found[::2]]


@given(ROWS, st.data())
def test_a_collection_in_segments_with_deletions_is_one_without(rows, data):
    tokens = [row(*texts) for texts in rows]
    cut = data.draw(st.integers(0, len(rows)))
    alive = np.array([data.draw(st.booleans()) for _ in rows], np.bool_)
    parts = [tokens[:cut], tokens[cut:]]
    masks = [None if mask.all() else mask for mask in (alive[:cut], alive[cut:])]
    several = CollectionNgrams([SuffixArray.of(part).built() for part in parts], masks)
    whole = SuffixArray.of([some for some, lives in zip(tokens, alive.tolist(), strict=True) if lives]).built()
    one = CollectionNgrams([whole], [None])
    for ngram in [(), *data.draw(st.lists(NGRAM, max_size=4))]:
        places = [ngrams.find(ngram) for ngrams in (several, one)]
        assert several.count(places[0]) == one.count(places[1])
        if not ngram or ngram[-1] != BREAK:
            following = [ngrams.next_tokens(place, 9) for ngrams, place in zip((several, one), places, strict=True)]
            assert following[0].tolist() == following[1].tolist()
    segments = [segment_of(SuffixArray.of(part), first) for part, first in zip(parts, (0, cut), strict=True) if part]
    if alive.any():
        merge = Merge.plan(
            segments, [mask for mask, part in zip((alive[:cut], alive[cut:]), parts, strict=True) if part]
        )
        merged = np.concatenate([*merge.ngram_pieces(0, 4), np.zeros(0, np.uint16)])
        assert merged.tolist() == whole.tokens.tolist()
        assert merge.ngram_starts(0).tolist() == whole.starts.tolist()


def test_no_ngrams_find_nothing():
    array = SuffixArray.of([row([5], [5, 6])]).built()
    (top,) = search_many([segment_of(array)], [query_of(NgramQuery.of([], [], 0.8))], WEIGHTINGS, 5)
    assert top.numbers.tolist() == []


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_damage_and_stops(vocabulary):
    array = SuffixArray.of([row([5], [5, 6]), row([6], [6])], vocabulary).built()
    query = NgramQuery.of([[5, 6], [6]], [2.0, 1.0], 0.8)
    wrong = SuffixArray(array.tokens, np.array([0, 900, len(array.tokens)]), array.suffixes)
    with pytest.raises(DamagedSegmentError):
        ngram_scores(wrong, np.array([0]), query)
    stop = Stop()
    stop.set("enough")
    with stop.active(), pytest.raises(StoppedError, match="enough"):
        ngram_scores(array, np.arange(2), query)
    with stop.active(), pytest.raises(StoppedError, match="enough"):
        best_ngram_scores(array, query, np.zeros(2), np.zeros(2, np.bool_), None, 1)
