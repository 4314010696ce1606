"""OpenDocument: texts (ODT) and presentations (ODP), with headings, tables, notes and pages."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, NoText, TextBuilder
from vizsla.datasets.zip_xml import Element, Package

_LEFT_OUT = {
    "tracked-changes",
    "annotation",
    "forms",
    "scripts",
    "automatic-styles",
    "font-face-decls",
    "note-citation",
}


@SOURCES.register("odt", help="OpenDocument texts and presentations: headings, tables, notes, pages.")
class Odt(DocumentFormat):
    """A text or a presentation of LibreOffice."""

    endings = (".odt", ".ott", ".odp")
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with file.stream() as stream:
            package = Package(stream)
            if "META-INF/manifest.xml" in package and next(
                package.xml("META-INF/manifest.xml").all("encryption-data"), None
            ):
                raise NoText("this file is encrypted")
            text = TextBuilder(file.max_document)
            title = _add(package.xml("content.xml"), text)
            fields = _fields(package)
            yield text.extracted(fields.pop("title", "") or title, fields)


def _fields(package: Package) -> dict[str, str]:
    if "meta.xml" not in package:
        return {}
    meta = package.xml("meta.xml").first("meta")
    found = {child.name: " ".join(child.text.split()) for child in meta.elements} if meta else {}
    author = found.get("creator") or found.get("initial-creator", "")
    return {"title": found.get("title", ""), "author": author, "date": found.get("date", "")[:10]}


def _add(content: Element, text: TextBuilder) -> str:
    """Add a document to a text; gives the paragraph in the style of a title."""
    title = ""
    open_paragraphs: list[tuple[Element, list[str]]] = []
    notes: list[str] = []
    rows: list[list[str]] = []
    in_list = paged = False
    for event, element in content.walk(lambda e: e.name not in _LEFT_OUT):
        name = element.name
        if event == "text":
            if open_paragraphs:
                open_paragraphs[-1][1].append(name)
        elif event == "start":
            if name in ("p", "h"):
                open_paragraphs.append((element, []))
            elif name == "table-row":
                rows.append([])
            elif name == "list-item":
                in_list = True
            elif name == "page" or (name == "soft-page-break" and not open_paragraphs):
                if not paged and name != "page":
                    text.first_page()
                paged = True
                text.page()
            elif open_paragraphs and name in ("s", "tab", "line-break"):
                open_paragraphs[-1][1].append(" ")
        elif name in ("p", "h") and open_paragraphs:
            paragraph, pieces = open_paragraphs.pop()
            words = " ".join("".join(pieces).split())
            if open_paragraphs:  # in a note, or a text box
                notes.append(words)
            elif rows:
                rows[-1].append(words)
            elif name == "h":
                level = paragraph.get("outline-level")
                text.heading(int(level) if level.isdecimal() and len(level) < 3 else 1, words)
            elif in_list:
                text.row(words)
            else:
                title = title or (words if paragraph.get("style-name") in ("Title", "Titel") else "")
                text.paragraph(words)
            if not open_paragraphs and not rows:
                for note in notes:
                    text.paragraph(note)
                notes.clear()
        elif name == "table-row" and rows:
            row = rows.pop()
            if rows:
                rows[-1] += row
            else:
                text.row(" ".join([*row, *notes]))
                notes.clear()
        elif name == "list":
            in_list = False
    return title
