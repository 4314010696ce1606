"""Markdown, also malformed: its text without marks, comments, targets of links and the pipes of tables.

Simple front matter becomes fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from vizsla.datasets.files import InputFile
from vizsla.datasets.formats.csv import cell_reader, infer_types
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, TextBuilder

_LINK = re.compile(r"!?\[([^\[\]]*+)\]\((?:[^()\n]|\([^()\n]*+\))*+\)")
_MARKS = re.compile(r"^\s{0,3}(?:#{1,6}\s+|>\s?|[-*+]\s+|\d+\.\s+)|[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}", re.MULTILINE)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s++(?=\S)")
_UNDERLINE = re.compile(r"\s{0,3}(?:={2,}+|-{2,}+)\s*+")
_FENCE = re.compile(r"\s*+(?:(`{3,})[^`]*+|(~{3,}).*+)")
_CODE_OR_COMMENT = re.compile(r"`++|<!--")
_SEPARATORS = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_PIPE = re.compile(r"(?<!\\)\|")


@SOURCES.register("markdown", help="Markdown without its marks, comments and link targets; front matter is fields.")
class Markdown(DocumentFormat):
    """Markdown."""

    endings = (".md", ".markdown")

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        fields, source = front_matter(file.read_text())
        text = TextBuilder(file.max_document)
        add_markdown(source, text)
        title = str(fields.pop("title", "") or "") or first_heading(text.extracted())
        yield text.extracted(title, fields)


def markdown_text(source: str) -> tuple[str, str]:
    """The title (the first heading) and the text of a Markdown file, without markup.

    >>> markdown_text("# Dogs\\n\\nDogs **bark** at [cats](cats.md). <!-- or not -->")
    ('Dogs', 'Dogs\\n\\nDogs bark at cats.')
    """
    text = TextBuilder()
    add_markdown(source, text)
    found = text.extracted()
    return first_heading(found), found.text


def first_heading(found: Extracted) -> str:
    """The title of a Markdown file."""
    return found.outline.headings[0].text if found.outline.headings else ""


def add_markdown(source: str, text: TextBuilder) -> None:
    """Add the text of Markdown to a text, with its headings."""
    for is_code, block in _blocks(source):
        if is_code:
            text.lines(block)
        else:
            _add_prose(block, text)


def _add_prose(prose: str, text: TextBuilder) -> None:
    for _ in range(2):  # an image may be the text of a link
        prose = _LINK.sub(r"\1", prose)
    paragraph: list[str] = []

    def end() -> None:
        if paragraph:
            text.block("\n".join(filter(None, paragraph)))
            paragraph.clear()

    for line in prose.splitlines():
        if not line:
            end()
        elif mark := _HEADING.match(line):
            end()
            text.heading(mark[0].count("#"), _MARKS.sub("", line[mark.end() :].rstrip().rstrip("#").rstrip()))
        elif line.isspace():
            end()
        elif len(paragraph) == 1 and _UNDERLINE.fullmatch(line):
            text.heading(1 if "=" in line else 2, paragraph.pop())
        else:
            paragraph.append(" ".join(_MARKS.sub("", line).split()))
    end()


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


_KEY = re.compile(r"([A-Za-z_][\w.-]{0,100}):(?:[ \t]+(\S.*))?")
_ITEM = re.compile(r"[ \t]*+-[ \t]+(\S.*)")


def front_matter(source: str) -> tuple[dict[str, Any], str]:
    """The fields of a Markdown file's front matter (simple keys, and lists of texts), and the rest of the file.

    >>> front_matter("---\\ntitle: Dogs\\nyear: 1999\\ntags: [pets, 'big dogs']\\n---\\nDogs bark.")
    ({'title': 'Dogs', 'year': 1999, 'tags': ['pets', 'big dogs']}, 'Dogs bark.')
    """
    if not source.startswith(("---\n", "---\r\n")):
        return {}, source
    lines = source.splitlines(keepends=True)
    last = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    matter = [line.rstrip() for line in lines[1:last] if line.strip() and not line.startswith("#")]
    if last is None or not all(_KEY.fullmatch(line) for line in matter if line[0] not in " \t-"):
        return {}, source
    fields: dict[str, Any] = {}
    key = ""
    for line in matter:
        if named := _KEY.fullmatch(line):
            key = named[1]
            if named[2] is not None:
                fields[key] = _matter_value(named[2])
        elif (item := _ITEM.fullmatch(line)) and isinstance(fields.setdefault(key, []), list):
            fields[key].append(_unquoted(item[1]))
    fields.pop("text", None)  # the text is the rest of the file
    return fields, "".join(lines[last + 1 :])


def _matter_value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_unquoted(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    bare = _unquoted(text)
    if bare != text:
        return bare
    (kind,) = infer_types([[text]], ["value"], ["value"]).values()
    read = cell_reader(kind)
    return text if read is None else read(text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
