"""Passages: split long documents into pieces, and join them again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import Any

from vizsla.datasets.extracted import OUTLINE, Heading, Outline
from vizsla.errors import VizslaError, kind_of
from vizsla.runs.documents import Document

_WORD = re.compile(r"\S+")
MARK = "#"  # between a document's id and the number of its passage


@dataclass(frozen=True)
class Splitter:
    """Cuts the text of a document into passages of `words` words, which overlap by `overlap` words.

    >>> [p["text"] for p in Splitter(3, 1).passages(Document("d", {"text": "a b c d e"}))]
    ['a b c', 'c d e']
    """

    words: int
    overlap: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.words, int) or not isinstance(self.overlap, int):
            raise VizslaError("the words and the overlap of passages must be whole numbers")
        if self.words < 1 or not 0 <= self.overlap < self.words:
            raise VizslaError(
                "a passage needs at least one word, and an overlap of 0 or more words that is smaller than the passage"
            )

    @classmethod
    def of(cls, value: Any) -> Splitter:
        """The given splitter, or one for passages of a number of words.

        >>> Splitter.of(100)
        Splitter(words=100, overlap=0)
        """
        if isinstance(value, Splitter):
            return value
        if not isinstance(value, bool) and isinstance(value, Integral):
            return cls(int(value))
        raise VizslaError(f"passages are a number of words or a Splitter(words, overlap), not {kind_of(value)}")

    def passages(self, document: Document) -> Iterator[Document]:
        """The passages of a document, at least one, with all its other fields.

        The id of a passage is the id of the document, #, and the number of the passage. Of an outline it has what
        stands in the passage, and the headings above it.
        """
        text = document.get("text")
        outline = Outline.of(document.get(OUTLINE)) if isinstance(text, str) else None
        spans = [m.span() for m in _WORD.finditer(text)] if isinstance(text, str) else []
        step = self.words - self.overlap
        starts = range(0, max(len(spans) - self.overlap, 1), step)
        for n, start in enumerate(starts):
            words = spans[start : start + self.words]
            part = text[words[0][0] : words[-1][1]] if words and isinstance(text, str) else text
            content = {**document.content, "text": part} if text is not None else document.content
            if outline is not None and words:
                content = {**content, OUTLINE: outline.cut(words[0][0], words[-1][1]).as_field()}
            yield Document(f"{document.id}{MARK}{n}", content, document.origin, document.source_names)

    def whole(self, passages: Sequence[Document]) -> Document:
        """The document that was split into these passages, given all of them in order.

        Only white space where the text was split may differ.

        >>> splitter = Splitter(3, 1)
        >>> splitter.whole(list(splitter.passages(Document("d", {"text": "a b  c d e f"}))))
        Document(id='d', content={'text': 'a b  c d e f'})
        """
        first = passages[0]
        text = first.get("text")
        content = first.content
        if isinstance(text, str) and len(passages) > 1:
            pieces = [text, *(self._without_overlap(p["text"]) for p in passages[1:])]
            content = {**content, "text": " ".join(pieces)}
            if OUTLINE in content and (outline := _joined_outline(passages, pieces)) is not None:
                content[OUTLINE] = outline.as_field()
        return Document(document_of(first.id), content, first.origin)

    def _without_overlap(self, text: str) -> str:
        """The text of a passage after the words it shares with the previous passage."""
        return text[next(islice(_WORD.finditer(text), self.overlap, None)).start() :]


def _joined_outline(passages: Sequence[Document], pieces: Sequence[str]) -> Outline | None:
    """The outline of a document from those of its passages; a piece is a passage without its overlap."""
    headings: list[Heading] = []
    pages: dict[int, int] = {}
    end = -1
    for number, (passage, piece) in enumerate(zip(passages, pieces, strict=True)):
        outline = Outline.of(passage.get(OUTLINE))
        if outline is None:
            return None
        end += 1 + len(piece)
        start = end - len(passage["text"])  # of the passage in the joined text
        fresh = end - len(piece) - start if number else 0
        for page, offset in enumerate(outline.pages, outline.first_page):
            pages.setdefault(page, max(offset + start, 0))
        headings += [
            heading._replace(offset=heading.offset + start) for heading in outline.headings if heading.offset >= fresh
        ]
    if not pages:
        return Outline(tuple(headings))
    first, last = min(pages), max(pages)
    offsets = [pages[last]]
    for page in range(last - 1, first - 1, -1):  # a page without words begins where the next one does
        offsets.append(min(pages.get(page, offsets[-1]), offsets[-1]))
    return Outline(tuple(headings), tuple(reversed(offsets)), first)


def document_of(passage_id: str) -> str:
    """The id of the document of a passage."""
    return passage_id.rpartition(MARK)[0]


def passage_of(passage_id: str) -> int:
    """The number of a passage in its document, from 0."""
    return int(passage_id.rpartition(MARK)[2])


def article_of(document: Document) -> object:
    """What the passages of an article have in common: their title; without one, the id before # and a number.

    >>> [article_of(Document(id, {})) for id in ("d7#0", "d7#1", "c#", "7")]
    ['d7', 'd7', 'c#', '7']
    """
    article, mark, number = document.id.rpartition(MARK)
    return document.content.get("title") or (article if mark and number.isdecimal() else document.id)
