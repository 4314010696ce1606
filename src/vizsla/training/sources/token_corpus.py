"""Texts as token ids, packed once and mapped into memory; and with BERT's special tokens around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import Document
from vizsla.errors import InputError, VizslaError
from vizsla.models import field_text
from vizsla.neural.lazy_torch import torch
from vizsla.scratch import GrowingArray, blocks_of, offsets_of
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from torch import Tensor


_IDS, _OFFSETS = "ids.npy", "offsets.npy"
_ROWS = 10_000  # texts that are packed at once


@dataclass(frozen=True, eq=False)
class TokenCorpus:
    """Texts as token ids, one after another, without special tokens; or lists of any other numbers.

    >>> corpus = TokenCorpus.pack([[5, 6, 7], [8]])
    >>> len(corpus), corpus[0].tolist(), corpus.ids.dtype
    (2, [5, 6, 7], dtype('uint16'))
    """

    ids: np.ndarray
    offsets: np.ndarray
    """[texts + 1] where each text begins."""

    @classmethod
    def pack(cls, documents: Iterable[Sequence[int] | np.ndarray]) -> TokenCorpus:
        """Pack documents; empty ones are left out."""
        return cls.of(np.asarray(d, np.int64) for d in documents if len(d)).narrow()

    @classmethod
    def of(cls, documents: Iterable[np.ndarray], dtype: Any = np.int64) -> TokenCorpus:
        """All documents, empty ones too, so that their numbers stay."""
        growing, stream = GrowingCorpus(dtype), iter(documents)
        while rows := list(islice(stream, _ROWS)):
            growing.append_rows(rows)
        return growing.corpus()

    def narrow(self) -> TokenCorpus:
        """The same corpus in two bytes per id, or in four where an id needs them."""
        highest = max((int(block.max(initial=0)) for block in blocks_of(self.ids)), default=0)
        dtype = np.uint16 if highest < 1 << 16 else np.uint32
        return (
            self if self.ids.dtype == dtype else TokenCorpus(GrowingArray.of(blocks_of(self.ids), dtype), self.offsets)
        )

    @classmethod
    def concatenate(cls, corpora: Sequence[TokenCorpus]) -> TokenCorpus:
        """Several corpora, one after another."""
        if len(corpora) == 1:
            return corpora[0]
        begins = np.cumsum([0, *(c.offsets[-1] for c in corpora)])
        offsets = [c.offsets[:-1] + begin for c, begin in zip(corpora, begins[:-1], strict=True)]
        blocks = (block for c in corpora for block in blocks_of(c.ids))
        ids = GrowingArray.of(blocks, np.result_type(*(c.ids for c in corpora)))
        return cls(ids, np.concatenate([*offsets, begins[-1:]]))

    def shifted(self, first: int) -> TokenCorpus:
        """The same with `first` added to all numbers, in which documents of another corpus come before."""
        if not first:
            return self
        return TokenCorpus(
            GrowingArray.of((b.astype(np.int64) + first for b in blocks_of(self.ids)), np.int64), self.offsets
        )

    def chosen(self, numbers: np.ndarray) -> TokenCorpus:
        """Some of the texts, in this order."""
        return TokenCorpus.of((self[number] for number in numbers.tolist()), self.ids.dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, document: int) -> np.ndarray:
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    def save(self, folder: str | Path) -> None:
        """Write the arrays into a folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        np.save(path / _IDS, self.ids, allow_pickle=False)
        np.save(path / _OFFSETS, self.offsets, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> TokenCorpus:
        """A saved corpus, mapped into memory."""
        path = Path(folder)
        try:
            ids, offsets = (np.load(path / name, mmap_mode="r", allow_pickle=False) for name in (_IDS, _OFFSETS))
        except FileNotFoundError:
            raise InputError(f"there is no packed corpus here (no {_IDS} and {_OFFSETS})", file=str(folder)) from None
        except ValueError as e:
            raise InputError(f"this is not a packed corpus ({e})", file=str(folder)) from None
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(ids):
            raise InputError("the arrays of this packed corpus contradict each other", file=str(folder))
        return cls(ids, offsets)


class GrowingCorpus:
    """A corpus that is written block by block.

    >>> growing = GrowingCorpus(np.uint16)
    >>> growing.append(np.array([5, 6, 7]), np.array([2, 1]))
    >>> growing.append_rows([np.array([8])])
    >>> [row.tolist() for row in growing.corpus()]
    [[5, 6], [7], [8]]
    """

    def __init__(self, dtype: Any = np.int64) -> None:
        self._ids, self._sizes = GrowingArray(dtype), GrowingArray(np.int64)

    def __len__(self) -> int:
        return len(self._sizes)

    def append(self, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Add texts: the ids of all, one text after another, and how many each has."""
        self._ids.append(ids)
        self._sizes.append(sizes)

    def append_rows(self, rows: Sequence[np.ndarray]) -> None:
        """Add texts, each with an array of its own."""
        self.append(np.concatenate([*rows, np.zeros(0, self._ids.dtype)]), np.array([*map(len, rows)], np.int64))

    def corpus(self) -> TokenCorpus:
        """All texts."""
        return TokenCorpus(self._ids.array(), offsets_of(self._sizes.array()))


FIELDS = ("title", "text")
FIELDS_SETTING = "/".join(FIELDS)
LINE_BREAK = "\n"
"""What is between the fields of a document, unless a model has something else there."""
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


CLS, SEP, MASK = 101, 102, 103


def with_special_tokens(
    texts: TokenCorpus,
    chosen: Sequence[int] | np.ndarray,
    device: str | torch.device,
    *,
    max_length: int = 512,
) -> tuple[Tensor, Tensor]:
    """Token ids and mask, [texts, length], of some texts between [CLS] and [SEP]; `max_length` includes these two."""
    numbers = np.asarray(chosen, np.int64)
    begins = texts.offsets[numbers]
    sizes = np.minimum(texts.offsets[numbers + 1] - begins, max_length - 2)
    places = np.arange(sizes.max(initial=0) + 2)
    mask = places < sizes[:, None] + 2
    inside = (places > 0) & (places <= sizes[:, None])
    ids = np.zeros(mask.shape, np.int64)
    ids[:, 0] = CLS
    ids[inside] = texts.ids[(begins[:, None] + places - 1)[inside]]
    ids[np.arange(len(sizes)), sizes + 1] = SEP
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def sample_of(texts: TokenCorpus, count: int, max_length: int) -> list[list[int]]:
    """Token ids of `count` evenly spaced texts of a corpus, between special tokens."""
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), count)).astype(int)
    return [[CLS, *texts[i][: max_length - 2].tolist(), SEP] for i in chosen]
