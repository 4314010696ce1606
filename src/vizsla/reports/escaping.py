"""Untrusted names and texts in a report: without control characters, and escaped for each format."""

from __future__ import annotations

import html
import re

from vizsla.evaluation.judging import quote_formula
from vizsla.harmless import harmless

_MARKDOWN = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
_HTML_IN_MARKDOWN = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_TEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{char: "\\" + char for char in "&%$#_{}"}}


def escape_html(text: str) -> str:
    """A text in a page, or in an attribute of it.

    >>> escape_html('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(harmless(text, lines=True))


def escape_markdown(text: str) -> str:
    r"""A text in a paragraph or a cell of Markdown.

    >>> print(escape_markdown("2 * bm25 | <script>"))
    2 \* bm25 \| &lt;script>
    """
    plain = _HTML_IN_MARKDOWN.sub(lambda match: html.escape(match[0]), harmless(text))
    return _MARKDOWN.sub(r"\\\g<0>", plain)


def escape_latex(text: str) -> str:
    r"""A text in LaTeX.

    >>> print(escape_latex("bm25_wp at 5%"))
    bm25\_wp at 5\%
    """
    return "".join(_TEX.get(char, char) for char in harmless(text))


def escape_csv(text: str) -> str:
    """A text in a cell of a CSV file; one that a spreadsheet would evaluate gets a leading quote.

    >>> escape_csv("=1+1"), escape_csv("bm25")
    ("'=1+1", 'bm25')
    """
    return quote_formula(harmless(text))
