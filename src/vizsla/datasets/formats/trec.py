"""TREC's SGML: each text between <DOC> and </DOC> is a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vizsla.datasets.files import InputFile, Progress, read_lines
from vizsla.datasets.formats.html import tidied, unescaped
from vizsla.datasets.source_format import SOURCES, FileReader, Part, Reading, SourceFormat
from vizsla.errors import InputError
from vizsla.runs.documents import Document, Origin

_TAG = re.compile(r"<[^<>]++>")
_DOC = re.compile(r"</?DOC>", re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>", re.IGNORECASE)
_DOCNO_END = re.compile(r"</DOCNO>", re.IGNORECASE)
_TITLE = re.compile(r"<(/?)(TITLE|HEADLINE|HL|TI)>", re.IGNORECASE)


@SOURCES.register("trec", help="TREC's SGML: each <DOC> is a document.")
class Trec(SourceFormat):
    """Documents in SGML; titles and headlines become the title, everything else the text."""

    endings = (".trec", ".sgml", ".sgm")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:  # noqa: ARG002
        file = part.file
        for line, block in _blocks_left(file, trec_blocks(file, read_lines(file, progress))):
            docno, rest = cut_docno(block)
            if not docno:
                file.leave_out(file.refusal("this <DOC> has no <DOCNO>", line))
                continue
            titles, rest = _cut_titles(rest)
            title = " ".join(unescaped(_TAG.sub(" ", " ".join(titles))).split())
            yield Document(docno, {"title": title, "text": sgml_text(rest)}, Origin(file.name, line))


def _blocks_left(file: InputFile, blocks: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The same blocks; where the file is no longer SGML, the rest of it is left out."""
    try:
        yield from blocks
    except InputError as e:
        file.leave_out(e)


def trec_blocks(file: InputFile, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """What stands in each <DOC> of the lines of a file, with the number of its first line."""
    block: list[str] = []
    start, size = 0, 0
    for number, line in lines:
        at = 0
        for mark in _DOC.finditer(line):
            opens = not mark[0].startswith("</")
            if opens and start:
                raise file.refusal(f"a <DOC> starts inside the one of line {start}", number)
            if not opens and not start:
                raise file.refusal("this </DOC> closes nothing; expected a <DOC> before it", number)
            if opens:
                start, size = number, 0
            else:
                block.append(line[at : mark.start()])
                yield start, "".join(block)
                start, block = 0, []
            at = mark.end()
        if start:
            block.append(line[at:])
            size += len(block[-1])
            if size > file.max_document:
                raise file.too_large(start)
    if start:
        raise file.refusal("this <DOC> is never closed", start)


def sgml_text(source: str) -> str:
    """SGML without its tags, its character references resolved, its white space single blanks and line ends."""
    return tidied(unescaped(_TAG.sub(" ", source)))


def cut_docno(block: str) -> tuple[str, str]:
    """The id of a TREC document, empty if it has none, and the rest of the document."""
    start = _DOCNO.search(block)
    end = _DOCNO_END.search(block, start.end()) if start else None
    if start is None or end is None:
        return "", block
    return block[start.end() : end.start()].strip(), block[: start.start()] + block[end.end() :]


def _cut_titles(block: str) -> tuple[list[str], str]:
    """The titles of a document, and the rest of it; a title ends at the first closing tag of the same name."""
    marks = list(_TITLE.finditer(block))
    closing: dict[str, re.Match[str]] = {}
    ends: dict[int, re.Match[str]] = {}
    for mark in reversed(marks):
        if mark[1]:
            closing[mark[2].upper()] = mark
        elif mark[2].upper() in closing:
            ends[mark.start()] = closing[mark[2].upper()]
    titles, rest, at = [], [], 0
    for mark in marks:
        end = ends.get(mark.start())
        if end is not None and mark.start() >= at:
            titles.append(block[mark.end() : end.start()])
            rest.append(block[at : mark.start()])
            at = end.end()
    return titles, " ".join([*rest, block[at:]])
