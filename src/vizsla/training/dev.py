"""Dev sets: judged queries that training asks every so often, as arrays that need nothing but numpy and torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import InputError
from vizsla.networks import Batch, Chunk, packed
from vizsla.training.corpus import TokenCorpus
from vizsla.training.losses import inner_products

LONGEST = 512  # tokens of a text that are read, special ones included
_TOKENS = 65_536
_BLOCK = 8192
_DEPTH = 10

Encode = Callable[[Chunk], Tensor]
Assemble = Callable[[list[Tensor], Batch], Tensor]


class Rows(NamedTuple):
    """Sparse vectors: where each begins, terms, weights."""

    pointers: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    def dense(self, first: int, last: int, size: int, device: torch.device) -> Tensor:
        """[rows, size] some of the vectors."""
        a, z = int(self.pointers[first]), int(self.pointers[last])
        rows = np.repeat(np.arange(last - first), np.diff(self.pointers[first : last + 1]))
        dense = torch.zeros(last - first, size, device=device)
        terms, weights = self.terms[a:z].astype(np.int64), self.weights[a:z].astype(np.float32)
        dense[torch.from_numpy(rows).to(device), torch.from_numpy(terms).to(device)] = torch.from_numpy(weights).to(
            device
        )
        return dense


@dataclass(frozen=True, eq=False)
class DevSet:
    """Documents, queries and judgements, and the vectors of another model whose scores can be added: BM25's."""

    name: str
    documents: TokenCorpus
    queries: TokenCorpus
    judgements: np.ndarray
    """[judgements, 3] query, document and grade."""
    other_documents: Rows | None = None
    other_queries: Rows | None = None

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        self.documents.save(path / "documents")
        self.queries.save(path / "queries")
        np.save(path / "judgements.npy", self.judgements, allow_pickle=False)
        for name, rows in (("documents", self.other_documents), ("queries", self.other_queries)):
            if rows is not None:
                for part, array in rows._asdict().items():
                    np.save(path / f"other_{name}_{part}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> DevSet:
        path = Path(folder)
        try:
            judgements = np.load(path / "judgements.npy", allow_pickle=False)
        except (FileNotFoundError, ValueError):
            raise InputError("there is no packed dev set here (no judgements.npy)", file=str(folder)) from None
        rows = []
        for name in ("documents", "queries"):
            files = [path / f"other_{name}_{part}.npy" for part in Rows._fields]
            there = all(f.exists() for f in files)
            rows.append(Rows(*(np.load(f, allow_pickle=False) for f in files)) if there else None)
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(path.name, documents, queries, judgements, *rows)

    @torch.no_grad()
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of the network, and of its scores with the other model's at the same spread."""
        queries = self._vectors(self.queries, 0, len(self.queries), 0, encode, assemble, device)
        scores = torch.cat(
            [
                inner_products(queries, self._vectors(self.documents, a, z, 1, encode, assemble, device))
                for a, z in _blocks(len(self.documents))
            ],
            dim=1,
        )
        figures = {f"{self.name} nDCG@10": self._ndcg(scores)}
        if self.other_documents is not None and self.other_queries is not None:
            size = 1 + max(int(r.terms.max(initial=0)) for r in (self.other_documents, self.other_queries))
            asked = self.other_queries.dense(0, len(self.queries), size, device)
            other = torch.cat(
                [asked @ self.other_documents.dense(a, z, size, device).T for a, z in _blocks(len(self.documents))], 1
            )
            figures[f"{self.name} with BM25 nDCG@10"] = self._ndcg(other + scores * (other.std() / scores.std()))
        return figures

    def _vectors(
        self, texts: TokenCorpus, first: int, last: int, side: int, encode: Encode, assemble: Assemble,
        device: torch.device,
    ) -> Tensor:  # fmt: skip
        batch = packed(*framed(texts, range(first, last), device), _TOKENS, side)
        return assemble([encode(chunk) for chunk in batch.chunks], batch)

    def _ndcg(self, scores: Tensor) -> float:
        return mean_ndcg(scores, self.judgements)


def mean_ndcg(scores: Tensor, judgements: np.ndarray) -> float:
    """nDCG@10 of [queries, documents] scores, the mean over queries that have a judgement."""
    grades = torch.zeros_like(scores, dtype=torch.float32)
    queries, documents, grade = (torch.from_numpy(column).to(scores.device) for column in judgements.T.copy())
    grades[queries.long(), documents.long()] = grade.float().clamp(min=0)
    judged = torch.unique(queries.long())
    depth = min(_DEPTH, scores.shape[1])
    discount = 1 / torch.log2(torch.arange(2, depth + 2, device=scores.device).float())
    found = grades.gather(1, scores.topk(depth, 1).indices)[judged] @ discount
    best = grades.topk(depth, 1).values[judged] @ discount
    return float(torch.where(best > 0, found / best, 0.0).mean())


def framed(
    texts: TokenCorpus,
    chosen: Sequence[int] | np.ndarray,
    device: Any,
    start: int = 101,
    end: int = 102,
    longest: int = LONGEST,
) -> tuple[Tensor, Tensor]:
    """Token ids and mask of some texts between special tokens, cut to what is read of them."""
    numbers = np.asarray(chosen, np.int64)
    begins = texts.offsets[numbers]
    sizes = np.minimum(texts.offsets[numbers + 1] - begins, longest - 2)
    places = np.arange(sizes.max(initial=0) + 2)
    mask = places < sizes[:, None] + 2
    inside = (places > 0) & (places <= sizes[:, None])
    ids = np.zeros(mask.shape, np.int64)
    ids[:, 0] = start
    ids[inside] = texts.ids[(begins[:, None] + places - 1)[inside]]
    ids[np.arange(len(sizes)), sizes + 1] = end
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def _blocks(size: int) -> list[tuple[int, int]]:
    return [(a, min(a + _BLOCK, size)) for a in range(0, size, _BLOCK)]
