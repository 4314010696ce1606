"""Where the terms of an explanation come from: words that were typed, pieces of them, or the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from served import build, served
from vizsla import Analyzer, Explanation, Filter, Index, VizslaError, parse_model
from vizsla.models.components import TypedTerm, typed_terms

DOCUMENTS = [
    {"id": "1", "text": "The Vizsla is a Hungarian pointing dog that retrieves birds.", "year": 1999, "lang": "en"},
    {"id": "2", "text": "A cat purrs at night, and dogs bark.", "year": 2005, "lang": "de"},
]


def leaves(explanation: Explanation) -> dict[str, Explanation]:
    return {leaf.name: leaf for leaf in explanation.parts}


def test_words_and_their_pieces() -> None:
    text = "Vizslas and setters: vizslas, 中文 Vizslas"
    found = typed_terms(text, Analyzer.parse("wordpiece").tokens(text))
    assert found["viz"] == found["##sl"] == found["##as"] == TypedTerm(("Vizslas", "vizslas"), True)
    assert found["and"] == TypedTerm(("and",), False)
    assert found["中"] == TypedTerm(("中",), False)  # letters without blanks between them are no pieces of one word
    text = "Pointing, points at ##dogs"
    assert typed_terms(text, Analyzer.parse("lucene-english").tokens(text)) == {
        "point": TypedTerm(("Pointing", "points"), False),
        "dog": TypedTerm(("dogs",), False),
    }


def test_a_learned_model_that_adds_terms(tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS, parse_model("vizsla-sparse"))
    with Index.open(folder) as index:
        words, learned = index.explain("which Vizslas retrieve", "1").parts
    assert all("added" not in leaf.facts for leaf in words.parts)  # BM25 by itself adds nothing
    assert leaves(words)["vizsla"].facts["words"] == ["Vizslas"]
    found = leaves(learned)
    piece = found["##sl"]
    assert (piece.facts["words"], piece.facts["piece"], piece.facts["added"]) == (["Vizslas"], True, False)
    assert "piece of Vizslas  = " in piece.note
    assert found["retrieve"].facts["words"] == ["retrieve"]
    assert "piece" not in found["retrieve"].facts
    added = [leaf for leaf in learned.parts if leaf.facts["added"]]
    assert added
    assert not {leaf.name for leaf in added} & {"which", "viz", "##sl", "##as", "retrieve"}
    assert all("words" not in leaf.facts and leaf.note.startswith("added") for leaf in added)


def test_query_expansion(tmp_path: Path) -> None:
    others = [{"id": f"other{n}", "text": f"something else, number{n}"} for n in range(40)]  # RM3 adds rare words
    folder = build(tmp_path / "x.index", [*DOCUMENTS, *others])
    with Index.open(folder) as index:
        found = leaves(index.explain("pointing dogs", "1", model="bm25-rm3"))
    assert found["point"].facts["added"] is False
    assert found["point"].facts["words"] == ["pointing"]
    added = [leaf for leaf in found.values() if leaf.facts["added"]]
    assert added
    assert all("words" not in leaf.facts for leaf in added)


def test_a_weight_is_no_count(tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS)
    with Index.open(folder) as index:
        (counted,) = index.explain("dogs dogs", "1").parts
        (weighed,) = index.explain("dogs dogs", "1", model="bm25(query_norm=0.5)").parts[:1]
        (norm, *_) = index.explain("dogs birds", "1", model="bm25(query_norm=0.5)").parts
        (boosted,) = index.explain("dogs^0.5", "1", syntax="lucene").parts
    assert ", 2 times in the query)" in counted.note
    assert ", 2 times in the query)" in weighed.note
    for leaf, weight in ((norm, "0.71"), (boosted, "0.50")):
        assert f", weighs {weight})" in leaf.note
        assert "times in the query" not in leaf.note


def test_terms_of_a_text_have_their_words(tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS, parse_model("bm25 + bm25-wp"))
    with Index.open(folder) as index:
        rows = {(row.namespace, row.term): row for row in index.term_statistics("Vizslas")}
    assert rows["words", "vizsla"].words == ("Vizslas",)
    assert (rows["pieces", "##sl"].words, rows["pieces", "##sl"].is_piece) == (("Vizslas",), True)
    with served({"x": folder}) as client:
        told = client.get("/v1/x/terms", text="Vizslas").data["terms"]
    assert {"namespace": "words", "term": "vizsla", "documents": 1, "occurrences": 1.0, "words": ["Vizslas"],
            "is_piece": False} in told  # fmt: skip


# Several conditions


def test_conditions_are_read_one_by_one() -> None:
    both = Filter.all_of(["year < 2000 or year > 2010", {"lang": "en"}])
    assert both is not None
    assert both.accepts({"year": 1999, "lang": "en"})
    assert not both.accepts({"year": 1999, "lang": "de"})
    again = Filter.parse(str(both))
    assert not again.accepts({"year": 1999, "lang": "de"})
    assert Filter.all_of([]) is None
    assert str(Filter.all_of(["year = 1"])) == "year = 1"
    with pytest.raises(VizslaError) as raised:
        Filter.all_of(['lang = "en"', "year >= = 3"])
    assert str(raised.value).startswith("the filter cannot be read at character 9: ")
    assert str(raised.value).endswith("(in the condition 'year >= = 3')")
    with pytest.raises(VizslaError):  # and not the text of both, in which the brackets would fit
        Filter.all_of(['lang = "en"', "year = 1) or (year = 2"])


def test_conditions_of_a_request(tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS)
    with served({"x": folder}) as client:

        def search(*conditions: object) -> object:
            answer = client.post("/v1/x/search", {"query": "dogs", "filter": list(conditions)})
            return [h["id"] for h in answer.data["results"][0]["hits"]] if answer.status == 200 else answer.error

        assert search("year > 1990", {"lang": "en"}) == ["1"]
        assert search() == ["2", "1"]
        wrong = search('lang = "en"', "year = 'x'")  # found out while searching: the place is that of its own text
        assert "(character 1 of the filter)" in str(wrong)
        assert "character 9" in str(search('lang = "en"', "year >= = 3"))
        explained = client.post(
            "/v1/x/explain", {"query": "dogs", "id": "2", "filter": ["year > 1990", {"lang": "en"}]}
        )
        assert explained.error == "the document '2' does not pass the filter"
        deleted = client.post("/v1/x/delete", {"filter": ["year > 1990"]})
        assert deleted.status in (400, 403)
