"""Markdown files to text: comments and tables, however odd; code stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from vizsla import read_documents
from vizsla.datasets.formats.markdown import markdown_text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Dogs <!-- secretly --> bark.", "Dogs bark."),
        ("Dogs\n<!--\nsecret\n\nmore secret\n-->\nbark.", "Dogs\nbark."),
        ("a <!-- x\n```\ny\n```\n--> b", "a\nb"),
        ("a <!--> b", "a b"),
        ("a <!---> b", "a b"),
        ("a <!--> b --> c", "a b --> c"),
        ("a <!-- b\nc", "a <!-- b\nc"),
        ("--> a <!-- b", "--> a <!-- b"),
        ("<!-- a --> b <!-- c", "b <!-- c"),
        ("`<!-- kept -->` and ``a ` <!-- b -->`` <!-- gone -->", "<!-- kept --> and a ` <!-- b -->"),
        ("`open <!-- gone --> end", "open end"),
        ("```html\n<!-- kept -->\n| a | b |\n|---|---|\n```\nend", "<!-- kept -->\n| a | b |\n|---|---|\nend"),
        ("~~~\n```\n# kept | as it is\n~~~\n<!-- x -->end", "```\n# kept | as it is\nend"),
        ("````\n```\n<!-- kept\n```\n````\nend", "```\n<!-- kept\n```\nend"),
        ("```\nnever closed <!-- x -->", "never closed <!-- x -->"),
        ("``` one line ``` <!-- x --> of code", "one line of code"),
    ],
)
def test_comments_and_code(source: str, text: str) -> None:
    assert markdown_text(source)[1].replace("\n\n", "\n") == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("| dog | cat |\n|-----|:---:|\n| barks | purrs |", "dog cat\nbarks purrs"),
        ("dog | cat\n--- | ---\nbarks | purrs\nhowls\n\na | b", "dog cat\nbarks purrs\nhowls\na | b"),
        ("|dog|\n|---|\n|barks|", "dog\nbarks"),
        ("| `a|b` | c \\| d |\n|---|---|\n| `x|y` | **z** |", "a|b c | d\nx|y z"),
        ("| a | b |\n|---|\nno table", "| a | b |\n|---|\nno table"),
        ("p(x|y) is a || b", "p(x|y) is a || b"),
        ("Heading\n---\na | b", "Heading\na | b"),
        ("|---|---|", "|---|---|"),
        ("| a | b <!-- c | d --> |\n|---|---|\n| 1 | 2 |", "a b\n1 2"),
        ("| a |\n|---|\n```\n| code |\n```\n| b |", "a\n| code |\n| b |"),
    ],
)
def test_tables(source: str, text: str) -> None:
    assert markdown_text(source)[1].replace("\n\n", "\n") == text


def test_paragraphs_and_headings_are_blocks() -> None:
    source = "Dogs\n====\nDogs\n  bark.\n\nCats\n----\n- a\n- b\n```\nif x:\n    y\n```\n### Fish ###\nswim"
    assert markdown_text(source) == (
        "Dogs", "Dogs\n\nDogs\nbark.\n\nCats\n\na\nb\n\nif x:\n    y\n\nFish\n\nswim",
    )  # fmt: skip


def test_a_title_is_no_comment_and_no_code(tmp_path: Path) -> None:
    file = tmp_path / "dogs.md"
    file.write_text("<!--\n# a licence\n-->\n```sh\n# a remark\n```\n# Dogs\n\n| name |\n| --- |\n| vizsla |\n")
    (document,) = read_documents(file)
    assert dict(document.content) == {
        "title": "Dogs", "text": "# a remark\n\nDogs\n\nname\nvizsla", "path": "dogs.md",
        "outline": {"headings": [[12, 1, "Dogs"]]},
    }  # fmt: skip
