"""Headings and pages of a document: in its passages, and in the document that is joined from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.datasets import Document, Outline, Splitter, TextBuilder
from vizsla.datasets.extracted import OUTLINE, Heading


@given(st.data())
def test_passages_know_their_headings_and_pages(data: st.DataObject) -> None:
    """Against the outline of the whole text, at each character."""
    words = data.draw(st.lists(st.sampled_from(["a", "bb", "ccc"]), min_size=1, max_size=40))
    text = " ".join(words)
    starts = [len(" ".join(words[:n])) + (n > 0) for n in range(len(words))]
    offsets = st.lists(st.sampled_from(starts), max_size=5)
    headings = [Heading(at, data.draw(st.integers(1, 3)), f"h{at}") for at in sorted(set(data.draw(offsets)))]
    pages = [0, *sorted(data.draw(offsets))] if data.draw(st.booleans()) else []
    outline = Outline(tuple(headings), tuple(pages))
    document = Document("d", {"text": text, OUTLINE: json.loads(json.dumps(outline.as_field()))})
    assert Outline.of(document[OUTLINE]) == outline
    size = data.draw(st.integers(1, 9))
    splitter = Splitter(size, data.draw(st.integers(0, size - 1)))
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
