"""Texts to be read: TREC, Markdown and HTML, however odd, in time that grows with their length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_documents import contents, write
from vizsla import read_documents
from vizsla.datasets.formats.html import html_text, unescaped
from vizsla.datasets.formats.markdown import front_matter, markdown_text
from vizsla.datasets.formats.trec import _cut_titles, cut_docno, sgml_text
from vizsla.errors import InputError
from waiting import unless_it_never_ends


def test_trec_documents_that_share_lines(tmp_path: Path) -> None:
    one = "<DOC><DOCNO>{0}</DOCNO>\n<TITLE>T{0}</TITLE> text {0}\n</DOC>"
    for between in ("", " ", "\n", "junk"):
        file = write(tmp_path / "x.trec", between.join(one.format(n) for n in range(4)))
        assert contents(file) == [(str(n), {"title": f"T{n}", "text": f"text {n}"}) for n in range(4)]
        flat = write(tmp_path / "y.trec", file.read_text().replace("\n", " "))
        assert contents(flat) == contents(file)
    for content, message in (
        ("<DOC><DOCNO>1</DOCNO><DOC>", r":1: a <DOC> starts inside the one of line 1"),
        ("\n</DOC>", r":2: this </DOC> closes nothing"),
        ("<DOC>", r":1: this <DOC> is never closed"),
    ):
        with pytest.raises(InputError, match=message):
            contents(write(tmp_path / "x.trec", content))


def test_front_matter_becomes_fields(tmp_path: Path) -> None:
    matter = '---\ntitle: "Dogs: a life"\n# no comment\nyear: 1999\ndraft: false\nday: 2024-02-29\nid: x\ntext: no\n'
    matter += "tags:\n  - a b\n  - c\nauthor:\n  name: somebody\nempty:\n---\n# Heading\nDogs bark.\n"
    for end in ("\n", "\r\n"):
        (document,) = read_documents(write(tmp_path / "x.md", matter.replace("\n", end)))
        assert document.content == {
            "title": "Dogs: a life", "year": 1999, "draft": False, "day": "2024-02-29", "id": "x",
            "tags": ["a b", "c"], "text": "Heading\n\nDogs bark.", "path": "x.md",
            "outline": {"headings": [[0, 1, "Heading"]]},
        }  # fmt: skip
        assert document.id == "x.md"
    for source in ("---\nno keys\n---\ntext", "---\na: b\nnever closed", "a: b\n---\n", "---"):
        assert front_matter(source) == ({}, source)


PAGES = [
    ("<![foo[ bar ]]>x", ("", "x")),
    ("&#" + "9" * 1_000_000 + ";x", ("", "\ufffdx")),
    ("&#" + "0" * 5000 + "65;", ("", "A")),
    ("<!-- a > b -->x<!--y", ("", "xy")),
    ("a < b and c <d", ("", "a < b and c <d")),
    ("<a title='x>y' href=\"a>b\">z</a>", ("", "z")),
    ("<a title=it's>z</a>", ("", "z")),
    ("<script>if (a</b) x</script >y<style>z", ("", "y")),
    ("<title>a <b> &amp; c</TITLE>x", ("a <b> & c", "x")),
    ("<title>never closed", ("", "never closed")),
    ("<template>a<noscript>b</noscript>c</template>d", ("", "d")),
    ("<?php x ?><!DOCTYPE html>y</>", ("", "y</>")),
    ("<p>a<br/>b<td>c", ("", "a\nb c")),
    ("<p>a\nb<ul><li>c<li>d</ul>", ("", "a b\n\nc\nd")),
    ("<nav>menu</nav><h1>a\u00b6</h1><p>b<footer>foot", ("", "a\n\nb")),
    ("<p>menu<main>about <nav>b</nav>cats</main>d", ("", "about\n\ncats")),
    ("<nav>all there is", ("", "all there is")),
    ("<div role=navigation>a</div><div hidden>b</div><p>c", ("", "c")),
    ("<pre>a\n  b</pre>", ("", "a\n  b")),
]


@pytest.mark.parametrize(("source", "expected"), PAGES, ids=range(len(PAGES)))
def test_pages_that_are_odd(source: str, expected: tuple[str, str]) -> None:
    assert html_text(source) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "<!--",
                "-->",
                "</",
                "<p>",
                "<script",
                "</title>",
                "<title>",
                "&#",
                "'",
                '"',
                "=",
                "a",
                "[",
                "]",
                "(",
            ]
        )
    )
)
def test_no_page_stops_the_readers(pieces: list[str]) -> None:
    source = "".join(pieces)
    html_text(source)
    markdown_text(source)
    assert unescaped(source)[:1] == source[:1]


def trec(source: str) -> None:
    """Read as the one document of a TREC file, in memory."""
    _, rest = cut_docno(source)
    titles, rest = _cut_titles(rest)
    sgml_text(rest)
    unescaped(" ".join(titles))


@pytest.mark.parametrize(
    ("read", "piece", "end"),
    [
        (markdown_text, "[", ""), (markdown_text, "[](", ""), (markdown_text, "[a](b(", ""), (markdown_text, "![", ""),
        (markdown_text, "# a" + " " * 100, "b"), (markdown_text, " ", "# a"), (markdown_text, "#", "\na"),
        (markdown_text, "*", ""), (markdown_text, "1", ""), (markdown_text, "- [ ", ""), (markdown_text, "\n", "x"),
        (markdown_text, "<!--", ""), (markdown_text, "<!--\n", "-->"), (markdown_text, "` `` ", ""),
        (markdown_text, "|", ""), (markdown_text, "|-", ""), (markdown_text, "a|b\n-|-\n", ""),
        (markdown_text, "```\n", ""),
        (markdown_text, "# a ", "b"), (markdown_text, "[]((a)", ""), (front_matter, "---\na: b\n", ""),
        (trec, "<TITLE>", ""), (trec, "<TITLE></TI>", ""), (trec, "<DOCNO> ", ""), (trec, "<DOCNO>a</DOCNO><a", ""),
        (html_text, "<!--", ""), (html_text, "<a", ""), (html_text, "<a =", ""), (html_text, "<a ='", ""),
        (html_text, "<title>", ""), (html_text, "<script>", ""), (html_text, "<script></script", ""),
        (html_text, "<!", ""),
        (html_text, "<a b='\">", ""), (html_text, "&#0", ""), (html_text, "&", ""), (html_text, "</", ""),
        (html_text, "<template>", ""), (html_text, '<a b="', ""), (html_text, "<?", ""), (html_text, "= ", ""),
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_is_read(read: Callable[[str], object], piece: str, end: str) -> None:
    """It takes a second or so. Where the time grew with the square of the length, it would be hours."""
    with unless_it_never_ends():
        read(piece * (1_000_000 // len(piece)) + end)


def test_blanks_after_a_heading_and_a_docno_are_read_at_once() -> None:
    with unless_it_never_ends():
        assert markdown_text("# a" + " " * 1_000_000 + "b") == ("a b", "a b")
        trec("<DOCNO>" + " " * 1_000_000)
