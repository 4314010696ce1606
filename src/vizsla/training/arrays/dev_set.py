"""Dev sets: judged queries, or a teacher's first documents, that a network is evaluated on during training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import InputError
from vizsla.neural.chunks import Batch, Chunk, packed
from vizsla.training.arrays.products import SparseRows, inner_products, scores_of
from vizsla.training.arrays.token_corpus import TokenCorpus, with_special_tokens

_TOKENS = 65_536  # encoded at once
_BLOCK = 2048  # documents scored at once
_DEPTH = 10
_NAME = "name.txt"

Encode = Callable[[Chunk], Tensor]
"""A function from a chunk of texts to the network's output."""
Assemble = Callable[[list[Tensor], Batch], Any]
"""A function that combines a network's outputs for the chunks of a batch into vectors."""


class Dev(Protocol):
    """Measures a network while it is trained."""

    @property
    def name(self) -> str:
        """The data set's name."""

    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """The values of measures, by name."""


@dataclass(frozen=True, eq=False)
class DevSet:
    """Documents, queries and judgements, and BM25's vectors, whose scores can be added to the network's."""

    name: str
    documents: TokenCorpus
    queries: TokenCorpus
    judgements: np.ndarray
    """[judgements, 3] query, document and grade."""
    bm25_documents: SparseRows | None = None
    bm25_queries: SparseRows | None = None
    max_length: int = 512
    """Tokens of a text that are read, special ones included."""
    document_terms: int = 0
    """How many terms of a document's vector are kept, those with the highest weights; 0 for all."""
    sparse: bool = False
    """Whether a query finds only documents with a score above 0, as in an inverted index."""

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.documents.save(path / "documents")
        self.queries.save(path / "queries")
        np.save(path / "judgements.npy", self.judgements, allow_pickle=False)
        (path / _NAME).write_text(self.name, "utf-8")
        for name, rows in (("documents", self.bm25_documents), ("queries", self.bm25_queries)):
            if rows is not None:
                for part, array in rows._asdict().items():
                    np.save(path / f"bm25_{name}_{part}.npy", array, allow_pickle=False)

    @classmethod
    def open(
        cls, folder: str | Path, *, max_length: int = 512, document_terms: int = 0, sparse: bool = False
    ) -> DevSet:
        """A saved dev set."""
        path = Path(folder)
        try:
            judgements, name = np.load(path / "judgements.npy", allow_pickle=False), (path / _NAME).read_text("utf-8")
        except (FileNotFoundError, ValueError):
            raise InputError(f"there is no dev set here (no judgements.npy and {_NAME})", file=str(folder)) from None
        bm25 = []
        for side in ("documents", "queries"):
            files = [path / f"bm25_{side}_{part}.npy" for part in SparseRows._fields]
            complete = all(f.exists() for f in files)
            bm25.append(SparseRows(*(np.load(f, allow_pickle=False) for f in files)) if complete else None)
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(name, documents, queries, judgements, bm25[0], bm25[1], max_length, document_terms, sparse)

    @torch.no_grad()
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of the network, and of the sum of its scores and BM25's after scaling both to the same spread."""
        queries = self._vectors(self.queries, 0, len(self.queries), 0, encode, assemble, device)
        scores = torch.cat(
            [
                scores_of(queries, [self._vectors(self.documents, first, last, 1, encode, assemble, device)])
                for first, last in _blocks(len(self.documents))
            ],
            dim=1,
        )
        return self.figures_of(scores, device)

    def figures_of(self, scores: Tensor, device: torch.device) -> dict[str, float]:
        """The same, given [queries, documents] the scores of the network."""
        figures = {f"{self.name} nDCG@10": self._ndcg(scores)}
        bm25 = self._bm25_scores(device)
        if bm25 is not None:
            total = bm25 + scores * (bm25.std() / scores.std())
            figures[f"{self.name} with BM25 nDCG@10"] = self._ndcg(total)
        return figures

    def _ndcg(self, scores: Tensor) -> float:
        return mean_ndcg(found(scores) if self.sparse else scores, self.judgements)

    def _bm25_scores(self, device: torch.device) -> Tensor | None:
        if self.bm25_documents is None or self.bm25_queries is None:
            return None
        size = 1 + max(int(rows.terms.max(initial=0)) for rows in (self.bm25_documents, self.bm25_queries))
        queries = self.bm25_queries.dense(0, len(self.queries), size, device)
        documents, blocks = self.bm25_documents, _blocks(len(self.documents))
        return torch.cat([queries @ documents.dense(first, last, size, device).T for first, last in blocks], 1)

    def _vectors(
        self, texts: TokenCorpus, first: int, last: int, side: int, encode: Encode, assemble: Assemble,
        device: torch.device,
    ) -> Any:  # fmt: skip
        framed = with_special_tokens(texts, range(first, last), device, max_length=self.max_length)
        batch = packed(*framed, _TOKENS, side)
        vectors = assemble([encode(chunk) for chunk in batch.chunks], batch)
        if side == 0 or not 0 < self.document_terms < vectors.shape[1]:
            return vectors
        best = vectors.topk(self.document_terms, 1)
        return torch.zeros_like(vectors).scatter_(1, best.indices, best.values)


def found(scores: Tensor) -> Tensor:
    """Scores, with -inf for documents that share no term with a query and are therefore not found."""
    return scores.masked_fill(scores <= 0, -torch.inf)


def mean_ndcg(scores: Tensor, judgements: np.ndarray) -> float:
    """nDCG@10 of [queries, documents] scores, the mean over queries that have a judgement.

    Documents that a query does not find have the score -inf.
    """
    grades = torch.zeros_like(scores, dtype=torch.float32)
    queries, documents, grade = (torch.from_numpy(column).to(scores.device) for column in judgements.T.copy())
    grades[queries.long(), documents.long()] = grade.float().clamp(min=0)
    judged = torch.unique(queries.long())
    depth = min(_DEPTH, scores.shape[1])
    discount = 1 / torch.log2(torch.arange(2, depth + 2, device=scores.device).float())
    best = scores.topk(depth, 1)
    gain = grades.gather(1, best.indices).masked_fill(best.values == -torch.inf, 0)[judged] @ discount
    ideal = grades.topk(depth, 1).values[judged] @ discount
    return float(torch.where(ideal > 0, gain / ideal, 0.0).mean())


def numbered_folders(folder: Path, prefix: str) -> list[Path]:
    """The subfolders `prefix-0`, `prefix-1`, ... of a folder, in this order."""
    return sorted(folder.glob(f"{prefix}-*"), key=lambda path: int(path.stem.removeprefix(f"{prefix}-")))


def _blocks(size: int) -> list[tuple[int, int]]:
    return [(first, min(first + _BLOCK, size)) for first in range(0, size, _BLOCK)]


_FIRST = "first.npy"


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


_ENCODED = 4096  # texts whose vectors are made at once


@torch.no_grad()
def text_vectors(
    texts: TokenCorpus, side: int, max_length: int, encode: Encode, assemble: Assemble, device: torch.device
) -> Iterator[Any]:
    """The vectors of texts in order, block by block; `side`: 0 for queries, 1 for documents."""
    for first in range(0, len(texts), _ENCODED):
        chosen = range(first, min(first + _ENCODED, len(texts)))
        batch = packed(*with_special_tokens(texts, chosen, device, max_length=max_length), _TOKENS, side)
        yield assemble([encode(chunk) for chunk in batch.chunks], batch)
