"""Phrases and rows that are known: what is done the short way gives what the long way gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import Query, Weighting, Weightings, build_segment, search_rows
from vizsla.engine.packed_arrays import pack_arrays
from vizsla.engine.segment_list import SegmentList
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
