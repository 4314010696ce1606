"""Phrases and rows that are known: what is done the short way gives what the long way gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import (
    DamagedSegmentError,
    PhrasePattern,
    Query,
    Segment,
    SegmentList,
    TermSequences,
    Weighting,
    Weightings,
    build_segment,
    rows_with_phrase,
    search_phrase,
    search_rows,
)
from vizsla.engine.packed_arrays import pack_arrays
from vizsla.runs.query_language import QuerySyntaxError, _Parser, parse_query

WEIGHTINGS = Weightings.pack([Weighting()])


def segments_of(values: list[list[int]]) -> SegmentList:
    """Segments of documents with one term, number 3, each with a value; equal values are ties."""
    segments, first = [], 0
    for some in values:
        sizes = np.ones((1, len(some)), np.int64)
        rows = np.arange(len(some) + 1), np.full(len(some), 3), np.array(some)
        segments.append(build_segment(np.arange(first, first + len(some)), sizes, sizes, *rows))
        first += len(some)
    return SegmentList(segments)


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=400), min_size=1, max_size=3),
    st.integers(1, 30),
    st.integers(1, 40),
)
def test_checking_the_best_first_finds_what_checking_all_finds(values: list[list[int]], k: int, kept: int) -> None:
    segments, query = segments_of(values), Query(np.array([3]), np.zeros(1, np.int64), np.ones(1))
    rows = [np.arange(len(some)) for some in values]
    asked: list[int] = []

    def check(s: int, some: np.ndarray) -> np.ndarray:
        asked.extend((some + segments.firsts[s]).tolist())
        return (some + s) % kept == 0

    found = search_rows(segments, query, WEIGHTINGS, rows, k, check)
    passing = [some[(some + s) % kept == 0] for s, some in enumerate(rows)]
    expected = search_rows(segments, query, WEIGHTINGS, passing, k)
    assert found.numbers.tolist() == expected.numbers.tolist()
    assert found.scores.tolist() == expected.scores.tolist()
    assert len(asked) == len(set(asked))
    scored = sorted((-float(v), n) for n, v in enumerate(v for some in values for v in some))
    everything = search_rows(segments, query, WEIGHTINGS, rows, k)
    assert list(zip((-everything.scores).tolist(), everything.numbers.tolist(), strict=True)) == scored[:k]


def test_few_rows_are_checked_where_many_pass() -> None:
    segments, query = (
        segments_of([[1 + i % 9 for i in range(5000)]]),
        Query(np.array([3]), np.zeros(1, int), np.ones(1)),
    )
    asked: list[int] = []

    def check(_: int, some: np.ndarray) -> np.ndarray:
        asked.extend(some.tolist())
        return np.ones(len(some), np.bool_)

    search_rows(segments, query, WEIGHTINGS, [np.arange(5000)], 10, check)
    assert len(asked) < 1000


BM25 = Weightings.pack([Weighting(slope=0.9, norms=np.linspace(0.6, 1.4, 32))])


def segment_of(texts: list[list[int]], first: int) -> Segment:
    """Documents of terms, with their sequences; one that occurs more than four times is in a large list."""
    counts = [np.unique(np.array(text, np.int64), return_counts=True) for text in texts]
    ends = np.cumsum([len(terms) for terms, _ in counts])
    sizes = np.array([[len(text) for text in texts]])
    postings = (np.concatenate([own[i] for own in counts]) for i in range(2))
    segment = build_segment(np.arange(first, first + len(texts)), sizes % 32, sizes, np.append(0, ends), *postings)
    flat = np.array([term for text in texts for term in text], np.int64)
    return replace(segment, sequences={0: TermSequences.join(flat, np.cumsum(sizes[0]), 1)})


def query_of(terms: list[int]) -> Query:
    different = list(dict.fromkeys(terms))
    return Query(np.array(different), np.zeros(len(different), np.int64), 1 + np.arange(len(different)) / 3)


def assert_finds_phrase(
    segments: SegmentList, pattern: PhrasePattern, k: int, masks: list[np.ndarray | None] | None = None
) -> int:
    """Hold `search_phrase` against its definition: the best of all rows that have the phrase; how many are found."""
    query = query_of(pattern.terms.tolist())
    rows = []
    for segment, mask in zip(segments, masks or [None] * len(segments), strict=True):
        allowed = np.arange(len(segment)) if mask is None else np.flatnonzero(mask)
        rows.append(allowed[rows_with_phrase(segment.sequences[0], allowed, pattern)])
    expected = search_rows(segments, query, BM25, rows, k)
    found = search_phrase(segments, query, BM25, pattern, 0, k, masks)
    assert found is not None
    assert found.numbers.tolist() == expected.numbers.tolist()
    assert found.scores.tolist() == expected.scores.tolist()
    return len(found.numbers)


TEXTS = st.lists(st.lists(st.integers(0, 4), max_size=24), min_size=1, max_size=30)


@given(
    st.lists(TEXTS, min_size=1, max_size=3),
    st.lists(st.integers(0, 4), min_size=2, max_size=4),
    st.integers(0, 3),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_one_kernel_finds_what_a_phrase_is_defined_to_find(
    collections: list[list[list[int]]], terms: list[int], slop: int, k: int, left_out: int
) -> None:
    firsts = np.cumsum([0, *map(len, collections)]).tolist()
    segments = SegmentList([segment_of(texts, at) for texts, at in zip(collections, firsts, strict=False)])
    masks = [np.arange(len(segment)) % 4 >= left_out for segment in segments] if left_out else None
    assert_finds_phrase(segments, PhrasePattern.of(terms, range(len(terms)), slop), k, masks)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def large_segment() -> SegmentList:
    """Three ranges of documents, with frequent and rare terms: some are looked up, some are read from their lists."""
    rng = np.random.default_rng(1)
    lengths, shares = rng.integers(2, 12, 40_000), np.array([0.5, 0.3, 0.15, 0.03, 0.015, 0.004, 0.001])
    terms = rng.choice(len(shares), lengths.sum(), p=shares)
    return SegmentList([segment_of([part.tolist() for part in np.split(terms, np.cumsum(lengths)[:-1])], 100)])


@pytest.mark.parametrize("k", [1, 10, 700])
def test_phrases_in_several_ranges(large_segment: SegmentList, k: int) -> None:
    rng = np.random.default_rng(k)
    finding = 0
    for _ in range(60):
        terms = [*rng.integers(0, 7, rng.integers(1, 4)).tolist(), int(rng.integers(4, 7))]  # the last has no bitmaps
        offsets = np.append(0, np.cumsum(rng.integers(1, 3, len(terms) - 1))).tolist()
        finding += assert_finds_phrase(large_segment, PhrasePattern.of(terms, offsets), k) > 0
    assert finding > 20


def test_phrases_that_are_found_in_another_way(large_segment: SegmentList) -> None:
    pattern = PhrasePattern.of([0, 1], [0, 1])
    assert search_phrase(large_segment, query_of([0, 1]), BM25, pattern, 0, 1001) is None
    assert search_phrase(large_segment, query_of([0, 1, 2]), BM25, pattern, 0, 10) is None
    assert search_phrase(large_segment, query_of([0, 1]), BM25, pattern, 1, 10) is None
    assert search_phrase(large_segment, query_of([0, 1]), BM25, pattern, 0, 10) is None, "both have bitmaps"
    many = PhrasePattern.of(range(17), range(17))
    assert search_phrase(large_segment, query_of(list(range(17))), BM25, many, 0, 10) is None


def test_damaged_sequences_are_refused(large_segment: SegmentList) -> None:
    sequences = large_segment[0].sequences[0]
    for numbers, starts in ((sequences.numbers[:50], sequences.starts), (sequences.numbers, -1 - sequences.starts)):
        segment = replace(large_segment[0], sequences={0: TermSequences(numbers, starts)})
        with pytest.raises(DamagedSegmentError):
            search_phrase([segment], query_of([0, 4]), BM25, PhrasePattern.of([0, 4], [0, 1]), 0, 10)


def test_a_table_takes_plain_arrays_only() -> None:
    with pytest.raises(ValueError, match="one or two dimensions and lie in C order"):
        pack_arrays(np.zeros((4, 4))[:, 1])


@given(st.text(st.sampled_from('ab "~^\\()+-:é\n'), max_size=12))
def test_a_phrase_alone_is_read_as_the_parser_reads_it(text: str) -> None:
    query = f'"{text}"'
    try:
        expected: object = _Parser(query).parse()
    except QuerySyntaxError as e:
        expected = str(e)
    try:
        assert parse_query(query) == expected
    except QuerySyntaxError as e:
        assert str(e) == expected  # noqa: PT017 (either is right)
