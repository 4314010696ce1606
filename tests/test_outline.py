"""Headings and pages of a document: in its passages, and in the document that is joined from them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vizsla import count_tokens
from vizsla.datasets import Document, Heading, Outline, Place, Splitter, TextBuilder

OUTLINE = "outline"


@st.composite
def splitters(draw: st.DrawFn) -> Splitter:
    size = draw(st.integers(1, 9))
    unit, at = draw(st.sampled_from(["words", "tokens"])), draw(st.sampled_from(["sentences", "words"]))
    return Splitter(size, draw(st.integers(0, size - 1)), unit, at)


@given(st.data())
def test_passages_know_their_headings_and_pages(data: st.DataObject) -> None:
    """Against the outline of the whole text, at each character."""
    words = data.draw(st.lists(st.sampled_from(["a", "bb.", "Ccc", "犬。", "x" * 20]), min_size=1, max_size=40))
    blanks = [data.draw(st.sampled_from([" ", "  ", "\n", "\n\n", "\n \n "])) for _ in words]
    starts, text = [], data.draw(st.sampled_from(["", " "]))
    for word, blank in zip(words, blanks, strict=True):
        starts.append(len(text))
        text += word + blank
    offsets = st.lists(st.sampled_from(starts), max_size=5)
    headings = [Heading(at, data.draw(st.integers(1, 3)), f"h{at}") for at in sorted(set(data.draw(offsets)))]
    pages = [0, *sorted(data.draw(offsets))] if data.draw(st.booleans()) else []
    outline = Outline(tuple(headings), tuple(pages))
    document = Document("d", {"text": text, OUTLINE: json.loads(json.dumps(outline.as_field()))})
    assert Outline.of(document[OUTLINE]) == outline
    splitter = data.draw(splitters())
    passages = list(splitter.passages(document))
    for passage in passages:
        own = Outline.of(passage[OUTLINE])
        assert own is not None
        assert text[own.offset :].startswith(passage["text"])
        for at in range(len(passage["text"])):
            assert own.page_at(at) == outline.page_at(own.offset + at)
            assert own.headings_at(at) == outline.headings_at(own.offset + at)
    whole = splitter.whole(passages)
    joined = Outline.of(whole[OUTLINE])
    assert joined is not None
    first = data.draw(st.integers(0, len(passages) - 1))
    some = splitter.joined(passages[first : data.draw(st.integers(first + 1, len(passages)))])
    part = Outline.of(some[OUTLINE])
    assert part is not None
    assert text[part.offset :].startswith(some["text"])
    for at in range(len(some["text"])):
        assert part.page_at(at) == outline.page_at(part.offset + at)
        assert part.headings_at(at) == outline.headings_at(part.offset + at)
    assert (whole["text"], joined.headings) == (text, outline.headings)
    assert [joined.page_at(at) for at in range(len(text))] == [outline.page_at(at) for at in range(len(text))]


@pytest.mark.parametrize(
    "value",
    ["17-20", None, 7, [], {"x": 1}, {"pages": "1-3"}, {"pages": [3, 1]}, {"pages": [True]}, {"headings": [[0, 1]]},
     {"headings": [[0, 0, "a"]]}, {"headings": [[0, 1, None]]}, {"headings": [[5, 1, "a"], [0, 1, "b"]]},
     {"first_page": "x"}],
)  # fmt: skip
def test_a_field_of_the_users_own_is_no_outline(value: Any) -> None:
    assert Outline.of(value) is None
    (passage,) = Splitter(10).passages(Document("d", {"text": "a b", OUTLINE: value}))
    assert passage[OUTLINE] == value


def test_a_text_is_built_of_blocks() -> None:
    text = TextBuilder()
    text.page()
    text.heading(1, " Dogs\n and\x00 cats ")
    text.paragraph("They\nbark.")
    text.paragraph("  ")
    text.row("a  b")
    text.page()
    text.lines("if x:\n    y\n")
    text.heading(2, "word " * 100)
    made = text.extracted(fields={"author": "", "date": "2024"})
    assert made.text.startswith("Dogs and cats\n\nThey bark.\na b\n\nif x:\n    y\n\nword word")
    assert (made.title, dict(made.fields)) == ("Dogs and cats", {"date": "2024"})
    assert made.outline == Outline((Heading(0, 1, "Dogs and cats"),), (0, made.text.index("if x")))


@given(
    text=st.lists(st.sampled_from(["Ab", "c.", "\n", "\n\n", " ", "犬", "。"]), max_size=60).map("".join),
    by=splitters(),
)
@example("Ab犬c.", Splitter(2, 1, "tokens"))  # with the overlap there is no space for the next word
def test_passages_cover_any_text(text: str, by: Splitter) -> None:
    """They begin and end with the text, leave out white space alone, keep their size, and overlap as they should."""
    spans = by.spans(text)
    count = len if by.unit == "words" else lambda words: sum(map(count_tokens, words))
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    for start, end in spans:
        words = re.findall(r"犬。*|[^\s犬]+", text[start:end])
        assert count(words) <= by.size or len(words) == 1
    for (start, end), (following, last) in pairwise(spans):
        assert start < following
        assert end < last
        assert not text[end:following].strip()
        assert count(re.findall(r"犬。*|[^\s犬]+", text[following:end])) <= by.overlap


def test_passages_end_at_headings_paragraphs_and_sentences() -> None:
    text = TextBuilder()
    text.heading(1, "Dogs")
    text.paragraph("They bark a lot. They point.")
    text.heading(2, "Care")
    text.paragraph("They need to run. Every day. They sleep at night, and eat what there is to eat.")
    made = text.extracted()
    document = Document("d", {"title": "Dogs", "text": made.text, OUTLINE: made.outline.as_field()})
    passages = list(Splitter(10, 3).passages(document))
    assert [p["text"] for p in passages] == [
        "Dogs\n\nThey bark a lot. They point.", "Care\n\nThey need to run. Every day.",
        "Every day. They sleep at night, and eat what there", "eat what there is to eat.",
    ]  # fmt: skip
    places = [Place.of(p.content) for p in passages]
    assert [place.breadcrumb for place in places] == [("Dogs",), *[("Dogs", "Care")] * 3]
    assert [made.text[place.start : place.end] for place in places] == [p["text"] for p in passages]
    assert [p["text"] for p in Splitter(5, 1, at="words").passages(Document("d", {"text": "A b. C d. E f g. H"}))] == [
        "A b. C d. E", "E f g. H",
    ]  # fmt: skip


def test_places_name_pages() -> None:
    outline = Outline((), (0, 9, 20)).as_field()
    place = Place.of({"text": "Dogs bark all night.", OUTLINE: outline})
    assert (place.pages, place.page, str(place)) == ((1, 2), 1, "pages 1 to 2")
    assert Place.of({"text": "Dogs.", OUTLINE: outline}).as_dict() == {
        "breadcrumb": [], "pages": [1, 1], "start": 0, "end": 5,
    }  # fmt: skip
    assert Place.of({"title": 7, OUTLINE: "mine"}) == Place()


def test_a_heading_far_down_is_no_title() -> None:
    for words, title in ((100, "Dogs"), (10_000, "")):
        text = TextBuilder()
        text.paragraph("bark " * words)
        text.heading(1, "Dogs")
        assert text.extracted().title == title
