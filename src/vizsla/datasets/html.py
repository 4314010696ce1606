"""The text of HTML pages, also of malformed ones, in one pass."""

from __future__ import annotations

import re
from html import unescape

_SKIPPED = {"script", "style", "noscript", "template"}
_RAW = {"script", "style"}  # their content is not markup
_BLOCKS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "section", "article", "title"}

_NAME = re.compile(r"</?+([a-zA-Z][^\s/>]{0,50}+)")  # the names that matter are short
_REST_OF_TAG = re.compile(r"""(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+'|))*+>""")
_LEADING_ZEROS = re.compile(r"&#0++(?=[0-9])")
_LONG_NUMBER = re.compile(r"&#[0-9]{8,}+;?")


def html_text(source: str) -> tuple[str, str]:
    """Title and text of an HTML page.

    >>> html_text("<title>Dogs</title><p>Dogs <b>bark</b>.<script>x()</script><p>Cats &amp; fish")
    ('Dogs', 'Dogs bark.\\nCats & fish')
    """
    page = _Page(source)
    page.read()
    return " ".join(unescaped("".join(page.title)).split()), tidied(unescaped("".join(page.text)))


def unescaped(text: str) -> str:
    """A text with its character references resolved; numbers that are not characters become U+FFFD."""
    if "&" not in text:
        return text
    return unescape(_LONG_NUMBER.sub("\ufffd", _LEADING_ZEROS.sub("&#", text)))


def tidied(text: str) -> str:
    """A text whose white space is single blanks, without empty lines."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


class _Page:
    """A parser that goes through a page once. An end that is missing is searched for only once, so time is linear."""

    def __init__(self, source: str) -> None:
        self.title: list[str] = []
        self.text: list[str] = []
        self._source = source
        self._at = 0
        self._skipping = 0
        self._ends = dict.fromkeys(("-->", ">"), True)

    def read(self) -> None:
        while (start := self._source.find("<", self._at)) >= 0:
            self._append_text(start)
            self._at = start
            self._mark()
        self._append_text(len(self._source))

    def _append_text(self, end: int) -> None:
        if not self._skipping:
            self.text.append(self._source[self._at : end])

    def _mark(self) -> None:
        """Skip what starts with < here: a comment, a declaration, a tag, or a plain character."""
        source, start = self._source, self._at
        if source.startswith("<!--", start):
            self._skip_to("-->", 4)
        elif source.startswith(("<!", "<?"), start):
            self._skip_to(">", 2)
        elif name := _NAME.match(source, start):
            self._tag(name)
        else:
            self._plain(1)

    def _skip_to(self, end: str, length: int) -> None:
        """Continue after `end`; if it is missing, skip only the `length` characters that open the mark."""
        position = self._source.find(end, self._at + length) if self._ends[end] else -1
        self._ends[end] = position >= 0
        self._at = position + len(end) if position >= 0 else self._at + length

    def _plain(self, length: int) -> None:
        self._append_text(self._at + length)
        self._at += length

    def _tag(self, name: re.Match[str]) -> None:
        end = _REST_OF_TAG.match(self._source, name.end()) if self._ends[">"] else None
        if end is None:  # no later tag has an end either
            self._ends[">"] = False
            self._plain(1)
            return
        tag, opens = name[1].lower(), self._source[name.start() + 1] != "/"
        self._at = end.end()
        if opens and tag in _RAW:
            self._at = self._closing(tag, len(self._source))
        elif opens and tag == "title":
            closing = self._closing(tag, self._at)
            self.title.append(self._source[self._at : closing])
            self._at = closing
        elif tag in _SKIPPED:
            self._skipping = max(self._skipping + (1 if opens else -1), 0)
        if tag in _BLOCKS and not self._skipping:
            self.text.append("\n")

    def _closing(self, tag: str, otherwise: int) -> int:
        """Where the next closing tag starts; `otherwise` if it is missing."""
        if not self._ends.setdefault(tag, True):
            return otherwise
        closing = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(self._source, self._at)
        self._ends[tag] = closing is not None
        return closing.start() if closing else otherwise
