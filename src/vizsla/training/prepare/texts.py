"""Texts as token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING

import numpy as np

from vizsla.datasets import Document
from vizsla.errors import VizslaError
from vizsla.models import field_text
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.training.arrays.token_corpus import TokenCorpus

FIELDS = ("title", "text")
FIELDS_SETTING = "/".join(FIELDS)
MIN_TOKENS = 20  # a shorter document does not give two useful crops
_TEXTS = 5000  # tokenized at once


def fields_of(text: str) -> tuple[str, ...]:
    """The names of fields in a setting.

    >>> fields_of("title/text/queries")
    ('title', 'text', 'queries')
    """
    names = tuple(name.strip() for name in text.split("/"))
    if not all(names):
        raise VizslaError(f"data.fields are names of fields separated by /, as in title/text, not {text!r}")
    return names


def tokenizer_of(analyzer: Analyzer) -> Callable[[Sequence[str]], list[np.ndarray]]:
    """A function from texts to their token ids, without special tokens; it caches words."""
    lexicon, numbers = analyzer.lexicon(), analyzer.tokenizer.numbers  # type: ignore[attr-defined]

    def tokenize(texts: Sequence[str]) -> list[np.ndarray]:
        terms, ends = lexicon.encode(texts)
        ids = np.array([numbers[t] for t in lexicon.terms], np.int64)
        return np.split(ids[terms], ends[:-1])

    return tokenize


def packed_texts(texts: Sequence[str], analyzer: Analyzer) -> TokenCorpus:
    """Texts as token ids, empty ones included."""
    from vizsla.training.arrays.token_corpus import TokenCorpus

    return TokenCorpus.of(tokenizer_of(analyzer)(texts))


def packed_documents(documents: Iterable[Document], analyzer: Analyzer, passages_per_document: int = 1) -> TokenCorpus:
    """Documents to crop, as token ids; short ones are left out.

    `passages_per_document`: this many neighbours with the same title become one document.
    """
    from vizsla.training.arrays.token_corpus import TokenCorpus

    tokenize = tokenizer_of(analyzer)
    rows: list[np.ndarray] = []
    texts = iter(_joined(documents, passages_per_document))
    while block := list(islice(texts, _TEXTS)):
        rows += [row.astype(np.uint16 if row.max(initial=0) < 1 << 16 else np.uint32) for row in tokenize(block)]
    long_enough = [row for row in rows if len(row) >= MIN_TOKENS]
    if not long_enough:
        raise VizslaError(f"there is no document with {MIN_TOKENS} tokens or more to train on")
    return TokenCorpus.pack(long_enough)


def _joined(documents: Iterable[Document], count: int) -> Iterator[str]:
    if count <= 1:
        yield from (field_text(d.content, FIELDS) for d in documents)
        return
    for _, article in groupby(documents, key=lambda d: d.content.get("title") or d.id):
        while passages := list(islice(article, count)):
            yield "\n".join(field_text(d.content, ("text",)) for d in passages)
