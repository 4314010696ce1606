"""The text of a file with its headings and pages: what readers of PDF, Word, HTML and the like make.

    text = TextBuilder()
    text.heading(1, "Dogs")
    text.paragraph("Dogs bark.")
    extracted = text.extracted(title="Dogs")

A document carries headings and pages as its field `outline`, so that passages know where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vizsla.runs.outline import LEVELS, Heading, Outline

MAX_HEADING = 200  # characters; longer ones are paragraphs that are set like a heading
MAX_TITLE = 300
_TOP = 10_000  # characters: a heading behind them does not name the document
_NONE = Outline()
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Extracted:
    """The text of a file, or of one of the messages in it."""

    text: str
    title: str = ""
    outline: Outline = _NONE
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the document, as an author and a date."""
    id: str = ""
    """What it is called in its file, if the file holds several; empty for the path of the file."""
    line: int = 1
    """The line of the file where it begins, for messages."""

    def as_message(self) -> dict[str, Any]:
        """Plain JSON, to be sent to another process."""
        return {
            "text": self.text, "title": self.title, "outline": self.outline.as_field(), "fields": dict(self.fields),
            "id": self.id, "line": self.line,
        }  # fmt: skip

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Extracted:
        """The same from plain JSON; what is not of the right type is a ValueError."""
        texts = [message.get(name) for name in ("text", "title", "id")]
        outline, fields, line = Outline.of(message.get("outline")), message.get("fields"), message.get("line")
        if not all(isinstance(text, str) for text in texts) or outline is None:
            raise ValueError("a text is missing")
        if not isinstance(fields, dict) or type(line) is not int:
            raise ValueError("a field is missing")
        return cls(str(texts[0]), str(texts[1]), outline, fields, str(texts[2]), line)


class TooMuchTextError(Exception):
    """A text grows beyond what a document may have."""


class TextBuilder:
    """Puts a text together from paragraphs, headings and pages. Blocks are separated by an empty line.

    >>> text = TextBuilder()
    >>> text.page(); text.heading(1, "Dogs"); text.paragraph(" Dogs\\n bark. ")
    >>> text.extracted().text, text.extracted().outline.headings
    ('Dogs\\n\\nDogs bark.', (Heading(offset=0, level=1, text='Dogs'),))
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        """`max_bytes`: the size of a text, beyond which it is refused."""
        self._max_bytes = max_bytes
        self._parts: list[str] = []
        self._length = self._bytes = 0
        self._headings: list[Heading] = []
        self._pages: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def paragraph(self, text: str) -> None:
        """Add a paragraph; its white space becomes single blanks."""
        self.block(" ".join(text.split()))

    def lines(self, text: str) -> None:
        """Add a block whose line ends are kept, such as code or the rows of a table."""
        kept = [line.rstrip() for line in text.expandtabs().split("\n")]
        self.block("\n".join(kept).strip("\n"))

    def row(self, text: str) -> None:
        """Add a line to the block before: a row of a table, an item of a list."""
        self.block(" ".join(text.split()), between="\n")

    def heading(self, level: int, text: str) -> None:
        """Add a heading; one of very many words is a paragraph."""
        words = " ".join(_CONTROLS.sub("", text).split())
        if words and len(words) <= MAX_HEADING:
            self.mark(level, words, after=2)
        self.block(words)

    def mark(self, level: int, text: str, *, after: int = 0) -> None:
        """A heading that begins here, or so many characters after what there is; its words are added later."""
        offset = self._length + (after if self._parts else 0)
        self._headings.append(Heading(offset, min(max(level, 1), LEVELS), text))

    def page(self, after: int = 0) -> None:
        """Begin a page, with the next block or so many characters after its begin."""
        self._pages.append(self._length + (2 if self._parts else 0) + after)

    def first_page(self) -> None:
        """Say that what there is so far stands on the first page, if nothing has been said yet."""
        if not self._pages:
            self._pages.append(0)

    def block(self, text: str, between: str = "\n\n") -> None:
        """Add a block as it is, without characters that are no text."""
        text = _CONTROLS.sub("", text)
        if not text.strip():
            return
        if self._parts:
            text = between + text
        self._length += len(text)
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            raise TooMuchTextError
        self._parts.append(text)

    def extracted(self, title: str = "", fields: Mapping[str, Any] | None = None, **more: Any) -> Extracted:
        """What was put together. Without a title it is the first heading of the highest level near the beginning."""
        text = "".join(self._parts)
        outline = Outline(
            tuple(heading for heading in self._headings if heading.offset < len(text)),
            tuple(min(page, len(text)) for page in self._pages),
        )
        chosen = " ".join(_CONTROLS.sub("", title).split())[:MAX_TITLE]
        at_the_top = [heading for heading in outline.headings[:20] if heading.offset < _TOP]
        if not chosen and at_the_top:
            chosen = min(at_the_top, key=lambda heading: heading.level).text
        kept = {name: value for name, value in (fields or {}).items() if value not in ("", None, [])}
        return Extracted(text, chosen, outline, kept, **more)
