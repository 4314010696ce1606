"""E-books: EPUB, the chapters in their order of reading."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.formats.html import Page, charset
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, NoText, Refusal, TextBuilder
from vizsla.datasets.zip_xml import Element, Package, resolved

_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""The ways to hide fonts, which are no protection of the text."""
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


@SOURCES.register("epub", help="E-books: the chapters in their order.")
class Epub(DocumentFormat):
    """A book."""

    endings = (".epub",)
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:
        with file.stream() as stream:
            package = Package(stream)
            _check_readable(package)
            root = package.xml("META-INF/container.xml")
            name = next((found.get("full-path") for found in root.all("rootfile")), "")
            book = package.xml(name)
            folder = posixpath.dirname(name)
            text = TextBuilder(file.max_document)
            for number, item in enumerate(_chapters(book)):
                if number >= limits.pages:
                    raise Refusal(f"this book has more than {limits.pages:,} chapters")
                chapter = resolved(folder, item.get("href"))
                if chapter in package:
                    data = package.read(chapter)
                    Page(file.decoded(data, charset(data) or "latin-1")).add_to(text)
            fields = _fields(book)
            yield text.extracted(fields.pop("title", ""), fields)


def _check_readable(package: Package) -> None:
    """Refuse a book whose text is encrypted."""
    if "META-INF/encryption.xml" not in package:
        return
    methods = package.xml("META-INF/encryption.xml").all("EncryptionMethod")
    if any(method.get("Algorithm") not in _FONTS for method in methods):
        raise NoText("this book is encrypted")


def _chapters(book: Element) -> list[Element]:
    """The chapters in their order, without the table of contents."""
    items = {item.get("id"): item for item in book.all("item")}
    order = [items.get(reference.get("idref")) for reference in book.all("itemref")]
    return [
        item
        for item in order
        if item is not None and item.get("media-type") in _PAGES and "nav" not in item.get("properties").split()
    ]


def _fields(book: Element) -> dict[str, str]:
    metadata = book.first("metadata")
    found: dict[str, str] = {}
    for element in metadata.elements if metadata is not None else ():
        found.setdefault(element.name, " ".join(element.text.split()))
    return {
        "title": found.get("title", ""), "author": found.get("creator", ""), "date": found.get("date", "")[:10],
        "language": found.get("language", ""),
    }  # fmt: skip
