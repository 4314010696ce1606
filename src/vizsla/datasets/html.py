"""The text of HTML pages and of Markdown, also of malformed ones: without marks, comments and the pipes of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

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
    """A parser that reads a page in one pass. A missing end is searched for only once, so it takes linear time."""

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


_LINK = re.compile(r"!?\[([^\[\]]*+)\]\((?:[^()\n]|\([^()\n]*+\))*+\)")
_MARKS = re.compile(r"^\s{0,3}(?:#{1,6}\s+|>\s?|[-*+]\s+|\d+\.\s+)|[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}", re.MULTILINE)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s++(?=\S)")
_FENCE = re.compile(r"\s*+(?:(`{3,})[^`]*+|(~{3,}).*+)")
_CODE_OR_COMMENT = re.compile(r"`++|<!--")
_SEPARATORS = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_PIPE = re.compile(r"(?<!\\)\|")


def markdown_text(source: str) -> tuple[str, str]:
    """The title (the first heading) and the text of a Markdown file, without markup.

    >>> markdown_text("# Dogs\\n\\nDogs **bark** at [cats](cats.md). <!-- or not -->")
    ('Dogs', 'Dogs\\nDogs bark at cats.')
    """
    blocks = list(_blocks(source))
    prose = [text for is_code, text in blocks if not is_code]
    return _first_heading("\n".join(prose)), tidied("\n".join(t if is_code else _plain(t) for is_code, t in blocks))


def _plain(prose: str) -> str:
    for _ in range(2):  # an image may be the text of a link
        prose = _LINK.sub(r"\1", prose)
    return _MARKS.sub("", prose)


def _first_heading(source: str) -> str:
    for line in source.splitlines():
        mark = _HEADING.match(line)
        if mark is not None:
            heading = line[mark.end() :].rstrip().rstrip("#").rstrip()
            return _MARKS.sub("", heading)
    return ""


class _Piece(NamedTuple):
    """A part of a line: its text, and whether it is code between backticks."""

    text: str
    is_code: bool


_Line = list[_Piece]


def _blocks(source: str) -> Iterator[tuple[bool, str]]:
    """Fenced code blocks, unchanged, and the text between them; each with whether it is code."""
    lines = source.splitlines()
    last_end = next((n for n in range(len(lines) - 1, -1, -1) if "-->" in lines[n]), -1)
    prose: list[_Line] = []
    code: list[str] = []
    fence = ""
    in_comment = False
    for number, line in enumerate(lines):
        if fence:
            if _closes(line, fence):
                yield True, "\n".join(code)
                code, fence = [], ""
            else:
                code.append(line)
        elif not in_comment and (opened := _FENCE.fullmatch(line)):
            fence = opened[1] or opened[2]
            yield False, _without_tables(prose)
            prose = []
        else:
            pieces, in_comment = _pieces(line, in_comment, ends_later=number < last_end)
            prose.append(pieces)
    yield False, _without_tables(prose)
    if code:  # a fence that is never closed
        yield True, "\n".join(code)


def _closes(line: str, fence: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(fence) and not mark.strip(fence[0])


def _pieces(line: str, in_comment: bool, ends_later: bool) -> tuple[_Line, bool]:
    """A line without comments, and whether a comment continues in the next line.

    An unterminated comment hides nothing: its start is treated as text. As in HTML, `<!-->` is a complete comment.
    """
    found: _Line = []
    at = 0
    if in_comment:
        end = line.find("-->")
        if end < 0:
            return found, True
        at = end + 3
    last_end, closing = line.rfind("-->"), _closing_runs(line)
    while (mark := _CODE_OR_COMMENT.search(line, at)) is not None:
        found.append(_Piece(line[at : mark.start()], False))
        start = mark.start()
        if mark[0] == "<!--":
            if last_end >= start + 2:
                at = line.index("-->", start + 2) + 3
                continue
            if ends_later:
                return found, True
        elif start in closing:
            at = closing[start]
            found.append(_Piece(line[start:at], True))
            continue
        at = mark.end()
        found.append(_Piece(mark[0], False))
    found.append(_Piece(line[at:], False))
    return found, False


def _closing_runs(line: str) -> dict[int, int]:
    """For each run of backticks, by its place, where the next one of the same length ends."""
    ends: dict[int, int] = {}
    closing: dict[int, int] = {}
    for run in reversed(list(re.finditer("`++", line))):
        length = len(run[0])
        if length in ends:
            closing[run.start()] = ends[length]
        ends[length] = run.end()
    return closing


def _without_tables(lines: list[_Line]) -> str:
    """Lines as text: cells of tables are separated by blanks, and the rows below their heads are left out."""
    found: list[str] = []
    in_table = False
    for number, line in enumerate(lines):
        text = "".join(piece.text for piece in line)
        if in_table and text.strip():
            found.append(_cells(line))
        elif number and _is_table(lines[number - 1], line):
            found[-1] = _cells(lines[number - 1])
            in_table = True
        else:
            found.append(text)
            in_table = False
    return "\n".join(found)


def _is_table(head: _Line, below: _Line) -> bool:
    """Whether two lines begin a table: a row with pipes, and as many separators below it."""
    text = "".join(piece.text for piece in below)
    return "|" in text and _SEPARATORS.fullmatch(text) is not None and _columns(head) == _columns(below)


def _columns(line: _Line) -> int:
    """How many cells a row has; 0 for a line without any."""
    text = "".join("x" if piece.is_code else piece.text for piece in line).strip()
    pipes = len(_PIPE.findall(text))
    outer = text.startswith("|") + (len(text) > 1 and _PIPE.match(text, len(text) - 1) is not None)
    return pipes + 1 - outer if text and pipes else 0


def _cells(line: _Line) -> str:
    return "".join(p.text if p.is_code else _PIPE.sub(" ", p.text).replace("\\|", "|") for p in line)
