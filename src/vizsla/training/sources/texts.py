"""Texts as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

import numpy as np

from vizsla.datasets import Document, article_of
from vizsla.errors import VizslaError
from vizsla.models import field_text
from vizsla.text import Analyzer
from vizsla.training.sources.token_corpus import GrowingCorpus, TokenCorpus

FIELDS = ("title", "text")
FIELDS_SETTING = "/".join(FIELDS)
LINE_BREAK = "\n"
"""What is between the fields of a document, unless a model has something else there."""
MIN_TOKENS = 20  # a shorter document does not give two useful crops
_TEXTS = 5000  # tokenized at once


def read_texts(documents: Iterable[Document], fields: Sequence[str], separator: str = LINE_BREAK) -> Iterator[str]:
    """The text that a model reads of each document: its fields, with a separator between those that it has.

    >>> next(read_texts([Document("d", {"title": "Dogs", "text": "Dogs bark."})], FIELDS, " [SEP] "))
    'Dogs [SEP] Dogs bark.'
    """
    if separator == LINE_BREAK:
        return (field_text(document.content, fields) for document in documents)
    each = ([field_text(document.content, (name,)) for name in fields] for document in documents)
    return (separator.join(text for text in texts if text) for texts in each)


def fields_of(text: str) -> tuple[str, ...]:
    """The names of fields in a setting.

    >>> fields_of("title/text/queries")
    ('title', 'text', 'queries')
    """
    names = tuple(name.strip() for name in text.split("/"))
    if not all(names):
        raise VizslaError(f"data.fields are names of fields separated by /, as in title/text, not {text!r}")
    return names


class TextPacker:
    """Turns texts into token ids without special tokens, block by block; it caches words."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._lexicon = analyzer.lexicon()
        self._numbers: dict[str, int] = analyzer.tokenizer.numbers  # type: ignore[attr-defined]
        self.dtype = np.dtype(np.uint16 if max(self._numbers.values(), default=0) < 1 << 16 else np.uint32)

    def block(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The token ids of some texts, one text after another, and how many each text has."""
        terms, ends = self._lexicon.encode(texts)
        ids = np.array([self._numbers[t] for t in self._lexicon.terms], self.dtype)
        return ids[terms], np.diff(ends, prepend=0)

    def blocks(self, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same of any number of texts."""
        stream = iter(texts)
        while block := list(islice(stream, _TEXTS)):
            yield self.block(block)


def packed_texts(texts: Iterable[str], analyzer: Analyzer) -> TokenCorpus:
    """Texts as token ids, empty ones included."""
    packer = TextPacker(analyzer)
    growing = GrowingCorpus(packer.dtype)
    for ids, sizes in packer.blocks(texts):
        growing.append(ids, sizes)
    return growing.corpus()


def packed_documents(documents: Iterable[Document], analyzer: Analyzer, passages_per_document: int = 1) -> TokenCorpus:
    """Documents to crop, as token ids; short ones are left out.

    `passages_per_document`: this many neighbours with the same title become one document.
    """
    packer = TextPacker(analyzer)
    growing = GrowingCorpus(packer.dtype)
    for ids, sizes in packer.blocks(_joined(documents, passages_per_document)):
        long_enough = sizes >= MIN_TOKENS
        growing.append(ids[np.repeat(long_enough, sizes)], sizes[long_enough])
    if not len(growing):
        raise VizslaError(f"there is no document with {MIN_TOKENS} tokens or more to train on")
    return growing.corpus().narrow()


def _joined(documents: Iterable[Document], count: int) -> Iterator[str]:
    if count <= 1:
        yield from (field_text(d.content, FIELDS) for d in documents)
        return
    for _, article in groupby(documents, key=article_of):
        while passages := list(islice(article, count)):
            yield "\n".join(field_text(d.content, ("text",)) for d in passages)
