"""HTML: the main text of a page, also of a malformed one, with headings; without tags, scripts and navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, NamedTuple

from vizsla.datasets.files import DAMAGE, InputFile, opened
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, TextBuilder

_CHARSET = re.compile(
    rb"""<(?:meta\s[^>]{0,200}charset\s*=\s*["']?|\?xml\s[^>]{0,100}encoding=["'])([A-Za-z0-9_:.-]{2,40})"""
)
_SKIPPED = {"script", "style", "noscript", "template", "svg", "iframe", "object", "select", "button", "math"}
_RAW = {"script", "style", "textarea"}  # their content is not markup
_ASIDE = {"nav", "footer", "aside", "form", "dialog", "menu"}
_ASIDE_ROLES = {"navigation", "search", "banner", "contentinfo", "complementary", "menu", "menubar", "dialog"}
_MAIN = {"main", "article"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPHS = {
    "p", "div", "table", "section", "article", "title", "ul", "ol", "dl", "pre", "blockquote", "main", "header",
    "footer", "nav", "aside", "form", "figure", "figcaption", "hr", "body", "details", "summary", "address", "fieldset",
    "caption", "center", *_HEADINGS,
}  # fmt: skip
_LINES = {"br", "li", "tr", "dt", "dd", "option"}
_APART = {"td", "th", "sup", "sub"}  # tags whose text is no part of the word before
_LEAST_MAIN = 0.25  # the share of a page's words that its main part must have, to be taken for all of it
_LEAST_KEPT = 0.05  # the share of words besides navigation, below which the page is nothing else

_PERMALINK = " \n\u00b6"  # the sign after a heading that links to it

_NAME = re.compile(r"</?+([a-zA-Z][^\s/>]{0,50}+)")  # the names that matter are short
_REST_OF_TAG = re.compile(r"""(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+'|))*+>""")
_ATTRIBUTE = re.compile(
    r"""([a-zA-Z-]{1,30})\s{0,9}+=\s{0,9}+(?:"([^"]{0,500}+)"|'([^']{0,500}+)'|([^\s"'>]{1,500}+))"""
)
_HIDDEN = re.compile(r"""\s(?:hidden(?=[\s=>/])|aria-hidden\s*+=\s*+["']?true)""")
_LEADING_ZEROS = re.compile(r"&#0++(?=[0-9])")
_LONG_NUMBER = re.compile(r"&#[0-9]{8,}+;?")


@SOURCES.register("html", help="HTML: the main text of a page, without navigation.")
class Html(DocumentFormat):
    """A page."""

    endings = (".html", ".htm", ".xhtml")

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with opened(file) as (stream, _):
            try:
                data = stream.read(file.max_document + 1)
            except DAMAGE as e:
                raise file.refusal(f"the file is damaged or not what its name says ({e})") from None
        if len(data) > file.max_document:
            raise file.too_large(1)
        page = Page(file.decoded(data, charset(data)))
        text = TextBuilder(file.max_document)
        page.add_to(text)
        yield text.extracted(page.title, page.fields)


def charset(data: bytes) -> str | None:
    """The encoding that a page says it has."""
    found = _CHARSET.search(data[:4096])
    return found[1].decode("ascii") if found else None


def html_text(source: str) -> tuple[str, str]:
    """Title and main text of an HTML page.

    >>> html_text("<title>Dogs</title><p>Dogs <b>bark</b>.<script>x()</script><p>Cats &amp; fish")
    ('Dogs', 'Dogs bark.\\n\\nCats & fish')
    """
    page, text = Page(source), TextBuilder()
    page.add_to(text)
    return page.title, text.extracted().text


def unescaped(text: str) -> str:
    """A text with its character references resolved; numbers that are not characters become U+FFFD."""
    if "&" not in text:
        return text
    return unescape(_LONG_NUMBER.sub("\ufffd", _LEADING_ZEROS.sub("&#", text)))


def tidied(text: str) -> str:
    """A text whose white space is single blanks, without empty lines."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


class _Block(NamedTuple):
    """A block of a page: its text, the level of a heading, and where it stands."""

    text: str
    level: int
    is_row: bool
    """Whether it is a line of the block before."""
    is_code: bool
    is_aside: bool
    in_main: bool


class _Region:
    """A part of a page, from a tag to its end; `depth` is 0 outside of it."""

    def __init__(self) -> None:
        self._tag = ""
        self.depth = 0

    def follow(self, tag: str, *, opens: bool, begins: bool) -> None:
        """See a tag; `begins`: whether it is one that begins such a part."""
        if not self.depth and opens and begins:
            self._tag, self.depth = tag, 1
        elif self.depth and tag == self._tag:
            self.depth += 1 if opens else -1


class Page:
    """A page, read in one pass. A missing end is searched for only once, so it takes linear time."""

    def __init__(self, source: str) -> None:
        self.fields: dict[str, Any] = {}
        """What the page says about itself."""
        self._title: list[str] = []
        self._blocks: list[_Block] = []
        self._pieces: list[str] = []
        self._source = source
        self._at = 0
        self._skipping = 0
        self._level = self._code = 0
        self._is_row = False
        self._aside, self._main = _Region(), _Region()
        self._ends = dict.fromkeys(("-->", ">"), True)
        self._read()

    @property
    def title(self) -> str:
        return " ".join(unescaped("".join(self._title)).split())

    def add_to(self, text: TextBuilder) -> None:
        """Add the main text of the page to a text."""
        for block in self._chosen():
            if block.level:
                text.heading(block.level, block.text)
            elif block.is_code:
                text.lines(block.text)
            elif block.is_row:
                text.row(block.text)
            else:
                text.paragraph(block.text)

    def _chosen(self) -> list[_Block]:
        """The blocks of the main part; where the page does not tell it, all but navigation."""
        whole = sum(len(block.text) for block in self._blocks)
        kept = [block for block in self._blocks if not block.is_aside]
        main = [block for block in kept if block.in_main]
        if sum(len(block.text) for block in main) > _LEAST_MAIN * whole:
            return main
        return kept if sum(len(block.text) for block in kept) > _LEAST_KEPT * whole else self._blocks

    def _read(self) -> None:
        while (start := self._source.find("<", self._at)) >= 0:
            self._append_text(start)
            self._at = start
            self._mark()
        self._append_text(len(self._source))
        self._finish()

    def _append_text(self, end: int) -> None:
        if not self._skipping:
            self._pieces.append(self._source[self._at : end])

    def _finish(self, *, row: bool = False) -> None:
        """End a block; `row`: the next one is a line of the same."""
        text = unescaped("".join(self._pieces)).rstrip(_PERMALINK)
        self._pieces.clear()
        if text.strip():
            block = _Block(
                text,
                self._level,
                self._is_row,
                self._code > 0,
                is_aside=self._aside.depth > 0,
                in_main=self._main.depth > 0,
            )
            self._blocks.append(block)
            self._is_row = row
        elif not row:
            self._is_row = False

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
        elif opens and tag == "title" and not self._skipping:
            closing = self._closing(tag, self._at)
            if not self._title:
                self._title.append(self._source[self._at : closing])
            self._at = closing
        elif tag in _SKIPPED:
            self._skipping = max(self._skipping + (1 if opens else -1), 0)
        elif not self._skipping:
            self._in_text(tag, end[0] if opens else "", opens=opens, closes=end[0].endswith("/>"))

    def _in_text(self, tag: str, rest: str, *, opens: bool, closes: bool) -> None:
        """Where a tag begins or ends a block, a heading or a part of the page."""
        if tag in _PARAGRAPHS:
            self._finish()
        elif tag in _LINES:
            self._finish(row=True)
        elif tag in _APART:
            self._pieces.append(" ")
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag] if opens else 0
        elif tag in ("p", "div", "section") and opens:
            self._level = 0  # a heading that was never closed
        if tag == "pre":
            self._code = int(opens)
        elif tag == "br" and self._code:
            self._pieces.append("\n")
        if opens and tag == "meta":
            self._note(rest)
        if tag in _PARAGRAPHS and not closes:
            self._aside.follow(tag, opens=opens, begins=tag in _ASIDE or (opens and _is_aside(rest)))
            self._main.follow(tag, opens=opens, begins=tag in _MAIN or 'role="main"' in rest)

    def _note(self, rest: str) -> None:
        attributes = _attributes(rest)
        name, content = attributes.get("name", attributes.get("property", "")).lower(), attributes.get("content", "")
        if name in ("author", "description") and content and name not in self.fields:
            self.fields[name] = " ".join(unescaped(content).split())[:1000]

    def _closing(self, tag: str, otherwise: int) -> int:
        """Where the next closing tag starts; `otherwise` if it is missing."""
        if not self._ends.setdefault(tag, True):
            return otherwise
        closing = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(self._source, self._at)
        self._ends[tag] = closing is not None
        return closing.start() if closing else otherwise


def _attributes(rest: str) -> dict[str, str]:
    """The attributes of a tag, the first of each name."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(rest[:4000]):
        found.setdefault(match[1].lower(), match[2] or match[3] or match[4] or "")
    return found


def _is_aside(rest: str) -> bool:
    """Whether a tag says that its content is navigation, or hidden."""
    if "role" in rest and _attributes(rest).get("role", "").lower() in _ASIDE_ROLES:
        return True
    return "hidden" in rest and _HIDDEN.search(rest[:4000]) is not None
