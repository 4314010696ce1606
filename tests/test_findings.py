"""Significance, agreement, answers, domains: each against a second way of computing it."""

from __future__ import annotations

import json
import lzma
import math
import tarfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import stdtr, stdtrit

from conftest import BESIDE
from vizsla import Run, VizslaError
from vizsla.evaluation import (
    accuracy,
    answer_rank,
    compare_values,
    consistency_factor,
    corrected,
    has_answer,
    overlap,
    rbo,
)
from vizsla.evaluation.domains import domain_map, similarity_matrix, weighted_jaccard
from vizsla.evaluation.significance import both_tails, critical_t, randomisation_test

VALUES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40)


@given(VALUES)
def test_the_t_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    a, b = ({str(i): pair[side] for i, pair in enumerate(pairs)} for side in (0, 1))
    differences = np.array([y - x for x, y in pairs])
    if np.ptp(differences) < 1e-6:
        return
    found = compare_values(a, b)
    theirs = stats.ttest_rel(list(b.values()), list(a.values()))
    assert found.p == pytest.approx(theirs.pvalue, abs=1e-9)
    low, high = theirs.confidence_interval(0.95)
    assert found.interval == pytest.approx((low, high), abs=1e-9)
    assert found.wins + found.ties + found.losses == len(pairs)


@given(st.integers(1, 100_000), st.floats(0, 1e6))
def test_students_distribution_is_scipys(freedom: int, t: float) -> None:
    assert both_tails(t, freedom) == pytest.approx(2 * stdtr(freedom, -t), rel=1e-8, abs=1e-300)
    assert critical_t(freedom) == pytest.approx(stdtrit(freedom, 0.975), rel=1e-10)


def test_the_randomisation_test_counts_all_signs_where_it_can() -> None:
    differences = np.array([0.3, 0.1, 0.2, -0.1, 0.0])
    theirs = stats.permutation_test(
        (differences[:4],), lambda x: x.sum(), permutation_type="samples", n_resamples=np.inf
    )
    assert randomisation_test(differences) == pytest.approx(theirs.pvalue)
    many = np.random.default_rng(1).normal(0.05, 0.2, 200)
    assert randomisation_test(many) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.02)
    assert randomisation_test(np.ones(60)) == pytest.approx(1 / 10_001)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_corrections_hold_their_order(p: list[float]) -> None:
    bonferroni, holm, bh = (np.array(corrected(p, c)) for c in ("bonferroni", "holm", "bh"))
    assert (bonferroni + 1e-12 >= holm).all()
    assert (holm + 1e-12 >= bh).all()
    assert (bh + 1e-12 >= np.array(p)).all()
    assert bh == pytest.approx(stats.false_discovery_control(p), abs=1e-9)


def test_comparing_needs_the_same_queries() -> None:
    with pytest.raises(VizslaError, match="same queries"):
        compare_values({"a": 1.0}, {"b": 1.0})
    with pytest.raises(VizslaError, match="did you mean 't-test'"):
        compare_values({"a": 1.0}, {"a": 1.0}, "ttest")
    equal = compare_values({"a": 1.0, "b": 0.5}, {"a": 1.0, "b": 0.5})
    assert (equal.p, equal.effect, equal.moved) == (1.0, 0.0, ())
    constant = compare_values({"a": 0.0, "b": 0.5}, {"a": 0.5, "b": 1.0})
    assert (constant.p, constant.effect) == (0.5, None)
    assert compare_values({"a": 0.0}, {"a": 0.5}).interval is None
    assert corrected([1e-20, 0.5]) == [2e-20, 0.5]


def summed_rbo(a: list[str], b: list[str], p: float, depth: int) -> float:
    """The definition, summed up to a depth."""
    return sum((1 - p) * p ** (d - 1) * len(set(a[:d]) & set(b[:d])) / d for d in range(1, depth + 1))


@given(st.permutations(list("abcdefgh")), st.permutations(list("cdefghij")), st.floats(0.05, 0.97))
def test_truncated_rbo_is_its_definition(a: list[str], b: list[str], p: float) -> None:
    assert rbo(a, b, p, extrapolated=False) == pytest.approx(summed_rbo(a, b, p, 8))
    extrapolated = summed_rbo(a, b, p, 8) + len(set(a) & set(b)) / 8 * p**8
    assert rbo(a, b, p) == pytest.approx(extrapolated)


def test_rbo_of_lists_of_different_length() -> None:
    """Equation 32 of Webber and others, written out."""
    short, long, p = ["a", "b"], ["b", "c", "a"], 0.9
    x2, x3 = 1, 2  # overlaps at depths 2 and 3, at 1 there is none
    agreement = 0 * p + x2 / 2 * p**2 + x3 / 3 * p**3
    tail = x2 * (3 - 2) / (2 * 3) * p**3
    expected = (1 - p) / p * (agreement + tail) + ((x3 - x2) / 3 + x2 / 2) * p**3
    assert rbo(short, long, p) == pytest.approx(expected)
    assert rbo(long, short, p) == rbo(short, long, p)
    assert (rbo([], []), rbo([], ["a"]), rbo(["a"], ["b"])) == (1.0, 0.0, 0.0)
    with pytest.raises(VizslaError, match="between 0 and 1"):
        rbo(["a"], ["a"], 1.0)


