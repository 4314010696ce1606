"""The query language: what is read, what is refused and where, and examples; for random queries see query_oracle.py."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries import WORDS, edit_distance, has_phrase, random_documents
from scattered import Scattered
from vizsla import Index, VizslaError, parse_model
from vizsla.engine import PhrasePattern, TermSequences, WordList, rows_with_phrase
from vizsla.errors import CollectionError
from vizsla.index import verify
from vizsla.runs.query_language import Group, Phrase, QuerySyntaxError, parse_query

# Reading


def shape(group: Group) -> list[object]:
    """Occurrences and texts, groups as lists."""
    signs = {"must": "+", "must_not": "-", "should": ""}
    return [
        (signs[c.occur], shape(c.node)) if isinstance(c.node, Group) else signs[c.occur] + c.node.text
        for c in group.clauses
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a", "b"]),
        ("a AND b c", ["+a", "+b", "c"]),  # as Lucene's classic parser reads it
        ("a OR b AND c", ["a", "+b", "+c"]),
        ("a AND NOT b", ["+a", "-b"]),
        ("a && !b || c", ["+a", "-b", "c"]),
        ("+a -b NOT c d", ["+a", "-b", "-c", "d"]),
        ("AND\\ b ANDY", ["AND b", "ANDY"]),
        ("+(a -b) (c)", [("+", ["a", "-b"]), ("", ["c"])]),
        (r"a\:b \+c d-e f+g \"h", ["a:b", "+c", "d-e", "f+g", '"h']),
        ('"a \\" b" "c', None),
    ],
)
def test_reading(text: str, expected: list[object] | None) -> None:
    if expected is None:
        with pytest.raises(QuerySyntaxError):
            parse_query(text)
    else:
        assert shape(parse_query(text)) == expected


def test_fields_boosts_and_steps() -> None:
    (clause, other) = parse_query('title:(a b^2 text:c)^3 "x y"~4^0.5').clauses
    assert isinstance(clause.node, Group)
    assert [(leaf.field, leaf.boost) for leaf in clause.node.leaves()] == [("title", 3), ("title", 6), ("text", 3)]
    assert other.node == Phrase("x y", 23, None, 0.5, 4)


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("", "the query is empty", 0),
        ('dogs "big cats', "quotation mark is not closed", 5),
        ("dogs (cats", "parenthesis is not closed", 5),
        ("dogs) cats", "this parenthesis closes nothing", 4),
        ("dogs ()", "nothing between", 5),
        ("-dogs -cats", "everything here is excluded", 0),
        ("dogs (-cats)", "everything here is excluded", 5),
        ("dogs + cats", "+ stands right before", 5),
        ("AND dogs", "AND needs a word before it", 0),
        ("dogs OR", "OR needs a word after it", 5),
        ("dogs NOT", "NOT needs a word after it", 5),
        ("d*gs", "only at the end", 1),
        ("*dogs", "at the end of a word", 0),
        ("do?s", "? is not supported", 2),
        ("dogs~3", "1 or 2 edits", 5),
        ("dogs~0.8", "1 or 2 edits", 5),
        ('"a b"~x', "whole number", 6),
        ('"a b"~1001', "at most 1,000 steps", 6),
        ("dogs^x", "needs a number", 5),
        ("dogs^2000000", "at most 1,000,000 times", 5),
        ("((dogs)^1000)^100000", "at most 1,000,000 times", 2),
        ("year:[1999 TO 2001]", "give a filter", 5),
        ("title:", "needs a word after it", 0),
        ("a:b:c", "between a field and one word", 3),
        ("dogs\\", "here is none", 4),
        ("(" * 60 + "a" + ")" * 60, "at most 50 deep", 50),
        ("a " * 2000, "at most 1,024", 2048),
        ("dogs \ud800", "half a surrogate pair", 5),
    ],
)
def test_a_mistake_is_shown_in_its_place(text: str, problem: str, place: int) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert problem in caught.value.problem
    assert caught.value.position == place
    sentence, line, mark = str(caught.value).split("\n")
    assert sentence == caught.value.problem
    assert mark.endswith("^")
    if text.isascii() and len(text) < 60:
        assert line == f"  {text}"
        assert mark == "  " + " " * place + "^"


def test_the_mark_stands_below_wide_and_control_characters() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query('\u72ac\u732b \x07"x')
    assert str(caught.value).split("\n")[1:] == ['  \u72ac\u732b \\x07"x', "  " + " " * 9 + "^"]


@given(st.text(st.sampled_from('ab \t"\\()[]{}:^~*?+-!&|/.0123456789\ud800\u72acANDORT'), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    mistake = None
    try:
        assert parse_query(text).clauses
    except QuerySyntaxError as e:
        mistake = e
    assert mistake is None or (0 <= mistake.position <= len(text) and str(mistake).count("\n") == 2)


# Kernels


@given(st.lists(st.text("abc", max_size=6), max_size=8), st.text("abc", max_size=6), st.sampled_from([1, 2]))
def test_edit_distances(words: list[str], word: str, edits: int) -> None:
    found = WordList.of(words).within(word, edits).tolist()
    assert found == [edit_distance(word, other) <= edits for other in words]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 5))
def test_phrases_in_a_row(row: list[int], pattern: list[int], slop: int) -> None:
    rows = TermSequences.join(np.array(row, np.int64), np.array([len(row)]), 1)
    (found,) = rows_with_phrase(rows, np.array([0]), PhrasePattern.of(pattern, range(len(pattern)), slop)).tolist()
    named = [(place, str(n)) for place, n in enumerate(pattern)]
    assert found == has_phrase([str(n) for n in row], named, slop)


# Results


@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
def test_plain_words_find_what_they_find_without_it(words: list[str]) -> None:
    index = _plain_index()
    text = " ".join(words)
    assert index.search(text, 50, syntax="lucene") == index.search(text, 50)
    run = index.run({"q": text}, syntax="lucene")
    assert run["q"].documents == index.run({"q": text})["q"].documents


_PLAIN: list[Index] = []


def _plain_index() -> Index:
    if not _PLAIN:
        import tempfile

        index = Index.create(Path(tempfile.mkdtemp()) / "i")
        index.add(random_documents(random.Random(5), 80))
        index.commit()
        _PLAIN.append(index)
    return _PLAIN[0]


def small_index(folder: Path, model: object = "bm25", **options: object) -> Index:
    index = Index.create(folder / "i", model, **options)  # type: ignore[arg-type]
    index.add([
        {"id": "1", "title": "Big dogs", "text": "Big dogs bark at cats.", "lang": "en", "tags": ["a", "b"]},
        {"id": "2", "title": "Cats", "text": "Cats see big old dogs.", "lang": "en", "n": 7},
        {"id": "3", "title": "Fish", "text": "The state of the art of fish retrieval.", "lang": "de", "old": True},
    ])  # fmt: skip
    index.commit()
    return index


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"big dogs"', ["1"]),
        ('"big dogs"~1', ["1", "2"]),
        ('"dogs big"~2', ["1"]),
        ('"dogs bark" -title:cats', ["1"]),
        ('"dogs big"', []),  # the title ends with dogs and the text begins with big
        ('"state of the art"', ["3"]),
        ('"state art"', []),  # stop words keep their places
        ("retrieving~1", ["3"]),
        ("lang:de", ["3"]),
        ("+lang:en +cats -tags:b", ["2"]),
        ("n:7 old:true", ["2", "3"]),
        ("+title:cats", ["2"]),
        ("title:dogs", ["1"]),
        ("title:bark", []),
        ("text:(bark fish)", ["3", "1"]),
        ("the", []),
        ("+the +fish", ["3"]),
    ],
)
def test_examples(query: str, expected: list[str], tmp_path: Path) -> None:
    for positions in (False, True):
        with small_index(tmp_path / str(positions), positions=positions) as index:
            assert [hit.id for hit in index.search(query, syntax="lucene")] == expected


@pytest.mark.parametrize("change", ["delete", "replace"])
def test_deleted_texts_are_not_read(change: str, tmp_path: Path) -> None:
    """Words of a field and phrases are looked for in stored texts, and those of deleted documents are gone."""
    with small_index(tmp_path) as index:
        index.add([{"id": f"f{n}", "title": "Fish", "text": "Fish swim."} for n in range(20)])
        index.add([{"id": "4", "title": "Old dogs", "text": "Big dogs bark."}])
        index.compact()
        _ = index.delete(["1"]) if change == "delete" else index.add([{"id": "1", "text": "Gone."}])
        index.commit()
        assert index.info()["deleted"] == 1  # otherwise the segment was written again, without the text
        for query, expected in {
            "title:dogs": ["4"],
            "+title:dogs bark": ["4"],
            'old "big dogs"': ["4", "2"],
            'dogs -"big dogs"': ["2"],
            '"big dogs"': ["4"],
            "title:do*": ["4"],
            'text:("big dogs" fish)': ["4", "3", *(f"f{n}" for n in range(20))],
        }.items():
            assert {hit.id for hit in index.search(query, 50, syntax="lucene")} == set(expected), query
            assert index.facets([], query, syntax="lucene").documents == len(expected)
        assert [hit.id for hit in index.search("title:dogs", filter="exists(lang)", syntax="lucene")] == []


def test_mistakes_that_only_the_index_knows(tmp_path: Path) -> None:
    with small_index(tmp_path) as index:
        for query, problem in {
            "dogs colour:red": "no document has a field 'colour'",
            "lang:e*": "only whole values of 'lang' are found",
            "wi-fi*": "* needs a single word before it",
            "wi-fi~1": "~ needs a single word before it",
            "\\-*": "* needs a single word",
        }.items():
            with pytest.raises(QuerySyntaxError, match=problem.replace("*", r"\*")):
                index.search(query, syntax="lucene")
        with pytest.raises(VizslaError, match="unknown syntax 'sql'"):
            index.search("dogs", syntax="sql")
        with pytest.raises(VizslaError, match="does not match the query"):
            index.explain("+fish dogs", "1", syntax="lucene")


def test_an_index_without_texts_finds_words_and_refuses_phrases(tmp_path: Path) -> None:
    with small_index(tmp_path, store=False) as index:
        assert [hit.id for hit in index.search("+dogs -bark", syntax="lucene")] == ["2"]
        with pytest.raises(VizslaError, match="stores neither texts nor positions"):
            index.search('"big dogs"', syntax="lucene")
    with pytest.raises(VizslaError, match="this index stores none"):
        Index.create(tmp_path / "j", store=False, positions=True)


def test_damaged_positions_are_told(tmp_path: Path) -> None:
    with small_index(tmp_path, positions=True):
        pass
    assert verify(tmp_path / "i") == []
    (file,) = (tmp_path / "i" / "segments").rglob("sequencestarts_0*.npy")
    data = bytearray(file.read_bytes())
    data[-16:-8] = (1 << 40).to_bytes(8, "little")  # where the last document begins
    file.write_bytes(data)
    with Index.open(tmp_path / "i") as index, pytest.raises(CollectionError, match="a segment is damaged"):
        index.search('"fish retrieval"', syntax="lucene")
    assert verify(tmp_path / "i") != []


def test_highlights_are_the_words_that_count(tmp_path: Path) -> None:
    with small_index(tmp_path) as index:
        shown = index.highlighter('"big dogs" -fish bark*', syntax="lucene").snippet(index.get("1"), "text")  # type: ignore[arg-type]
        assert [shown.text[a:z] for a, z in shown.matches] == ["Big", "dogs", "bark"]
        excluded = index.highlighter("dogs -fish", syntax="lucene").snippet(index.get("3"), "text")  # type: ignore[arg-type]
        assert excluded.matches == ()


def test_a_sum_with_vectors_is_constrained_by_words(tmp_path: Path) -> None:
    with small_index(tmp_path, parse_model("bm25") + 2 * Scattered()) as index:
        everything = {hit.id: hit.score for hit in index.search("dogs bark")}
        assert set(everything) == {"1", "2", "3"}
        hits = index.search("dogs bark", syntax="lucene")
        assert [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in hits] == [
            (d, s) for d, s in everything.items() if d != "3"
        ]
        assert {hit.id for hit in index.search('"big old dogs" bark^0', syntax="lucene")} == {"1", "2"}
        assert [hit.id for hit in index.search("+dogs -bark", syntax="lucene")] == ["2"]
        for combine in ("union", "rrf"):
            assert {h.id for h in index.search("+dogs bark", syntax="lucene", combine=combine)} == {"1", "2"}
        alone = index.search("+dogs -bark", syntax="lucene", model=index.model.parts[1].component)
        assert [hit.id for hit in alone] == ["2"]
        explained = index.explain("+dogs -bark", "2", syntax="lucene")
        assert explained.score == pytest.approx(index.search("+dogs -bark", syntax="lucene")[0].score, abs=1e-5)


def test_facets_and_explanations_are_of_what_a_sum_with_vectors_finds(tmp_path: Path) -> None:
    """A document without a text has no vector, so a search does not find it by a value."""
    with small_index(tmp_path, parse_model("bm25") + 2 * Scattered()) as index:
        index.add([{"id": "4", "text": "", "lang": "en"}])
        index.commit()
        for query, expected in {"lang:en": ["1", "2", "4"], "lang:en fish": ["1", "2", "3"]}.items():
            assert sorted(hit.id for hit in index.search(query, syntax="lucene")) == expected
            assert index.facets([], query, syntax="lucene").documents == 3
        with pytest.raises(VizslaError, match="does not match the query"):
            index.explain("lang:en fish", "4", syntax="lucene")


def test_a_model_without_words_is_refused(tmp_path: Path) -> None:
    with small_index(tmp_path, Scattered()) as index:
        with pytest.raises(VizslaError, match="needs a model with words"):
            index.search("dogs", syntax="lucene")
        with pytest.raises(VizslaError, match="positions are stored for words"):
            index.compact(positions=True)


def test_passages_meet_a_query_one_at_a_time(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", passages=4, positions=True) as index:
        index.add([{"id": "1", "text": "dogs bark at cats while fish swim past"}, {"id": "2", "text": "fish and dogs"}])
        index.commit()
        assert [(h.id, h.passage) for h in index.search("+dogs +fish", syntax="lucene")] == [("2", 0)]
        assert [(h.id, h.passage) for h in index.search('"fish swim"', syntax="lucene")] == [("1", 1)]


def test_word_pieces_have_phrases_and_no_prefixes(tmp_path: Path) -> None:
    with small_index(tmp_path, "bm25-wp") as index:
        assert [hit.id for hit in index.search('"big dogs"', syntax="lucene")] == ["1"]
        with pytest.raises(QuerySyntaxError, match="pieces of words"):
            index.search("retriev*", syntax="lucene")
