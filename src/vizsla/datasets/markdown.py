"""Markdown to text: without its marks, comments and the pipes of tables; code stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from vizsla.datasets.html import tidied

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
    """Code between fences as it is, and what is between such code; each with whether it is code."""
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
    """A line without comments, and whether one goes on in the next line.

    A comment that nothing ends hides nothing: what looks like its start is text. As in HTML, `<!-->` is a whole one.
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
