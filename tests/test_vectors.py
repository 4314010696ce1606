"""Sparse vectors, vocabularies and quantisers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Quantiser, VizslaError
from vizsla.vectors import SparseVectors, Vocabulary

ROWS = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.25, 8), max_size=5), min_size=1, max_size=6)


@given(a=ROWS, b=ROWS, weight=st.floats(0.5, 4))
def test_concatenation_adds_dot_products(a: list[dict[str, float]], b: list[dict[str, float]], weight: float) -> None:
    n = min(len(a), len(b))
    x, y = SparseVectors.from_rows(a[:n], "x"), SparseVectors.from_rows(b[:n], "y")
    both = x + weight * y
    assert np.allclose(both.dot(x + y), x.dot(x) + weight * y.dot(y))
    for i in range(n):
        assert both[i] == x[i] | {term: weight * v for term, v in y[i].items()}


def test_namespaces_never_collide() -> None:
    words, pieces = Vocabulary("words", ["cat"]), Vocabulary("pieces", ["cat"])
    assert (words + pieces).number("words", "cat") == 0
    assert (words + pieces).number("pieces", "cat") == 1
    assert (words + pieces).number("pieces", "dog") is None
    assert words != pieces
    with pytest.raises(ValueError, match="namespaces must differ"):
        words + words


def test_a_vocabulary_over_a_growing_list_stays_what_it_was() -> None:
    terms = ["a"]
    before = Vocabulary("x", terms)
    terms.append("b")
    assert len(before) == 1
    assert before == Vocabulary("x", ["a"])
    with pytest.raises(KeyError):
        before[1]


def test_rows_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="equally many rows"):
        SparseVectors.from_rows([{"a": 1}], "x") + SparseVectors.from_rows([], "y")


@pytest.mark.parametrize(
    ("text", "weights", "expected"),
    [
        ("range:5:256:ceil", [0.0, 0.01, 2.5], [0, 1, 128]),
        ("range:5:256:even", [0.009765625, 0.029296875], [0, 2]),  # 0.5 and 1.5 steps
        ("range:5:256:half-up", [0.009765625, 0.029296875], [1, 2]),
        ("range:1:100:even", [0.004, 1.239], [0, 124]),
        ("range:1:100:ceil", [0.001, 1.231], [1, 124]),
        ("minmax:8:1.0:3.0", [1.0, 2.0, 3.0], [1, 128, 256]),
    ],
)
def test_each_convention_rounds_its_way(text: str, weights: list[float], expected: list[int]) -> None:
    quantiser = Quantiser.parse(text)
    assert quantiser.quantise(np.array(weights)).tolist() == expected
    assert Quantiser.parse(str(quantiser)) == quantiser


@given(weights=st.lists(st.floats(0.001, 1000), min_size=1))
def test_minmax_fills_its_range_and_keeps_order(weights: list[float]) -> None:
    w = np.sort(np.array(weights))
    fitted = Quantiser.parse("minmax:8").fit(w)
    whole = fitted.quantise(w).astype(int)
    assert whole.min() >= 1
    assert whole[-1] == 256
    assert (np.diff(whole) >= 0).all()
    assert Quantiser.parse(str(fitted)) == fitted


def test_quantised_rows_drop_zeros() -> None:
    rows = SparseVectors.from_rows([{"a": 0.001, "b": 1.0}, {"a": 0.001}], "x")
    quantised = Quantiser.parse("range:1:100:even").quantise_rows(rows)
    assert [quantised[0], quantised[1]] == [{("x", "b"): 100.0}, {}]


@pytest.mark.parametrize("text", ["", "range:5:256", "range:5:256:up", "minmax:x", "b8"])
def test_wrong_quantisers_are_told(text: str) -> None:
    with pytest.raises(VizslaError, match="is not a quantiser"):
        Quantiser.parse(text)


def test_minmax_must_be_fitted() -> None:
    with pytest.raises(VizslaError, match="has to be fitted"):
        Quantiser.parse("minmax:8").quantise(np.array([1.0]))
    with pytest.raises(VizslaError, match="needs at least one weight"):
        Quantiser.parse("minmax:8").fit(np.array([]))
