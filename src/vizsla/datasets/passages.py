"""Passages: split long documents into pieces, and join them again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from numbers import Integral
from typing import Any

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.plain_data import fields_from_data
from vizsla.runs.documents import Document
from vizsla.runs.outline import DOCUMENT_TEXT, LEVELS, OUTLINE, Heading, Outline
from vizsla.text.sentences import sentence_starts
from vizsla.text.tokens import word_tokens

_CHARACTERS = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_CHARACTERS}][\u3001-\u303f\uff01-\uff0f\uff1a-\uff1f]*|[^\s{_CHARACTERS}]+")
"""A word; a Chinese or Japanese character is one, with the punctuation after it, since no blanks separate words."""
_LINES = re.compile(r"\n(\s*\n)?")
MARK = "#"  # between a document's id and the number of its passage
UNITS = ("words", "tokens")
WAYS = ("sentences", "words")
_WORD_END, _LINE, _SENTENCE, _PARAGRAPH, _HEADING = range(5)  # where a text may be cut, from bad to good


@dataclass(frozen=True)
class Splitter:
    """Cuts the text of a document into passages of at most `size` words or tokens.

    A passage ends at the best place in its second half: before a heading, else after a paragraph, a sentence or a line.
    If its second half has no such place, the passage ends where it is full, between two words.

    >>> [p["text"] for p in Splitter(6).passages(Document("d", {"text": "Dogs bark. Cats do not. Fish swim."}))]
    ['Dogs bark. Cats do not.', 'Fish swim.']
    """

    size: int
    overlap: int = 0
    """How many words or tokens the end of a passage and the next passage have in common, at most: whole sentences, none
    over a heading. If a sentence is cut, so many words."""
    unit: str = "words"
    """What is counted: `words`, or `tokens` of a language model, about (`vizsla.count_tokens`)."""
    at: str = "sentences"
    """Where texts are cut: `sentences`, or `words`, which makes all passages equally long."""
    headings: bool = True
    """Whether models read the headings above a passage, behind the title of its document."""

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or not isinstance(self.overlap, int):
            raise VizslaError("the size and the overlap of passages must be whole numbers")
        if self.size < 1 or not 0 <= self.overlap < self.size:
            raise VizslaError(
                "a passage needs at least one word, and an overlap of 0 or more words that is smaller than the passage"
            )
        if self.unit not in UNITS:
            raise UnknownNameError("unit of passages", self.unit, UNITS)
        if self.at not in WAYS:
            raise UnknownNameError("way to cut passages", self.at, WAYS)
        if not isinstance(self.headings, bool):
            raise VizslaError(f"headings is True or False, not {kind_of(self.headings)}")

    @classmethod
    def of(cls, value: Any) -> Splitter:
        """The given splitter, or one for passages of a number of words.

        >>> Splitter.of(100)
        Splitter(size=100, overlap=0, unit='words', at='sentences', headings=True)
        """
        if isinstance(value, Splitter):
            return value
        if not isinstance(value, bool) and isinstance(value, Integral):
            return cls(int(value))
        raise VizslaError(f"passages are a number of words or a Splitter(size, overlap), not {kind_of(value)}")

    @classmethod
    def from_data(cls, data: object) -> Splitter:
        """The splitter that plain data describe, as `dataclasses.asdict` gives them."""
        return cls(**fields_from_data(cls, data, size="int"))

    def __str__(self) -> str:
        overlap = f" that overlap by {self.overlap}" if self.overlap else ""
        at = ", cut at words" if self.at == "words" else ""
        return f"passages of {self.size} {self.unit}{overlap}{at}{'' if self.headings else ', without headings'}"

    def passages(self, document: Document) -> Iterator[Document]:
        """The passages of a document, at least one, with all its other fields.

        The id of a passage is the id of the document, #, and the number of the passage. Its field `outline` says where
        it begins in the text of the document, and what headings and pages stand above and in it. A document whose
        field `outline` holds something else keeps it, and is cut without overlap.
        """
        text = document.get("text")
        if not isinstance(text, str):
            yield Document(f"{document.id}{MARK}0", document.content, document.origin, document.source_names)
            return
        outline = Outline.of(document.get(OUTLINE))
        is_foreign = outline is None and OUTLINE in document.content
        known = outline or Outline()
        end = 0
        for number, (first, last) in enumerate(self.spans(text, known, 0 if is_foreign else self.overlap)):
            content = {**document.content, "text": text[first:last]}
            if not is_foreign and (outline is not None or number):
                before = text[end:first] if first > end else " "
                content[OUTLINE] = known.cut(first, last, before).as_field()
            yield Document(f"{document.id}{MARK}{number}", content, document.origin, document.source_names)
            end = last

    def read(self, document: Document, passages: Sequence[Document]) -> Iterator[Document]:
        """The passages of a document as models read them.

        The title is followed by the headings above the passage. The first passage has a field `document_text`: title
        and text of the whole document.

        >>> text, headings = "Care It needs to run. Every day.", [[0, 1, "Care"]]
        >>> vizsla = Document("v", {"title": "Vizsla", "text": text, "outline": {"headings": headings}})
        >>> for passage in Splitter(5).read(vizsla, list(Splitter(5).passages(vizsla))):
        ...     print(passage["title"], passage.get("document_text"))
        Vizsla ['Vizsla', 'Care It needs to run. Every day.']
        ['Vizsla', 'Care'] None
        """
        for number, passage in enumerate(passages):
            content = {name: value for name, value in self.headed(passage.content).items() if name != DOCUMENT_TEXT}
            if number == 0:
                parts = [part for name in ("title", "text") for part in _texts_of(document.get(name))]
                content[DOCUMENT_TEXT] = document.get(DOCUMENT_TEXT, parts)
            yield replace(passage, content=content)

    def headed(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of a passage as models read them: the title, and the headings above the passage."""
        outline = Outline.of(content.get(OUTLINE)) if self.headings else None
        if outline is None or not outline.headings or outline.headings[0].offset >= 0:
            return content
        title = _texts_of(content.get("title"))
        above = [heading.text for heading in outline.headings if heading.offset < 0 and heading.text not in title]
        return {**content, "title": [*title, *above]} if above else content

    def spans(self, text: str, outline: Outline | None = None, overlap: int | None = None) -> list[tuple[int, int]]:
        """Where the passages of a text begin and end. The first begins and the last ends with the text.

        >>> Splitter(2).spans("Dogs bark. Cats do not.")
        [(0, 10), (11, 18), (19, 23)]
        """
        overlap = self.overlap if overlap is None else overlap
        words = [match.span() for match in _WORD.finditer(text)]
        counts = [1] * len(words) if self.unit == "words" else [word_tokens(text[a:b]) for a, b in words]
        sums = [0, *accumulate(counts)]
        good = _Places.of(text, [a for a, _ in words], outline or Outline()) if self.at == "sentences" else _Places()
        cuts, start, end = list[tuple[int, int]](), 0, 0
        while True:
            most = max(bisect_right(sums, sums[start] + self.size) - 1, start + 1)
            if most >= len(words):
                cuts.append((start, len(words)))
                break
            half = bisect_left(sums, sums[start] + (self.size + 1) // 2)
            end, quality = good.best(max(half, start + 1, end + 1), most)  # beyond the end of the passage before
            cuts.append((start, end))
            shared = max(sums[end] - overlap, sums[end + 1] - self.size)  # leaves space for another word
            earliest = max(bisect_left(sums, shared), start + 1)
            start = good.first(earliest, end) if quality else min(earliest, end)
        first = [words[a][0] for a, _ in cuts[1:]]
        last = [words[b - 1][1] for _, b in cuts[:-1]]
        return list(zip([0, *first], [*last, len(text)], strict=True))

    def whole(self, passages: Sequence[Document]) -> Document:
        """The document that was split into these passages, given all of them in order.

        >>> splitter = Splitter(3, 1)
        >>> splitter.whole(list(splitter.passages(Document("d", {"text": "a b  c d e f"}))))
        Document(id='d', content={'text': 'a b  c d e f'})
        """
        return Document(document_of(passages[0].id), self.joined(passages), passages[0].origin)

    def joined(self, passages: Sequence[Document]) -> Mapping[str, Any]:
        """The fields of some passages of a document that follow one another, as of one longer passage."""
        first = passages[0]
        text, content = first.get("text"), first.content
        if not isinstance(text, str) or len(passages) == 1:
            return content
        outlines = [Outline.of(passage.get(OUTLINE)) for passage in passages[1:]]
        known = [outline for outline in outlines if outline is not None]
        if len(known) < len(outlines):
            return {**content, "text": " ".join(passage["text"] for passage in passages)}
        beginning = Outline.of(content.get(OUTLINE)) or Outline()
        pieces, length = [text], len(text)
        for passage, outline in zip(passages[1:], known, strict=True):
            own, start = passage["text"], outline.offset - beginning.offset
            if start > length:
                pieces.append(outline.before)
                length += len(outline.before)
            pieces.append(own[max(length - start, 0) :])
            length += len(pieces[-1])
        content = {**content, "text": "".join(pieces)}
        if OUTLINE in content:
            content[OUTLINE] = _joined_outline([beginning, *known], [len(p["text"]) for p in passages]).as_field()
        return content


@dataclass(frozen=True)
class _Places:
    """Where a text is well cut: numbers of words, ascending, and how good it is to cut before each."""

    words: Sequence[int] = ()
    qualities: Sequence[float] = ()

    @classmethod
    def of(cls, text: str, starts: Sequence[int], outline: Outline) -> _Places:
        """The places in a text whose words begin at `starts`."""
        found: dict[int, float] = {}
        for match in _LINES.finditer(text):
            found[match.end()] = _PARAGRAPH if match[1] is not None else _LINE
        for start in sentence_starts(text):
            found[start] = max(found.get(start, 0), _SENTENCE)
        for heading in outline.headings:
            found[heading.offset] = _HEADING + 1 - heading.level / LEVELS
        best: dict[int, float] = {}
        for offset, quality in found.items():
            word = bisect_left(starts, offset)
            best[word] = max(best.get(word, 0), quality)
        words = sorted(best)
        return cls(words, [best[word] for word in words])

    def best(self, first: int, last: int) -> tuple[int, float]:
        """The best place from one word to another, the last of several, and how good it is; else the last word."""
        a, b = bisect_left(self.words, first), bisect_right(self.words, last)
        quality, place = max(zip(self.qualities[a:b], self.words[a:b], strict=True), default=(_WORD_END, last))
        return place, quality

    def first(self, first: int, last: int) -> int:
        """The first sentence that begins from one word on, after the last heading, before another word; else that."""
        b = bisect_right(self.words, last)
        place = last
        for number in range(b - 1, bisect_left(self.words, first) - 1, -1):
            if self.qualities[number] >= _SENTENCE:
                place = self.words[number]
            if self.qualities[number] >= _HEADING:
                break
        return place


def _texts_of(value: object) -> list[str]:
    """A text, or the texts of a list, without empty ones."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and text]


def _joined_outline(outlines: Sequence[Outline], lengths: Sequence[int]) -> Outline:
    """The outline of passages that follow one another, given the lengths of their texts."""
    first = outlines[0]
    headings: list[Heading] = []
    pages: dict[int, int] = {}
    end = -1
    for outline, length in zip(outlines, lengths, strict=True):
        start = outline.offset - first.offset  # of the passage in the joined text
        for page, offset in enumerate(outline.pages, outline.first_page):
            pages.setdefault(page, offset + start)
        headings += [
            heading._replace(offset=heading.offset + start)
            for heading in outline.headings
            if outline is first or heading.offset + start >= end
        ]
        end = start + length
    if not pages:
        return Outline(tuple(headings), (), 1, first.offset, first.before)
    lowest, highest = min(pages), max(pages)
    offsets = [pages[highest]]
    for page in range(highest - 1, lowest - 1, -1):  # a page without words begins where the next one does
        offsets.append(min(pages.get(page, offsets[-1]), offsets[-1]))
    return Outline(tuple(headings), tuple(reversed(offsets)), lowest, first.offset, first.before)


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
