"""Texts: text, Markdown and HTML files, and TREC's SGML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vizsla.datasets.files import COMPRESSIONS, InputFile, Progress, read_lines
from vizsla.datasets.html import html_text, markdown_text, tidied, unescaped
from vizsla.datasets.values import cell_reader, infer_types
from vizsla.runs.documents import Document, Origin

TEXT_ENDINGS = (".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm")


def bare_name(path: Path) -> str:
    """The name of a file in lower case, without the ending of a compression."""
    name = path.name
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return name.lower()


def read_text_file(file: InputFile, doc_id: str) -> Document:
    """A whole file as one document; the title is a heading, else the name of the file."""
    size, lines = 0, []
    for _, line in read_lines(file):
        size += len(line)
        if size > file.max_document:
            raise file.too_large(1)
        lines.append(line)
    text, name = "".join(lines), bare_name(file.path)
    title = ""
    fields: dict[str, Any] = {}
    if name.endswith((".html", ".htm")):
        title, text = html_text(text)
    elif name.endswith((".md", ".markdown")):
        fields, text = front_matter(text)
        title, text = markdown_text(text)
    content = {**fields, "title": str(fields.get("title") or title or Path(file.name).name), "text": text}
    return Document(doc_id, content, Origin(file.name, 1))


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


_TAG = re.compile(r"<[^<>]++>")
_DOC = re.compile(r"</?DOC>", re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>", re.IGNORECASE)
_DOCNO_END = re.compile(r"</DOCNO>", re.IGNORECASE)
_TITLE = re.compile(r"<(/?)(TITLE|HEADLINE|HL|TI)>", re.IGNORECASE)


def read_trec(file: InputFile, progress: Progress = None) -> Iterator[Document]:
    """The documents of a file in TREC's SGML; titles and headlines become the title, everything else the text."""
    for line, block in trec_blocks(file, read_lines(file, progress)):
        docno, rest = cut_docno(block)
        if not docno:
            raise file.refusal("this <DOC> has no <DOCNO>", line)
        titles, rest = _cut_titles(rest)
        title = " ".join(unescaped(_TAG.sub(" ", " ".join(titles))).split())
        yield Document(docno, {"title": title, "text": sgml_text(rest)}, Origin(file.name, line))


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
