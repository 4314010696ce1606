"""Files of documents that tests write: tables, records, PDF, DOCX, PPTX, ODT, EPUB, mail and notebooks, by hand."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from vizsla.datasets import Source

Placed = tuple[float, float, float, str]
"""Where a line of a PDF begins, from the bottom left, the size of its letters, and its text."""

TABLE = """id,text,year,price,draft,day,code,note
01,a dog,1999,7.5,true,2024-02-29,007,
02,a cat,2001,10,FALSE,2023-12-31 10:30,8,x
03,"a, fish",,,,,,
"""
LINES = "".join(json.dumps({"id": str(n), "text": f"dog {n}"}) + "\n" for n in range(5))
RECORDS = [{"id": str(n), "text": f'a {"dog" * n} "[{{', "more": [{"n": n}]} for n in range(50)]


def contents(source: Path, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(d.id, dict(d.content)) for d in Source.find(source, **options).documents()]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def pdf(
    pages: Sequence[Sequence[Placed]],
    *,
    title: str = "",
    marks: Sequence[tuple[str, int, float]] = (),
    encrypted: bool = False,
    picture: bool = False,
) -> bytes:
    """A PDF with lines of Helvetica at places; `marks`: bookmarks with page and height."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for lines in pages:
        drawn = [
            b"BT /F1 %g Tf 1 0 0 1 %g %g Tm (%s) Tj ET" % (size, x, y, _pdf_text(text)) for x, y, size, text in lines
        ]
        if picture:
            drawn.append(b"q 500 0 0 700 50 50 cm /I Do Q")
        content = zlib.compress(b"\n".join(drawn))
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(content), content))
        kids.append(len(objects) + 1)
        resources = b"<< /Font << /F1 3 0 R >> /XObject << /I %d 0 R >> >>" % (len(objects) + 2)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R /Resources %s >>"
            % (len(objects), resources if picture else b"<< /Font << /F1 3 0 R >> >>")
        )
        if picture:
            head = b"/Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8"
            objects.append(b"<< %s /Length 4 >>\nstream\n\x00\xff\xff\x00\nendstream" % head)
    root = b"<< /Type /Catalog /Pages 2 0 R"
    if marks:
        first = len(objects) + 2
        root += b" /Outlines %d 0 R" % (first - 1)
        last = first + len(marks) - 1
        objects.append(b"<< /Type /Outlines /First %d 0 R /Last %d 0 R /Count %d >>" % (first, last, len(marks)))
        for number, (name, page, height) in enumerate(marks, first):
            following = b" /Next %d 0 R" % (number + 1) if number < last else b""
            objects.append(
                b"<< /Title (%s) /Parent %d 0 R%s /Dest [%d 0 R /XYZ 0 %g 0] >>"
                % (_pdf_text(name), first - 1, following, kids[page], height)
            )
    objects[0] = root + b" >>"
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % k for k in kids))
    trailer = b"/Root 1 0 R"
    if title:
        objects.append(b"<< /Title (%s) >>" % _pdf_text(title))
        trailer += b" /Info %d 0 R" % len(objects)
    if encrypted:
        objects.append(b"<< /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <%s> /U <%s> >>" % (b"41" * 32, b"42" * 32))
        trailer += b" /Encrypt %d 0 R /ID [<00> <00>]" % len(objects)
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer\n<< /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start))
    return out.getvalue()


def _pdf_text(text: str) -> bytes:
    return text.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """A zip package."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return out.getvalue()


_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CORE = "http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties"


def relations(*entries: tuple[str, str]) -> str:
    """Relations of an Office part: the types and the names of others."""
    found = "".join(
        f'<Relationship Id="r{n}" Type="{kind if "/" in kind else f"{_OFFICE}/{kind}"}" Target="{target}"/>'
        for n, (kind, target) in enumerate(entries)
    )
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{found}</Relationships>'
    )


def core(title: str, author: str) -> str:
    """The part of an Office file that names its author."""
    return (
        '<cp:coreProperties xmlns:cp="c" xmlns:dc="d" xmlns:t="t">'
        f"<dc:title>{escape(title)}</dc:title><dc:creator>{escape(author)}</dc:creator>"
        "<t:modified>2024-02-29T10:00:00Z</t:modified></cp:coreProperties>"
    )


def docx(body: str, *, notes: str = "", title: str = "", author: str = "", **more: str | bytes) -> bytes:
    """A Word document with this body, in the words of its XML."""
    styles = "".join(
        f'<w:style w:styleId="{key}"><w:name w:val="{name}"/>{based}</w:style>'
        for key, name, based in (
            ("berschrift1", "heading 1", ""),
            ("H2", "Heading 2", ""),
            ("Own", "Own", '<w:basedOn w:val="H2"/>'),
            ("T", "Title", ""),
        )
    )
    parts: dict[str, str | bytes] = {
        "_rels/.rels": relations(("officeDocument", "word/document.xml"), (_CORE, "docProps/core.xml")),
        "word/_rels/document.xml.rels": relations(("styles", "styles.xml"), ("footnotes", "footnotes.xml")),
        "word/styles.xml": f'<w:styles xmlns:w="w">{styles}</w:styles>',
        "word/footnotes.xml": f'<w:footnotes xmlns:w="w">{notes}</w:footnotes>',
        "word/document.xml": f'<w:document xmlns:w="w" xmlns:mc="m"><w:body>{body}</w:body></w:document>',
        "docProps/core.xml": core(title, author),
    }
    return zipped({**parts, **more})


def word(text: str, style: str = "", before: str = "") -> str:
    """A paragraph of Word."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r>{before}<w:t>{escape(text)}</w:t></w:r></w:p>"


