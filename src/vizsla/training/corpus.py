"""A corpus as token ids, packed once and mapped into memory: two bytes a token where the vocabulary allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vizsla.errors import InputError

_IDS, _OFFSETS = "ids.npy", "offsets.npy"


@dataclass(frozen=True, eq=False)
class TokenCorpus:
    """Documents as token ids behind one another, without special tokens.

    >>> corpus = TokenCorpus.pack([[5, 6, 7], [8]])
    >>> len(corpus), corpus[0].tolist(), corpus.ids.dtype
    (2, [5, 6, 7], dtype('uint16'))
    """

    ids: np.ndarray
    offsets: np.ndarray
    """[documents + 1] where each begins."""

    @classmethod
    def pack(cls, documents: Iterable[Sequence[int] | np.ndarray]) -> TokenCorpus:
        """Pack documents; empty ones are left out."""
        rows = [np.asarray(d, np.int64) for d in documents if len(d)]
        return cls.of(rows).narrow()

    @classmethod
    def of(cls, documents: Sequence[np.ndarray]) -> TokenCorpus:
        """Documents as they are, empty ones too, so that numbers stay."""
        ids = np.concatenate([*documents, np.zeros(0, np.int64)])
        return cls(ids, np.cumsum([0, *map(len, documents)], dtype=np.int64))

    def narrow(self) -> TokenCorpus:
        """The same in two bytes a number, or in four where there are higher ones."""
        small = self.ids.max(initial=0) < 1 << 16
        return TokenCorpus(self.ids.astype(np.uint16 if small else np.uint32), self.offsets)

    @classmethod
    def joined(cls, corpora: Sequence[TokenCorpus]) -> TokenCorpus:
        """Several behind one another."""
        begins = np.cumsum([0, *(c.offsets[-1] for c in corpora)])
        offsets = [c.offsets[:-1] + begin for c, begin in zip(corpora, begins[:-1], strict=True)]
        return cls(np.concatenate([c.ids for c in corpora]), np.concatenate([*offsets, begins[-1:]]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, document: int) -> np.ndarray:
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        np.save(path / _IDS, self.ids, allow_pickle=False)
        np.save(path / _OFFSETS, self.offsets, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> TokenCorpus:
        """A corpus that was saved, mapped into memory."""
        path = Path(folder)
        try:
            ids, offsets = (np.load(path / name, mmap_mode="r", allow_pickle=False) for name in (_IDS, _OFFSETS))
        except FileNotFoundError:
            raise InputError(f"there is no packed corpus here (no {_IDS} and {_OFFSETS})", file=str(folder)) from None
        except ValueError as e:
            raise InputError(f"this is no packed corpus ({e})", file=str(folder)) from None
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(ids):
            raise InputError("the arrays of this packed corpus contradict each other", file=str(folder))
        return cls(ids, offsets)
