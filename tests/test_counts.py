"""BM25 over counts that documents bring: scores against a plain computation, changes, sums, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from vizsla import BM25, Analyzer, Index, Model, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.index import verify
from vizsla.models import TermCounts, expression
from vizsla.models.statistics import lucene_codes, lucene_lengths

WORDS = ("dog", "dogs", "Cats", "cat", "the", "river", "state-of-the-art", "3.5")
COUNTS = st.dictionaries(st.sampled_from(WORDS), st.integers(0, 300), max_size=len(WORDS))
DOCUMENTS = [
    {"id": "1", "counts": {"dog": 12, "bark": 3}},
    {"id": "2", "counts": {"cat": 100, "dogs": 1}},
    {"id": "3", "counts": {"river": 4}},
]


def plain_scores(counts: dict[str, dict[str, int]], query: str, model: TermCounts) -> dict[str, float]:
    """BM25 over counts, the long way."""
    analyzer = Analyzer.parse("lucene-english")
    documents: dict[str, dict[str, int]] = {}
    for name, words in counts.items():
        terms: dict[str, int] = {}
        for word, count in words.items():
            for term in analyzer(word):
                both = terms.get(term, 0), count
                terms[term] = sum(both) if model.merge == "sum" else max(both)
        documents[name] = {term: count for term, count in terms.items() if count}
    lengths = {name: sum(terms.values()) for name, terms in documents.items()}
    alive = sum(length > 0 for length in lengths.values())
    average = sum(lengths.values()) / alive if alive else 1.0
    scores: dict[str, float] = {}
    for name, terms in documents.items():
        length = int(lucene_lengths()[lucene_codes(np.array([lengths[name]]))[0]])
        norm = model.k1 * (1 - model.b + model.b * length / average)
        for term in analyzer(query):
            if term in terms:
                df = sum(term in other for other in documents.values())
                idf = math.log(1 + (alive - df + 0.5) / (df + 0.5))
                scores[name] = scores.get(name, 0.0) + idf * terms[term] / (terms[term] + norm)
    return scores


@settings(max_examples=12)
@given(
    before=st.lists(COUNTS, min_size=1, max_size=6),
    after=st.lists(COUNTS, max_size=3),
    merge=st.sampled_from(["sum", "max"]),
    k1=st.sampled_from([0.9, 18.0]),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
)
def test_scores_are_those_of_the_long_way(
    before: list[dict[str, int]],
    after: list[dict[str, int]],
    merge: str,
    k1: float,
    query: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also after documents were replaced and deleted: idf and lengths are those of the documents that are alive."""
    model = TermCounts(k1=k1, b=0.7, merge=merge)
    alive = {str(i): counts for i, counts in enumerate(before)}
    with Index.create(tmp_path_factory.mktemp("index") / "i", model) as index:
        index.add([{"id": name, "counts": counts} for name, counts in alive.items()])
        index.commit()
        assert found(index, query) == pytest.approx(plain_scores(alive, query, model), rel=1e-5)
        changed = {str(i): counts for i, counts in enumerate(after)}
        index.add([{"id": name, "counts": counts} for name, counts in changed.items()])
        alive |= changed
        if len(alive) > 3:
            index.delete(["3"])
            del alive["3"]
        index.commit()
        assert found(index, query) == pytest.approx(plain_scores(alive, query, model), rel=1e-5)
        assert verify(index.path) == []


def found(index: Index, query: str) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search(query, k=100)}


def test_the_counts_of_a_text_give_the_scores_of_bm25(tmp_path: Path) -> None:
    texts = ["The dog barks at dogs, and the river dog.", "A cat; cats! The dog's cat.", "river"]
    documents = []
    for number, text in enumerate(texts):
        counts: dict[str, int] = {}
        for word in Analyzer.parse("standard")(text):
            counts[word] = counts.get(word, 0) + 1
        documents.append({"id": str(number), "text": text, "counts": counts})
    both = parse_model("bm25 + counts")
    with Index.create(tmp_path / "i", both) as index:
        index.add(documents)
        index.commit()
        for query in ("dogs", "cat river", "the dog's barking"):
            words = found(index.with_model(parse_model("bm25")), query)
            assert words
            assert found(index.with_model(parse_model("counts")), query) == pytest.approx(words, rel=1e-6)
            assert found(index, query) == pytest.approx({d: 2 * s for d, s in words.items()}, rel=1e-6)


