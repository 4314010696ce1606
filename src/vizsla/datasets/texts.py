"""Texts: folders of text, Markdown and HTML files, and TREC's SGML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from vizsla.datasets.document import Document, Origin
from vizsla.datasets.files import COMPRESSIONS, read_lines
from vizsla.errors import InputError

TEXT_ENDINGS = (".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm")
_SKIPPED = {"script", "style", "noscript", "template"}
_BLOCKS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "section", "article", "title"}


def bare_name(path: Path) -> str:
    """A file's name without the ending of a compression."""
    name = path.name
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return name.lower()


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder and those below it, hidden ones left out."""
    return [
        p
        for p in sorted(folder.rglob("*"))
        if p.is_file()
        and bare_name(p).endswith(TEXT_ENDINGS)
        and not any(part.startswith(".") for part in p.relative_to(folder).parts)
    ]


def read_text_file(path: Path, doc_id: str) -> Document:
    """One file as one document: its title from a heading, else its name."""
    text = "".join(line for _, line in read_lines(path))
    name = bare_name(path)
    title = ""
    if name.endswith((".html", ".htm")):
        title, text = html_text(text)
    elif name.endswith((".md", ".markdown")):
        title, text = markdown_text(text)
    return Document(doc_id, {"title": title or path.name, "text": text}, Origin(str(path), 1))


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.text: list[str] = []
        self._skipping = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self._skipping += tag in _SKIPPED
        self._in_title |= tag == "title"
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._skipping = max(self._skipping - (tag in _SKIPPED), 0)
        self._in_title &= tag != "title"
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._skipping:
            self.text.append(data)


def html_text(source: str) -> tuple[str, str]:
    """Title and text of an HTML page.

    >>> html_text("<title>Dogs</title><p>Dogs <b>bark</b>.<script>x()</script><p>Cats &amp; fish")
    ('Dogs', 'Dogs bark.\\nCats & fish')
    """
    parser = _Html()
    parser.feed(source)
    parser.close()
    return " ".join("".join(parser.title).split()), _tidied("".join(parser.text))


_FENCE = re.compile(r"^(```|~~~).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"^\s{0,3}(?:#{1,6}\s+|>\s?|[-*+]\s+|\d+\.\s+)|[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}", re.MULTILINE)


def markdown_text(source: str) -> tuple[str, str]:
    """Title (the first heading) and text of a Markdown file, marks taken off.

    >>> markdown_text("# Dogs\\n\\nDogs **bark** at [cats](cats.md).")
    ('Dogs', 'Dogs\\nDogs bark at cats.')
    """
    heading = re.search(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$", source, re.MULTILINE)
    text = _MARKS.sub("", _LINK.sub(r"\1", _FENCE.sub("", source)))
    return _MARKS.sub("", heading[1]) if heading else "", _tidied(text)


def _tidied(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


_TAG = re.compile(r"<[^<>]+>")


def read_trec(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[Document]:
    """TREC's SGML: <DOC> with a <DOCNO>; title and headline are the title, everything else the text."""
    block: list[str] = []
    start = 0
    for number, line in read_lines(path, progress):
        if "<DOC>" in line.upper():
            if block:
                raise InputError(f"a <DOC> starts inside the one of line {start}", file=str(path), line=number)
            start, block = number, [line]
        elif block:
            block.append(line)
        if block and "</DOC>" in line.upper():
            yield _trec_document("".join(block), Origin(str(path), start))
            block = []
    if block:
        raise InputError("this <DOC> is never closed", file=str(path), line=start)


def _trec_document(block: str, origin: Origin) -> Document:
    docno = re.search(r"<DOCNO>\s*(.*?)\s*</DOCNO>", block, re.IGNORECASE | re.DOTALL)
    if docno is None or not docno[1]:
        raise InputError("this <DOC> has no <DOCNO>", file=origin.file, line=origin.line)
    rest = block.replace(docno[0], "")
    titles = re.findall(r"<(TITLE|HEADLINE|HL|TI)>(.*?)</\1>", rest, re.IGNORECASE | re.DOTALL)
    for tag in {tag for tag, _ in titles}:
        rest = re.sub(rf"<{tag}>.*?</{tag}>", " ", rest, flags=re.IGNORECASE | re.DOTALL)
    title = " ".join(unescape(_TAG.sub(" ", " ".join(text for _, text in titles))).split())
    return Document(docno[1], {"title": title, "text": _tidied(unescape(_TAG.sub(" ", rest)))}, origin)
