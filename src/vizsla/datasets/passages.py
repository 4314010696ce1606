"""Passages: split long documents into pieces, and join them again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import Any

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

        The id of a passage is the id of the document, #, and the number of the passage.
        """
        text = document.get("text")
        spans = [m.span() for m in _WORD.finditer(text)] if isinstance(text, str) else []
        step = self.words - self.overlap
        starts = range(0, max(len(spans) - self.overlap, 1), step)
        for n, start in enumerate(starts):
            words = spans[start : start + self.words]
            part = text[words[0][0] : words[-1][1]] if words and isinstance(text, str) else text
            content = {**document.content, "text": part} if text is not None else document.content
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
            content = {**content, "text": " ".join([text, *(self._without_overlap(p["text"]) for p in passages[1:])])}
        return Document(document_of(first.id), content, first.origin)

    def _without_overlap(self, text: str) -> str:
        """The text of a passage after the words it shares with the previous passage."""
        return text[next(islice(_WORD.finditer(text), self.overlap, None)).start() :]


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