def test_words_with_one_stem_are_one_term() -> None:
    counts = [{"counts": {"dog": 2, "Dogs": 5, "the": 40, "new york": 3}}]
    for merge, expected in (("sum", {"dog": 7, "new": 3, "york": 3}), ("max", {"dog": 5, "new": 3, "york": 3})):
        vectors, lengths = TermCounts(merge=merge).document_encoder().encode(counts)
        assert {term: int(n) for (_, term), n in vectors[0].items()} == expected
        assert lengths.tolist() == [sum(expected.values())]


def test_explanation_saving_and_the_expression(tmp_path: Path) -> None:
    model = parse_model("counts(k1=18, b=0.7, merge=max)")
    assert isinstance(model, TermCounts)
    assert expression(model) == "counts(k1=18, b=0.7, merge=max)"
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m") == model
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
    with Index.open(tmp_path / "i") as index:
        assert [hit.id for hit in index.search("dogs")] == ["1", "2"]
        explained = index.explain("dog river", "1")
        assert explained.score == pytest.approx(found(index, "dog river")["1"])
        assert {part.name: part.score > 0 for part in explained.parts} == {"dog": True, "river": False}
        deeper = index.with_model(TermCounts(k1=0.5, b=0, merge="max"))
        assert found(deeper, "dog")["1"] != found(index, "dog")["1"]
        with pytest.raises(VizslaError, match="counts"):
            index.with_model(TermCounts())  # the index has the maximum of each term, not the sum


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"dog": "two"}, "a count for 'dog' that is not a number, but the text 'two'"),
        ({"dog": True}, "a count for 'dog' that is not a number, but true or false"),
        ({"dog": None}, "a count for 'dog' that is not a number"),
        ({"dog": -1}, "a count for 'dog' that is not a whole number of 0 or more, but -1"),
        ({"dog": 2.5}, "a count for 'dog' that is not a whole number of 0 or more, but 2.5"),
        ({"dog": math.inf}, "a count for 'dog' that is not a whole number of 0 or more, but inf"),
        ({"dog": math.nan}, "a count for 'dog' that is not a whole number of 0 or more, but nan"),
        ({"dog": 2**31 - 1, "cat": 1}, "counts that add up to 2,147,483,648, and 2,147,483,647 is the most"),
        (["dog", "dog"], "a field 'counts' that is not an object of words and counts, but a list"),
    ],
)
def test_what_is_no_count_is_said_in_a_sentence(counts: Any, told: str, tmp_path: Path) -> None:
    assert told in (TermCounts().problem({"counts": counts}) or "")
    with Index.create(tmp_path / "i", TermCounts()) as index, pytest.raises(InputError, match="document 'x' has"):
        index.add([{"id": "x", "counts": counts}])


def test_counts_that_say_nothing(tmp_path: Path) -> None:
    """Words that the analyzer drops, counts of 0 and no words at all are an empty document; 2.0 is 2."""
    with Index.create(tmp_path / "i", TermCounts()) as index:
        documents = [{"the": 5}, {"dog": 0}, {}, {"dog": 2.0}, {"...": 7}]
        added = index.add([{"id": str(i), "counts": counts} for i, counts in enumerate(documents)])
        assert [d.id for d in added.empty] == ["0", "1", "2", "4"]
        index.commit()
        assert list(found(index, "dog")) == ["3"]
        with pytest.raises(InputError, match="has no counts; expected a field 'counts'"):
            index.add([{"id": "x", "text": "dog"}])


def test_wrong_options() -> None:
    for options, told in (
        ("merge=mean", "unknown way to merge counts 'mean'"),
        ("fields=a/b", "counts are read from one field, not from 2"),
        ("b=2", "b between 0 and 1"),
        ("k1=x", "'x' is not a number for k1"),
    ):
        with pytest.raises(VizslaError, match=told):
            parse_model(f"counts({options})")
    assert not isinstance(TermCounts(), BM25)


def test_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "counts.jsonl"
    file.write_text('{"id": "a", "counts": {"dog": 30}}\n{"id": "b", "counts": {"dog": 3, "cat": 1}}\n')
    assert cli("index", file, "-o", tmp_path / "i", "--model", "counts")[0] == 0
    code, out, _ = cli("search", tmp_path / "i", "dogs")
    assert code == 0
    assert out.index("a") < out.index("b")
    file.write_text('{"id": "a", "counts": {"dog": -3}}\n')
    code, _, said = cli("index", file, "-o", tmp_path / "j", "--model", "counts")
    assert code == 2
    assert "has a count for 'dog' that is not a whole number of 0 or more, but -3" in said
