"""The formats of a report, by the ending of the file, and untrusted names and texts escaped for each of them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from vizsla.errors import VizslaError
from vizsla.evaluation.judging import quote_formula
from vizsla.harmless import harmless

T = TypeVar("T")
_MARKDOWN = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
_HTML_IN_MARKDOWN = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_TEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{char: "\\" + char for char in "&%$#_{}"}}


@dataclass(frozen=True)
class Formats(Generic[T]):
    """The functions that write a value as text, by file ending.

    >>> Formats("a word", {".txt": str.lower}).check(Path("a.pdf"))
    Traceback (most recent call last):
    vizsla.errors.VizslaError: a word ends in .txt, not '.pdf'
    """

    what: str
    writers: Mapping[str, Callable[[T], str]]

    def check(self, path: Path) -> None:
        """Refuse a file with an unknown ending; call it before the work begins."""
        if path.suffix not in self.writers:
            raise VizslaError(f"{self.what} ends in {', '.join(self.writers)}, not {path.suffix or path.name!r}")

    def write(self, value: T, path: Path) -> None:
        """Write a value in the format of the file's ending."""
        self.check(path)
        path.write_text(self.writers[path.suffix](value), "utf-8")


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
