"""PowerPoint: PPTX, a page a slide, its title as heading, with the notes of the speaker."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.formats.docx import office_fields
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, Refusal, TextBuilder
from vizsla.datasets.zip_xml import Element, Package

_TITLES = ("title", "ctrTitle")
_LEFT_OUT = {"Fallback", "pPr", "rPr", "endParaRPr"}
_NUMBERS = ("sldNum", "dt", "ftr", "hdr")


@SOURCES.register("pptx", help="PowerPoint: a page a slide, with the speaker's notes.")
class Pptx(DocumentFormat):
    """A presentation."""

    endings = (".pptx", ".pptm", ".ppsx")
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:
        with file.stream() as stream:
            package = Package(stream)
            slides = _slides(package)
            if len(slides) > limits.pages:
                raise Refusal(f"this file has {len(slides):,} slides; at most {limits.pages:,} are read")
            text = TextBuilder(file.max_document)
            for name in slides:
                text.page()
                _add_slide(package.xml(name), text)
                for kind, notes in package.relations(name).values():
                    if kind == "notesSlide" and notes in package:
                        _add_slide(package.xml(notes), text)
            fields = office_fields(package)
            yield text.extracted(fields.pop("title", ""), fields)


def _slides(package: Package) -> list[str]:
    """The names of the slides in their order."""
    main = next((name for kind, name in package.relations("").values() if kind == "officeDocument"), "")
    if main not in package:
        raise Refusal("the file is damaged or not what its name says (it has no presentation in it)")
    relations = package.relations(main)
    ids = [slide.attributes for slide in package.xml(main).all("sldId")]
    found = [relations[value][1] for slide in ids for value in slide.values() if value in relations]
    return [name for name in found if name in package]


def _add_slide(slide: Element, text: TextBuilder) -> None:
    shapes = [shape for shape in slide.all("sp") if _kind(shape) not in _NUMBERS]
    for shape in shapes:
        if _kind(shape) in _TITLES:
            text.heading(1, " ".join(_paragraphs(shape)))
    for element in slide.walk(lambda e: e.name not in _LEFT_OUT):
        event, shape = element
        if event != "start":
            continue
        if shape.name == "sp" and _kind(shape) not in (*_TITLES, *_NUMBERS):
            for number, words in enumerate(_paragraphs(shape)):
                text.row(words) if number else text.paragraph(words)
        elif shape.name == "tr":
            text.row(" ".join(words for cell in shape.all("tc") for words in _paragraphs(cell)))


def _kind(shape: Element) -> str:
    placeholder = shape.first("nvSpPr", "nvPr", "ph")
    return placeholder.get("type") if placeholder is not None else ""


def _paragraphs(shape: Element) -> list[str]:
    """The texts of the paragraphs of a shape."""
    found = []
    for paragraph in shape.all("p"):
        pieces = []
        for event, element in paragraph.walk(lambda e: e.name not in _LEFT_OUT):
            if event == "text":
                pieces.append(element.name)
            elif element.name in ("br", "tab") and event == "start":
                pieces.append(" ")
        if words := " ".join("".join(pieces).split()):
            found.append(words)
    return found
