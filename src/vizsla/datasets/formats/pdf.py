"""PDF, read by pdfium: paragraphs in reading order, pages, headings; without headers, footers and divided words."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any

from vizsla.datasets.files import InputFile
from vizsla.datasets.pdf_layout import (
    HYPHEN,
    Line,
    Mark,
    PageLines,
    add_pages,
    in_reading_order,
    part_at_gaps,
    without_repeated,
)
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, NoText, Refusal, TextBuilder
from vizsla.errors import MissingPackageError

_SPACE = 0.12
"""The width of a gap between two letters that is a space, by their height."""
_DPI = 200
_MAX_PIXELS = 30_000_000
_MAX_CHARACTERS = 1_000_000  # of a page
_MAX_MARKS = 5000
_BOLD = re.compile(rb"bold|black|heavy|semibd|CMBX|-Bd|Demi", re.IGNORECASE)
_NO_TITLE = re.compile(
    r"(?i)untitled|microsoft|^\s*$|\.(?:docx?|dvi|tex|indd|pdf|qxd|rtf|ps|pptx?|html?)$|^slide \d"
    r"|^(?:title|document)\d*$"
)


@SOURCES.register("pdf", help="PDF: paragraphs in reading order, pages, headings.", needs=("pypdfium2",))
class Pdf(DocumentFormat):
    """A PDF file."""

    endings = (".pdf",)
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:
        import pypdfium2

        with file.stream() as stream:
            try:
                pdf = pypdfium2.PdfDocument(stream)
            except pypdfium2.PdfiumError as e:
                if "password" in str(e).lower():
                    raise NoText("this file is encrypted: it opens with a password only") from None
                raise Refusal(f"the file is damaged or not what its name says ({e})") from None
            try:
                yield _extracted(pdf, file, limits)
            finally:
                pdf.close()


def _extracted(pdf: Any, file: InputFile, limits: Limits) -> Extracted:
    count = len(pdf)
    if count > limits.pages:
        raise Refusal(f"this file has {count:,} pages; at most {limits.pages:,} are read")
    pages, pictures, lost, size = [], [], [], 0
    for number in range(count):
        lines = _lines_of_page(pdf, number)
        if lines is None:
            lost.append(number + 1)
        elif not lines:
            pictures.append(number)
            if limits.ocr:
                lines = _recognized(pdf, number)
        pages.append(PageLines(lines or []))
        size += sum(len(line.text) for line in lines or ())
        if size > file.max_document:
            raise file.too_large(1)
    if lost and len(lost) == count:
        raise Refusal("the file is damaged or not what its name says (none of its pages can be read)")
    without_repeated(pages)
    _add_marks(pdf, pages)
    text = TextBuilder(file.max_document)
    largest = add_pages(pages, text)
    if text.is_empty:
        what = f"its {count:,} pages have" if count != 1 else "its page has"
        how = "nothing was recognised in them" if limits.ocr else "--ocr (in Python ocr=True) reads pictures of text"
        raise NoText(f"{what} no text, only pictures; {how}" if pictures else f"{what} no text")
    said = pdf.get_metadata_dict()
    title = " ".join(str(said.get("Title") or "").split())
    fields = {"author": said.get("Author"), "date": _date(str(said.get("CreationDate") or "")), "pages_lost": lost}
    return text.extracted(largest if _NO_TITLE.search(title) else title, fields)


def _date(text: str) -> str:
    """The day of a date as PDF writes it: D:20240229120000."""
    digits = re.match(r"D:(\d{4})(\d\d)(\d\d)", text)
    return "-".join(digits.groups()) if digits else ""


def _lines_of_page(pdf: Any, number: int) -> list[Line] | None:
    """The lines of a page in reading order; None if it cannot be read."""
    import pypdfium2

    try:
        page = pdf[number]
    except pypdfium2.PdfiumError:
        return None
    try:
        characters = page.get_textpage()
    except pypdfium2.PdfiumError:
        return None
    finally_close = (characters, page)
    try:
        return in_reading_order(_segments(characters))
    finally:
        for one in finally_close:
            one.close()


def _segments(characters: Any) -> list[Line]:
    """The text of a page in pieces that no wide gap and no end of a line divides, in the order of the file."""
    from pypdfium2 import raw

    handle, count = characters.raw, min(characters.count_chars(), _MAX_CHARACTERS)
    box = raw.FS_RECTF()
    reference = ctypes.byref(box)
    unicode_of, box_of, is_hyphen = raw.FPDFText_GetUnicode, raw.FPDFText_GetLooseCharBox, raw.FPDFText_IsHyphen
    found: list[Line] = []
    letters: list[str] = []
    left = bottom = right = top = 0.0
    first = 0

    def end() -> None:
        if words := "".join(letters).strip():
            found.append(Line(_whole(words), left, bottom, right, top, _is_bold(raw, handle, first)))
        letters.clear()

    for index in range(count):
        code = unicode_of(handle, index)
        if code in (10, 13):
            end()
            continue
        if code in (2, 0xFFFE, 0xAD) or (code == 45 and is_hyphen(handle, index) == 1):
            letters.append(HYPHEN)
            continue
        if code == 0 or not box_of(handle, index, reference):
            continue
        if letters and code != 32 and box.right > box.left:
            if part_at_gaps(box.left - right, top - bottom):
                end()
            elif box.top > bottom and box.bottom < top:
                if letters[-1] != " " and box.left - right > _SPACE * (top - bottom):
                    letters.append(" ")  # pdfium leaves out narrow ones, as groff sets them
                left, right = min(left, box.left), max(right, box.right)
        if not letters:
            if code == 32:
                continue
            left, bottom, right, top, first = box.left, box.bottom, box.right, box.top, index
        letters.append(chr(code) if code < 0x110000 else "\ufffd")
    end()
    return found


def _whole(words: str) -> str:
    """A text with pairs of surrogates as the characters they stand for."""
    if any("\ud800" <= c <= "\udfff" for c in words):
        return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return words


_name = ctypes.create_string_buffer(128)
_flags = ctypes.c_int()


def _is_bold(raw: Any, handle: Any, index: int) -> bool:
    length = raw.FPDFText_GetFontInfo(handle, index, _name, 128, ctypes.byref(_flags))
    return bool(0 < length <= 128 and _BOLD.search(_name.value))


def _add_marks(pdf: Any, pages: list[PageLines]) -> None:
    """Give the pages their bookmarks."""
    import pypdfium2

    try:
        for number, bookmark in enumerate(pdf.get_toc()):
            target = bookmark.get_dest() if number < _MAX_MARKS else None
            if target is None:
                continue
            index = target.get_index()
            if index is None or not 0 <= index < len(pages):
                continue
            _, place = target.get_view()
            top = place[1] if len(place) > 1 else place[0] if len(place) == 1 else None
            words = bookmark.get_title()
            if words and words.strip():
                pages[index].marks.append(Mark(bookmark.level + 1, " ".join(words.split()), top))
    except (pypdfium2.PdfiumError, UnicodeDecodeError, ValueError, TypeError):
        return  # a damaged outline: headings are then told by their letters


def _recognized(pdf: Any, number: int) -> list[Line]:
    """The lines of a page that is a picture."""
    page = pdf[number]
    try:
        width, height = page.get_size()
        scale = min(_DPI / 72, (_MAX_PIXELS / max(width * height, 1.0)) ** 0.5)
        picture = page.render(scale=scale).to_numpy()
    finally:
        page.close()
    found = _engine()(picture)
    if found.txts is None:
        return []
    lines = []
    for words, corners in zip(found.txts, found.boxes.tolist(), strict=True):
        across, down = [x / scale for x, _ in corners], [height - y / scale for _, y in corners]
        lines.append(Line(str(words), min(across), min(down), max(across), max(down)))
    return in_reading_order(lines)


_engines: list[Any] = []


def _engine() -> Any:
    """What recognises characters; it is loaded once."""
    if not _engines:
        try:
            from rapidocr import RapidOCR
        except ImportError:
            raise MissingPackageError(
                "recognising characters needs rapidocr, which is not installed; get it with: pip install 'vizsla[ocr]'"
            ) from None
        _engines.append(RapidOCR())
    return _engines[0]
