"""Word: DOCX, with headings, tables, notes, and the pages as Word last laid them out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, Refusal, TextBuilder
from vizsla.datasets.zip_xml import Element, Package

_LEFT_OUT = {"del", "moveFrom", "instrText", "Fallback", "delText", "rPr", "pPr", "sectPr", "tblPr", "annotationRef"}
_HEADING = re.compile(r"heading (\d)")


@SOURCES.register("docx", help="Word documents: headings, tables, notes, pages.")
class Docx(DocumentFormat):
    """A Word document."""

    endings = (".docx", ".docm", ".dotx")
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with file.stream() as stream:
            package = Package(stream)
            main = _main_part(package)
            relations = dict(package.relations(main).values())
            levels = _heading_levels(package.xml(relations["styles"])) if relations.get("styles", "") in package else {}
            text = TextBuilder(file.max_document)
            reader = _Reader(text, levels)
            reader.add(package.xml(main))
            for kind in ("footnotes", "endnotes"):
                if relations.get(kind, "") in package:
                    reader.add(package.xml(relations[kind]))
            fields = office_fields(package)
            yield text.extracted(fields.pop("title", "") or reader.title, fields)


def _main_part(package: Package) -> str:
    for kind, name in package.relations("").values():
        if kind == "officeDocument":
            return name
    raise Refusal("the file is damaged or not what its name says (it has no document in it)")


def office_fields(package: Package) -> dict[str, str]:
    """Title, author and date of an Office file, as far as it names them."""
    name = next((name for kind, name in package.relations("").values() if kind == "core-properties"), "")
    if name not in package:
        return {}
    found = {child.name: " ".join(child.text.split()) for child in package.xml(name).elements}
    fields = {"title": found.get("title", ""), "author": found.get("creator", "")}
    return {**fields, "date": (found.get("modified") or found.get("created") or "")[:10]}


def _heading_levels(styles: Element) -> dict[str, int]:
    """The level of each style of paragraphs that is a heading; 0 for that of the title."""
    levels: dict[str, int] = {}
    parents: dict[str, str] = {}
    for style in styles.all("style"):
        key, name = style.get("styleId"), style.first("name")
        based, outline = style.first("basedOn"), style.first("pPr", "outlineLvl")
        called = name.get("val").lower() if name else ""
        if match := _HEADING.fullmatch(called):
            levels[key] = int(match[1])
        elif called == "title":
            levels[key] = 0
        elif outline is not None and outline.get("val") in "012345678":
            levels[key] = int(outline.get("val") or 0) + 1
        elif based is not None:
            parents[key] = based.get("val")
    for key, parent in parents.items():
        for _ in range(10):  # a style may be based on one that is based on another
            if parent in levels:
                levels[key] = levels[parent]
                break
            parent = parents.get(parent, "")
    return levels


class _Reader:
    """Adds what the paragraphs and tables of a part say to a text."""

    def __init__(self, text: TextBuilder, levels: dict[str, int]) -> None:
        self.title = ""
        self._text = text
        self._levels = levels
        self._pages = 0

    def add(self, part: Element) -> None:
        pieces: list[str] = []
        level: list[int | None] = []
        tables = 0
        breaks = False
        for event, element in part.walk(lambda e: e.name not in _LEFT_OUT):
            name = element.name
            if event == "text":
                pieces.append(name) if level and self._is_text else None
            elif event == "start":
                if name == "p":
                    level.append(self._level(element))
                elif name == "tbl":
                    tables += 1
                    self._paragraph(pieces, None)
                elif name == "t":
                    self._is_text = True
                elif name in ("tab", "cr", "br"):
                    breaks = breaks or element.get("type") == "page"
                    pieces.append("\n" if name != "tab" else " ")
                elif name == "lastRenderedPageBreak":
                    breaks = True
                elif name == "noBreakHyphen":
                    pieces.append("-")
            elif name == "t":
                self._is_text = False
            elif name == "p" and level:
                if breaks:
                    self._begin_page()
                    breaks = False
                if tables:
                    level.pop()
                    pieces.append(" ")
                else:
                    self._paragraph(pieces, level.pop())
            elif name == "tr":
                self._text.row("".join(pieces))
                pieces.clear()
            elif name == "tbl":
                tables -= 1

    _is_text = False

    def _begin_page(self) -> None:
        if not self._pages:
            self._text.first_page()
        self._pages += 1
        self._text.page()

    def _level(self, paragraph: Element) -> int | None:
        """The level of a heading; None for another paragraph."""
        outline, style = paragraph.first("pPr", "outlineLvl"), paragraph.first("pPr", "pStyle")
        if outline is not None and outline.get("val") in tuple("012345678"):
            return int(outline.get("val")) + 1
        return self._levels.get(style.get("val")) if style is not None else None

    def _paragraph(self, pieces: list[str], level: int | None) -> None:
        words = "".join(pieces)
        pieces.clear()
        if level is not None:
            self.title = self.title or (" ".join(words.split()) if level == 0 else "")
            self._text.heading(max(level, 1), words)
        else:
            self._text.paragraph(words)
