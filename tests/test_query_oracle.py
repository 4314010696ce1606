"""A few random lives of a collection against the definition of the query language; `make query-fuzz` has many."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from queries import Definition, Node, Part, lucene_length, query_text
from query_fuzz import garbage, survives
from query_oracle import KINDS, Oracle
from vizsla.models.statistics import lucene_codes, lucene_lengths
from vizsla.runs.query_language import MUST, MUST_NOT, SHOULD


@pytest.mark.parametrize("kind", KINDS)
def test_searches_of_a_life_are_those_of_the_definition(kind: str, tmp_path: Path) -> None:
    compared: Counter[str] = Counter()
    rng = random.Random(kind)
    for positions in (False, True):
        oracle = Oracle(tmp_path / str(positions), rng.randrange(1 << 32), compared, kind, positions=positions)
        try:
            oracle.live(5, 4)
            for _ in range(20):
                survives(oracle.index, garbage(rng))
        finally:
            oracle.close()
    assert compared["all that is found"] > 40
    assert compared.total() > 150


# The definition itself, on documents that can be looked at

DOCUMENTS = [
    {"id": "1", "title": "big dogs", "text": "big dogs run"},
    {"id": "2", "title": "cats", "text": "the dogs of old cats", "lang": "en"},
    {"id": "3", "title": "", "text": "art of the state", "lang": "de"},
]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(SHOULD, Node("word", "dog"))], ["1", "2"]),
        ([(MUST, Node("word", "dogs")), (MUST_NOT, Node("word", "cats"))], ["1"]),
        ([(SHOULD, Node("phrase", "big dogs"))], ["1"]),
        ([(SHOULD, Node("phrase", "dogs big"))], []),
        ([(SHOULD, Node("phrase", "dogs cats", steps=2))], ["2"]),
        ([(SHOULD, Node("word", "dogs", "title"))], ["1"]),
        ([(SHOULD, Node("prefix", "ca"))], ["2"]),
        ([(SHOULD, Node("fuzzy", "dig", steps=1))], ["1", "2"]),
        ([(SHOULD, Node("value", "de", "lang")), (SHOULD, Node("word", "the"))], ["3"]),
        ([(SHOULD, Node("group", parts=((MUST, Node("word", "old")), (SHOULD, Node("word", "big")))))], ["2"]),
    ],
)
def test_the_definition(parts: list[tuple[str, Node]], expected: list[str]) -> None:
    query = Node("group", parts=tuple(parts))
    assert list(Definition(DOCUMENTS).found(query)) == expected, query_text(query)


def test_the_definition_scores_as_the_formula_of_bm25_says() -> None:
    query = Node("group", parts=((SHOULD, Node("word", "dogs", boost=2.0)),))
    # Two of three documents have dog: idf = ln(1 + 1.5 / 2.5). Lengths are 5, 4 and 2, their mean is 11 / 3.
    found = Definition(DOCUMENTS).found(query)
    first = 2 / (2 + 0.9 * (0.6 + 0.4 * 5 / (11 / 3)))
    second = 1 / (1 + 0.9 * (0.6 + 0.4 * 4 / (11 / 3)))
    idf = 0.4700036292457356
    assert found == pytest.approx({"1": 2 * idf * first, "2": 2 * idf * second})
    plus = Definition(DOCUMENTS, [Part(plus=True)]).found(query)
    assert plus["1"] == pytest.approx(2 * 0.6931471805599453 * (1.9 * first + 1))


def test_lengths_are_those_that_lucene_keeps() -> None:
    lengths = [0, 1, 39, 40, 41, 42, 43, 100, 1000, 12345]
    assert [lucene_length(n) for n in lengths] == lucene_lengths()[lucene_codes(np.array(lengths))].tolist()
