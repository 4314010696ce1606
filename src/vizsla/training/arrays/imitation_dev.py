"""SPAR's validation: how highly a network ranks the first document of its teacher, in a small pool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import InputError
from vizsla.neural.chunks import packed
from vizsla.training.arrays.dev_set import Assemble, Encode
from vizsla.training.arrays.products import inner_products
from vizsla.training.arrays.special_tokens import with_special_tokens
from vizsla.training.arrays.token_corpus import TokenCorpus

_TOKENS = 65_536  # encoded at once
_FIRST, _NAME = "first.npy", "name.txt"


@dataclass(frozen=True, eq=False)
class ImitationDev:
    """Questions, and a pool of documents: for each question the teacher's first document and one of its last."""

    name: str
    queries: TokenCorpus
    documents: TokenCorpus
    """The pool, each document once."""
    first: np.ndarray
    """[queries] which document of the pool the teacher ranks first."""
    max_query_length: int = 64
    max_document_length: int = 224

    @classmethod
    def of(
        cls,
        name: str,
        queries: TokenCorpus,
        collection: TokenCorpus,
        first: np.ndarray,
        last: np.ndarray,
        *,
        max_query_length: int = 64,
        max_document_length: int = 224,
    ) -> ImitationDev:
        """From the numbers of the teacher's documents in a collection: its first for each query, and one of its last.

        >>> texts = TokenCorpus.pack([[7], [8], [9], [6]])
        >>> dev = ImitationDev.of("dev", TokenCorpus.pack([[7], [9]]), texts, np.array([0, 2]), np.array([2, 3]))
        >>> len(dev.documents), dev.first.tolist()
        (3, [0, 1])
        """
        pool = np.unique(np.concatenate([first, last]))
        documents = TokenCorpus.of([collection[number] for number in pool.tolist()])
        return cls(name, queries, documents, np.searchsorted(pool, first), max_query_length, max_document_length)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.documents.save(path / "documents")
        self.queries.save(path / "queries")
        np.save(path / _FIRST, self.first, allow_pickle=False)
        (path / _NAME).write_text(self.name, "utf-8")

    @classmethod
    def open(cls, folder: str | Path, *, max_query_length: int = 64, max_document_length: int = 224) -> ImitationDev:
        """A saved dev set."""
        path = Path(folder)
        try:
            first, name = np.load(path / _FIRST, allow_pickle=False), (path / _NAME).read_text("utf-8")
        except (FileNotFoundError, ValueError):
            raise InputError(f"there is no dev set here (no {_FIRST} and {_NAME})", file=str(folder)) from None
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(name, queries, documents, first, max_query_length, max_document_length)

    @torch.no_grad()
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """The mean reciprocal rank of the teacher's first document in the pool; of equal scores the worst rank."""

        def vectors(texts: TokenCorpus, side: int, max_length: int) -> Tensor:
            read = with_special_tokens(texts, range(len(texts)), device, max_length=max_length)
            batch = packed(*read, _TOKENS, side)
            made: Tensor = assemble([encode(chunk) for chunk in batch.chunks], batch)
            return made

        queries = vectors(self.queries, 0, self.max_query_length)
        scores = inner_products(queries, vectors(self.documents, 1, self.max_document_length))
        own = scores.gather(1, torch.from_numpy(np.asarray(self.first, np.int64)).to(device)[:, None])
        ranks = (scores >= own).sum(1)
        return {f"{self.name} MRR": float((1 / ranks.double()).mean())}