def test_overlap_and_consistency() -> None:
    a = Run({"q": [("x", 3.0), ("y", 2.0), ("z", 1.0)], "r": [("x", 1.0)], "s": []})
    b = Run({"q": [("z", 3.0), ("x", 2.0), ("w", 1.0)], "s": []})
    assert overlap(a, b, 2) == {"q": 0.5, "s": 1.0}
    assert overlap(a, Run({"q": [("x", 1.0)]}), 3) == {"q": pytest.approx(1 / 3)}
    with pytest.raises(VizslaError, match="without repetitions"):
        rbo(["a", "a"], ["a"])
    assert consistency_factor(a, b, 2, pool_depth=2) == 0.5
    assert consistency_factor(a, b, 3) == pytest.approx(2 / 3)
    assert consistency_factor(Run({}), b, 3) == 0.0


def independent_has_answer(text: str, answers: list[str]) -> bool:
    """DPR's matching by another road: the regex module's Unicode classes, and lists compared word by word."""
    import unicodedata

    import regex

    pattern = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)

    def words(value: str) -> list[str]:
        return [m.group().lower() for m in pattern.finditer(unicodedata.normalize("NFD", value))]

    inside = words(text)
    for answer in answers:
        wanted = words(answer)
        if wanted and any(inside[i : i + len(wanted)] == wanted for i in range(len(inside) - len(wanted) + 1)):
            return True
    return False


TEXTS = st.text(st.sampled_from("aáÁbB1२ -'.’\u0301\u200d€\n\tßΣς中"), max_size=30)


@given(TEXTS, st.lists(TEXTS, max_size=3))
def test_answers_match_as_a_second_implementation_says(text: str, answers: list[str]) -> None:
    pytest.importorskip("regex")
    assert has_answer(text, answers) == independent_has_answer(text, answers)


def test_answers_match_on_real_pairs() -> None:
    pytest.importorskip("regex")
    questions = BESIDE / "data" / "openqa-questions.tar.xz"
    passages = BESIDE / "data" / "wiki-enwiki15.tar.xz"
    if not questions.is_file() or not passages.is_file():
        pytest.skip("the questions and passages of open-domain question answering are not here")
    texts = _first_lines(passages, "corpus.jsonl", 500)
    asked = _first_lines(questions, "dpr-trivia-test.jsonl", 2000)
    answers = [record["metadata"]["answers"] for record in asked]
    rng, agreed, found = Random(5), 0, 0
    words = [text["text"].split() for text in texts]
    for i in range(2000):
        passage, wanted = rng.randrange(len(texts)), answers[i % len(answers)]
        if i % 3 == 0:  # a stretch of the passage itself, so that many match
            first = rng.randrange(max(len(words[passage]) - 3, 1))
            wanted = [" ".join(words[passage][first : first + rng.randint(1, 3)]).strip(".,;") or "x"]
        ours = has_answer(texts[passage]["text"], wanted)
        agreed += ours == independent_has_answer(texts[passage]["text"], wanted)
        found += ours
    assert agreed == 2000
    assert 400 < found < 1600


def _first_lines(archive: Path, name: str, count: int) -> list[dict[str, object]]:
    with lzma.open(archive) as packed, tarfile.open(fileobj=packed, mode="r|") as members:
        for member in members:
            if member.name.endswith(name):
                file = members.extractfile(member)
                assert file is not None
                return [json.loads(line) for line, _ in zip(file, range(count), strict=False)]
    raise AssertionError(f"{name} is not in {archive}")


def test_answers_by_regular_expression_and_ranks() -> None:
    texts = ["Nothing here", "Built in 1889, PARIS"]
    ranks = {"q1": answer_rank(texts, ["paris"]), "q2": answer_rank(texts[1:], ["rome"]), "q3": answer_rank([], ["x"])}
    assert ranks == {"q1": 2, "q2": None, "q3": None}
    assert accuracy(ranks, [1, 2]) == {1: 0.0, 2: pytest.approx(1 / 3)}
    assert answer_rank(texts, [r"18\d\d"], regex=True) == 2
    assert not has_answer("x(", ["("], regex=True)  # no regular expression, so no match
    assert not has_answer("anything", ["  "])


def test_weighted_jaccard_and_the_map() -> None:
    a, b, c = {"x": 0.5, "y": 0.5}, {"x": 0.5, "y": 0.5}, {"z": 1.0}
    matrix = similarity_matrix([a, b, c])
    assert matrix.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert weighted_jaccard({}, {}) == 0.0
    places = domain_map(matrix)
    assert math.dist(places[0], places[1]) == pytest.approx(0, abs=1e-6)
    assert math.dist(places[0], places[2]) == pytest.approx(1)
    assert domain_map(np.eye(1)).tolist() == [[0, 0]]
