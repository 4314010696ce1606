"""Suffix arrays: n-grams are counted and found as by looking at every place of the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import DamagedSegmentError, SuffixArray
from vizsla.engine.suffix_array import BREAK, FIRST, LONGEST, TITLE, sort_suffixes, token_type
from vizsla.errors import StoppedError
from vizsla.stopping import Stop

VOCABULARIES = (100, 1 << 17)  # tokens of two and of four bytes
TEXTS = st.lists(st.integers(FIRST, FIRST + 3), max_size=12)
ROWS = st.lists(st.tuples(st.none() | TEXTS, TEXTS), max_size=8)


def row(title: list[int] | None, text: list[int]) -> list[int]:
    return [*([TITLE, *title, BREAK] if title is not None else []), *text, BREAK]


def places_of(tokens: list[int], ngram: list[int]) -> list[int]:
    """All places of an n-gram, which a break ends."""
    if BREAK in ngram[:-1]:
        return []
    return [p for p in range(len(tokens) + 1 - max(len(ngram), 1)) if tokens[p : p + len(ngram)] == ngram]


def order_of(tokens: list[int]) -> list[int]:
    """All places, sorted by what follows, up to the next break."""

    def following(place: int) -> tuple[list[int], int]:
        rest = tokens[place : place + LONGEST]
        return rest[: rest.index(BREAK) + 1] if BREAK in rest else rest, place

    return sorted(range(len(tokens)), key=following)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@given(ROWS, st.data())
def test_ngrams_are_found_as_by_looking_everywhere(vocabulary, rows, data):
    array = SuffixArray.of([row(*texts) for texts in rows], vocabulary).built()
    tokens = array.tokens.tolist()
    assert array.tokens.dtype == token_type(vocabulary)
    assert array.fits(len(rows))
    assert array.is_sound()
    assert array.order.tolist() == order_of(tokens)
    alive = np.array([data.draw(st.booleans()) for _ in rows], np.bool_)
    documents = np.repeat(np.arange(len(rows)), np.diff(array.starts))
    dead = array.ranks_of(np.flatnonzero(~alive))
    assert dead.tolist() == np.flatnonzero(~alive[documents[array.order]]).tolist()
    start = data.draw(st.integers(0, len(tokens)))
    present = tokens[start : start + data.draw(st.integers(0, 6))]
    for ngram in (present, data.draw(st.lists(st.integers(0, FIRST + 4), max_size=4))):
        places = places_of(tokens, ngram)
        found = array.find(ngram)
        assert sorted(array.order[found.first : found.end].tolist()) == places
        assert array.count(found) == len(places)
        assert array.count(found, dead) == sum(bool(alive[documents[p]]) for p in places)
        assert array.documents(found).tolist() == sorted({int(documents[p]) for p in places})
        assert array.documents(found, alive).tolist() == sorted(
            {int(documents[p]) for p in places if alive[documents[p]]}
        )
        split = len(ngram) // 2
        if BREAK not in ngram[:split]:
            assert array.find(ngram[split:], array.find(ngram[:split])) == found
        if not ngram or ngram[-1] != BREAK:
            for gone, living in ((None, np.ones_like(alive)), (dead, alive)):
                allowed = np.zeros(FIRST + 6, np.bool_)
                array.mark_next(found, allowed, gone)
                following = {tokens[p + len(ngram)] for p in places if p < len(tokens) and living[documents[p]]}
                assert set(np.flatnonzero(allowed).tolist()) == following


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_equal_texts_longer_than_the_longest_ngram(kind):
    text = [*([5] * 200), BREAK]
    tokens = np.array(text * 3 + [6, 5, 5, BREAK], kind)
    order = sort_suffixes(tokens)
    assert order.tolist() == order_of(tokens.tolist())


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_several_threads_sort_as_one_does(kind):
    rng = np.random.default_rng(0)
    tokens = np.minimum(rng.geometric(0.01, 600_000) + 1, 9000).astype(kind)
    tokens[rng.random(len(tokens)) < 0.01] = BREAK
    tokens[-1] = BREAK
    both = [sort_suffixes(tokens, threads) for threads in (1, 3)]
    assert (both[0] == both[1]).all()
    assert SuffixArray(tokens, np.array([0, len(tokens)]), both[0]).is_sound()


def test_a_title_is_an_ngram_of_its_own_kind():
    array = SuffixArray.of([row([5, 6], [7, 5, 6]), row([5], [5, 6, 8]), row(None, [5, 6])]).built()
    assert array.count(array.find([5, 6])) == 4
    assert array.documents(array.find([TITLE, 5, 6, BREAK])).tolist() == [0]
    assert array.documents(array.find([TITLE, 5])).tolist() == [0, 1]
    allowed = np.zeros(9, np.bool_)
    array.mark_next(array.find([TITLE, 5]), allowed)
    assert np.flatnonzero(allowed).tolist() == [BREAK, 6]


def test_nothing_and_too_much():
    empty = SuffixArray.of([]).built()
    assert empty.count(empty.find([5])) == len(empty) == 0
    assert empty.is_sound()
    array = SuffixArray.of([[], [BREAK], row(None, [5])]).built()
    assert array.documents(array.find([5])).tolist() == [2]
    with pytest.raises(ValueError, match="at most 64 tokens"):
        array.find([5] * (LONGEST + 1))
    allowed = np.zeros(9, np.bool_)
    array.mark_next(array.find([5] * LONGEST), allowed)
    assert not allowed.any()


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_damage_is_noticed(kind):
    rows = SuffixArray.of([row([5], [6, 7]), row(None, [5, 6])])
    tokens, starts = rows.tokens.astype(kind), rows.starts
    order = sort_suffixes(tokens)
    with pytest.raises(DamagedSegmentError):
        sort_suffixes(np.array([5], kind))  # no break at the end
    with pytest.raises(DamagedSegmentError):
        SuffixArray(tokens, starts).find([5])  # not sorted
    far = SuffixArray(tokens, starts, np.full(len(tokens), 1 << 31, np.uint32))
    for call in (
        lambda: far.find([5]),
        lambda: far.mark_next(far.all, np.zeros(9, np.bool_)),
        lambda: far.ranks_of(np.array([0])),
    ):
        with pytest.raises(DamagedSegmentError):
            call()
    with pytest.raises(DamagedSegmentError):
        SuffixArray(tokens, starts, order).mark_next(far.all, np.zeros(3, np.bool_))  # a token that cannot be
    assert not SuffixArray(tokens, starts, order[::-1].copy()).is_sound()
    assert not SuffixArray(tokens, starts, np.zeros_like(order)).is_sound()
    assert not SuffixArray(tokens, np.array([0, 2, len(tokens)]), order).is_sound()  # a row without a break at its end
    assert not SuffixArray(tokens, starts, order[:-1]).fits(2)


def test_sorting_and_looking_up_can_be_stopped():
    array = SuffixArray.of([row([5], [6] * 100)]).built()
    stop = Stop()
    stop.set("enough")
    with stop.active():
        for call in (
            lambda: sort_suffixes(array.tokens),
            lambda: array.documents(array.find([6])),
            lambda: array.ranks_of(np.array([0])),
        ):
            with pytest.raises(StoppedError, match="enough"):
                call()
