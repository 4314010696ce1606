"""Long documents in passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from vizsla.datasets.document import Document
from vizsla.errors import VizslaError, kind_of

_WORD = re.compile(r"\S+")
MARK = "#"  # between a document's id and the number of its passage


@dataclass(frozen=True)
class Splitter:
    """Cuts a document's text into passages of so many words, each overlapping the one before by so many.

    >>> [p["text"] for p in Splitter(3, 1).passages(Document("d", {"text": "a b c d e"}))]
    ['a b c', 'c d e']
    """

    words: int
    overlap: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.words, int) or not isinstance(self.overlap, int):
            raise VizslaError("passages are told by whole numbers of words")
        if self.words < 1 or not 0 <= self.overlap < self.words:
            raise VizslaError("a passage needs at least one word, and may overlap the one before by fewer than it has")

    @classmethod
    def of(cls, value: Any) -> Splitter:
        """A splitter as it is, or one that cuts into passages of a number of words.

        >>> Splitter.of(100)
        Splitter(words=100, overlap=0)
        """
        if isinstance(value, Splitter):
            return value
        if not isinstance(value, bool) and isinstance(value, Integral):
            return cls(int(value))
        raise VizslaError(f"passages are a number of words or a Splitter(words, overlap), not {kind_of(value)}")

    def passages(self, document: Document) -> Iterator[Document]:
        """The passages of a document, with all else that is known of it; at least one."""
        text = document.get("text")
        places = [m.span() for m in _WORD.finditer(text)] if isinstance(text, str) else []
        step = self.words - self.overlap
        starts = range(0, max(len(places) - self.overlap, 1), step)
        for n, start in enumerate(starts):
            inside = places[start : start + self.words]
            part = text[inside[0][0] : inside[-1][1]] if inside and isinstance(text, str) else text
            content = {**document.content, "text": part} if text is not None else document.content
            yield Document(f"{document.id}{MARK}{n}", {**content, "passage": n}, document.origin, document.found)


def document_of(passage_id: str) -> str:
    """The id of the document a passage is of."""
    return passage_id.rpartition(MARK)[0]