def pptx(slides: Sequence[tuple[str, Sequence[str], str]], title: str = "") -> bytes:
    """A presentation: of each slide the title, the lines and the notes."""
    parts: dict[str, str | bytes] = {
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml"), (_CORE, "docProps/core.xml")),
        "docProps/core.xml": core(title, "Somebody"),
        "ppt/_rels/presentation.xml.rels": relations(*(("slide", f"slides/s{n}.xml") for n in range(len(slides)))),
        "ppt/presentation.xml": '<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst>'
        + "".join(f'<p:sldId id="{256 + n}" r:id="r{n}"/>' for n in reversed(range(len(slides))))
        + "</p:sldIdLst></p:presentation>",
    }
    for number, (heading, lines, notes) in enumerate(slides):
        shapes = _shape("title", [heading]) + _shape("sldNum", ["99"]) + _shape("body", lines)
        parts[f"ppt/slides/s{number}.xml"] = f'<p:sld xmlns:p="p" xmlns:a="a">{shapes}</p:sld>'
        parts[f"ppt/slides/_rels/s{number}.xml.rels"] = relations(("notesSlide", f"../notes/n{number}.xml"))
        parts[f"ppt/notes/n{number}.xml"] = f'<p:notes xmlns:p="p" xmlns:a="a">{_shape("body", [notes])}</p:notes>'
    return zipped(parts)


def _shape(kind: str, lines: Sequence[str]) -> str:
    paragraphs = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    return f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>'


def odt(body: str, *, encrypted: bool = False) -> bytes:
    """A text of OpenDocument."""
    names = 'xmlns:office="o" xmlns:text="t" xmlns:table="b" xmlns:dc="d" xmlns:m="m"'
    mark = "<m:encryption-data/>" if encrypted else ""
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="m"><m:file-entry>{mark}</m:file-entry></m:manifest>',
            "meta.xml": f"<office:document-meta {names}><office:meta><dc:title>Pets</dc:title>"
            "<dc:creator>Somebody</dc:creator></office:meta></office:document-meta>",
            "content.xml": f"<office:document-content {names}><office:body><office:text>{body}</office:text>"
            "</office:body></office:document-content>",
        }
    )


def epub(chapters: Sequence[str], *, title: str = "Pets", encryption: str = "") -> bytes:
    """A book of chapters in HTML, listed in the order of the last to the first and read from the first to the last."""
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in reversed(range(len(chapters)))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    nav = '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>',
        "OEBPS/a.opf": f'<package xmlns:dc="d"><metadata><dc:title>{title}</dc:title><dc:creator>Somebody</dc:creator>'
        f'<dc:language>en</dc:language></metadata><manifest>{nav}{items}</manifest><spine><itemref idref="nav"/>{spine}'
        "</spine></package>",
        "OEBPS/nav.xhtml": "<p>contents</p>",
        **{f"OEBPS/text/c {n}.xhtml": chapter for n, chapter in enumerate(chapters)},
    }
    if encryption:
        parts["META-INF/encryption.xml"] = f'<e><EncryptionMethod Algorithm="{encryption}"/></e>'
    return zipped(parts)


def notebook(*cells: tuple[str, str]) -> bytes:
    """A notebook of cells with their kinds."""
    made = [{"cell_type": kind, "source": text.splitlines(keepends=True), "outputs": []} for kind, text in cells]
    return json.dumps({"nbformat": 4, "metadata": {"language_info": {"name": "python"}}, "cells": made}).encode()


def message(subject: str, body: str, **headers: str) -> bytes:
    """A message of mail."""
    named = {"From": "a@example.org", "To": "b@example.org", "Date": "Thu, 29 Feb 2024 12:00:00 +0200", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in {"Subject": subject, **named}.items()]
    return "\n".join([*lines, "", body]).encode()


def examples() -> dict[str, bytes]:
    """A file of each format that is read in another process."""
    long = [(50.0, 700.0 - 20 * n, 11.0, f"Line {n} of a page says that dogs bark at cats.") for n in range(20)]
    return {
        "x.pdf": pdf([long, long[:5]], title="Dogs", marks=[("Line 3 of a page", 0, 650)]),
        "x.docx": docx("".join(word(f"Dogs bark {n}.", "berschrift1" if n % 5 == 0 else "") for n in range(20))),
        "x.pptx": pptx([("Dogs", ["They bark.", "Often."], "Say it loud."), ("Cats", ["They purr."], "Softly.")]),
        "x.odt": odt(
            "".join(f'<text:h text:outline-level="1">Dogs</text:h><text:p>Bark {n}.</text:p>' for n in range(20))
        ),
        "x.epub": epub(["<h1>Dogs</h1><p>bark.</p>", "<h1>Cats</h1><p>purr.</p>"]),
        "x.eml": message("Dogs", "They bark.\n\nOften.", Content_Type="text/plain; charset=utf-8"),
        "x.mbox": b"From a@example.org Thu Feb 29 12:00:00 2024\n"
        + message("Dogs", "They bark.\n", Message_ID="<1@a>"),
        "x.ipynb": notebook(("markdown", "# Dogs"), ("code", "bark()")),
        "x.html": b"<html><title>Dogs</title><nav>menu</nav><main><h1>Dogs</h1><p>bark</main></html>",
    }
