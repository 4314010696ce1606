"""Texts as token ids, packed once and mapped into memory; and with BERT's special tokens around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import InputError

_IDS, _OFFSETS = "ids.npy", "offsets.npy"


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
        rows = [np.asarray(d, np.int64) for d in documents if len(d)]
        return cls.of(rows).narrow()

    @classmethod
    def of(cls, documents: Sequence[np.ndarray]) -> TokenCorpus:
        """All documents, empty ones too, so that their numbers stay."""
        ids = np.concatenate([*documents, np.zeros(0, np.int64)])
        return cls(ids, np.cumsum([0, *map(len, documents)], dtype=np.int64))

    def narrow(self) -> TokenCorpus:
        """The same corpus in two bytes per id, or in four where an id needs them."""
        fits = self.ids.max(initial=0) < 1 << 16
        return TokenCorpus(self.ids.astype(np.uint16 if fits else np.uint32), self.offsets)

    @classmethod
    def concatenate(cls, corpora: Sequence[TokenCorpus]) -> TokenCorpus:
        """Several corpora, one after another."""
        begins = np.cumsum([0, *(c.offsets[-1] for c in corpora)])
        offsets = [c.offsets[:-1] + begin for c, begin in zip(corpora, begins[:-1], strict=True)]
        return cls(np.concatenate([c.ids for c in corpora]), np.concatenate([*offsets, begins[-1:]]))

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
