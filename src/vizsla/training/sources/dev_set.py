"""Dev sets: judged queries, or a teacher's first documents, that a network is evaluated on during training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import BM25, Statistics
from vizsla.models.components import batches_of
from vizsla.neural.chunks import Batch, Chunk, packed
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.runs import Qrels
from vizsla.scratch import GrowingArray, offsets_of
from vizsla.text import Analyzer
from vizsla.training.loop.products import SparseRows, scores_of
from vizsla.training.sources.token_corpus import (
    FIELDS,
    LINE_BREAK,
    TokenCorpus,
    packed_texts,
    read_texts,
    with_special_tokens,
)
from vizsla.vectors import SparseVectors

if TYPE_CHECKING:
    from torch import Tensor


_TOKENS = 65_536  # encoded at once
_BLOCK = 2048  # documents scored at once
_DEPTH = 10
SPREAD = 1 << 26
"""Scores whose spread is measured, to add those of two models."""
_NAME = "name.txt"
Encode = Callable[[Chunk], "Tensor"]
"""A function from a chunk of texts to the network's output."""
Assemble = Callable[[list["Tensor"], Batch], Any]
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
    def open(cls, folder: str | Path, *, max_length: int = 512, document_terms: int = 0, sparse: bool = False) -> Self:
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
            arrays = (np.load(f, mmap_mode="r", allow_pickle=False) for f in files if complete)
            bm25.append(SparseRows(*arrays) if complete else None)
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(name, documents, queries, judgements, bm25[0], bm25[1], max_length, document_terms, sparse)

    @classmethod
    def open_all(cls, folder: Path, **options: Any) -> list[Self]:
        """The dev sets `dev-0`, `dev-1`, ... in the folder of a run; options as for `open`."""
        return [cls.open(place, **options) for place in numbered_folders(folder, "dev")]

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of the network, and of the sum of its scores and BM25's after scaling both to the same spread."""
        queries = self._vectors(self.queries, 0, len(self.queries), 0, encode, assemble, device)
        blocks = (
            scores_of(queries, [self._vectors(self.documents, first, last, 1, encode, assemble, device)])
            for first, last in _blocks(len(self.documents))
        )
        return self.figures_of(blocks, device)

    def figures_of(self, blocks: Iterable[Tensor], device: torch.device) -> dict[str, float]:
        """The same, given [queries, documents] the scores of the network, some documents at a time.

        Only the best documents of a query are held. The spread is that of the first `SPREAD` scores, and so of all
        unless they are very many.
        """
        stream, held = iter(blocks), [torch.zeros(len(self.queries), 0, device=device)]
        while sum(block.numel() for block in held) < SPREAD and (block := next(stream, None)) is not None:
            held.append(block)
        start = torch.cat(held, 1)
        bm25 = self._bm25_scores(0, start.shape[1], device)
        ratio = None if bm25 is None else bm25.std() / start.std()
        best, best_sums = BestDocuments(_DEPTH), BestDocuments(_DEPTH)
        first = 0
        for scores in chain([start], stream):
            last = first + scores.shape[1]
            best.add(self._found(scores), first)
            if ratio is not None:
                bm25 = self._bm25_scores(first, last, device)
                assert bm25 is not None
                best_sums.add(self._found(bm25 + scores * ratio), first)
            first = last
        figures = {f"{self.name} nDCG@10": best.ndcg(self.judgements)}
        if ratio is not None:
            figures[f"{self.name} with BM25 nDCG@10"] = best_sums.ndcg(self.judgements)
        return figures

    def _found(self, scores: Tensor) -> Tensor:
        return found(scores) if self.sparse else scores

    def _bm25_scores(self, first: int, last: int, device: torch.device) -> Tensor | None:
        """[queries, documents] the scores of BM25 for the documents from `first` to before `last`."""
        if self.bm25_documents is None or self.bm25_queries is None:
            return None
        size = 1 + max(int(rows.terms.max(initial=0)) for rows in (self.bm25_documents, self.bm25_queries))
        queries = self.bm25_queries.dense(0, len(self.queries), size, device)
        blocks = [(first + a, first + z) for a, z in _blocks(last - first)]
        documents = self.bm25_documents
        return torch.cat([queries[:, :0], *(queries @ documents.dense(a, z, size, device).T for a, z in blocks)], 1)

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


class BestDocuments:
    """The `depth` documents with the highest scores for each query, of those that were added so far.

    >>> best = BestDocuments(2)
    >>> best.add(torch.tensor([[1.0, 3.0]]), first=0)
    >>> best.add(torch.tensor([[2.0, 0.5]]), first=2)
    >>> best.numbers.tolist(), best.scores.tolist(), best.ndcg(np.array([[0, 1, 1]]))
    ([[1, 2]], [[3.0, 2.0]], 1.0)
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.scores = self.numbers = torch.zeros(0, 0)

    def add(self, scores: Tensor, first: int) -> None:
        """Add [queries, documents] the scores of documents, which are numbered from `first`."""
        best = scores.topk(min(self.depth, scores.shape[1]), 1)
        self.scores, self.numbers = self._joined(best.values, best.indices + first)

    def _joined(self, scores: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        if not self.scores.shape[1]:
            return scores, numbers
        scores, numbers = torch.cat([self.scores, scores], 1), torch.cat([self.numbers, numbers], 1)
        best = scores.topk(min(self.depth, scores.shape[1]), 1)
        return best.values, numbers.gather(1, best.indices)

    def ndcg(self, judgements: np.ndarray) -> float:
        """nDCG at the depth, given [judgements, 3] query, document and grade: the mean over queries that have one."""
        queries, documents, grades = judgements.astype(np.int64).T
        grades = grades.clip(min=0)
        if not len(queries):
            return float("nan")
        scores, numbers = self.scores.cpu().numpy(), self.numbers.cpu().numpy()
        discount = 1 / np.log2(np.arange(2, scores.shape[1] + 2))
        width = 1 + max(int(documents.max()), int(numbers.max(initial=0)))
        order = np.argsort(queries * width + documents)
        keys = (queries * width + documents)[order]
        wanted = np.arange(len(numbers))[:, None] * width + numbers
        places = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        reached = np.where((keys[places] == wanted) & (scores > -np.inf), grades[order][places], 0) @ discount
        order = np.lexsort((-grades, queries))
        ranks = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        first = order[ranks < len(discount)]
        ideal = np.bincount(queries[first], grades[first] * discount[ranks[ranks < len(discount)]], len(numbers))
        judged = np.unique(queries)
        gains = np.divide(reached[judged], ideal[judged], out=np.zeros(len(judged)), where=ideal[judged] > 0)
        return float(gains.mean())


def numbered_folders(folder: Path, prefix: str) -> list[Path]:
    """The subfolders `prefix-0`, `prefix-1`, ... of a folder, in this order."""
    return sorted(folder.glob(f"{prefix}-*"), key=lambda path: int(path.stem.removeprefix(f"{prefix}-")))


def _blocks(size: int) -> list[tuple[int, int]]:
    return [(first, min(first + _BLOCK, size)) for first in range(0, size, _BLOCK)]


_ENCODED = 4096  # texts whose vectors are made at once


@no_grad
def text_vectors(
    texts: TokenCorpus, side: int, max_length: int, encode: Encode, assemble: Assemble, device: torch.device
) -> Iterator[Any]:
    """The vectors of texts in order, block by block; `side`: 0 for queries, 1 for documents."""
    for first in range(0, len(texts), _ENCODED):
        chosen = range(first, min(first + _ENCODED, len(texts)))
        batch = packed(*with_special_tokens(texts, chosen, device, max_length=max_length), _TOKENS, side)
        yield assemble([encode(chunk) for chunk in batch.chunks], batch)


def judgement_rows(documents: CorpusStore, queries: Mapping[str, str], qrels: Qrels) -> np.ndarray:
    """[judgements, 3] the numbers of query and document, and the grade."""
    judged = [qrels.judgements[query] for query in queries]
    numbers = documents.numbers([d for grades in judged for d in grades])
    owners = np.repeat(np.arange(len(judged)), [len(grades) for grades in judged])
    rows = np.stack([owners, numbers, np.array([g for grades in judged for g in grades.values()], np.int64)], 1)
    return rows[numbers >= 0].astype(np.int64)


def dev_set(
    dataset: BeirDataset,
    analyzer: Analyzer,
    split: str = "dev",
    fields: Sequence[str] = FIELDS,
    separator: str = LINE_BREAK,
) -> DevSet:
    """A data set's judged queries, and the vectors that BM25 gives queries and documents, over the queries' terms."""
    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), CorpusStore.of(dataset.reading(fields).documents())
    bm25 = BM25(fields=tuple(fields))
    statistics = bm25.statistics(documents.contents)
    asked = bm25.encode_queries(list(queries.values()), statistics)
    assert isinstance(asked, SparseVectors)
    columns = {asked.vocabulary[i][1]: i for i in range(len(asked.vocabulary))}
    return DevSet(
        dataset.name,
        packed_texts(read_texts(documents, fields, separator), analyzer),
        packed_texts(queries.values(), analyzer),
        judgement_rows(documents, queries, qrels),
        weighed_rows(documents, bm25, statistics[bm25.namespace], columns),
        SparseRows(asked.pointers, asked.indices, asked.values.astype(np.float32)),
    )


def weighed_rows(
    documents: CorpusStore, bm25: BM25, statistics: Statistics, columns: Mapping[str, int], factor: float = 1.0
) -> SparseRows:
    """Documents as BM25 weighs them, over the terms that have a column; their weights are multiplied by `factor`."""
    encoder, column_of = bm25.document_encoder(), np.zeros(0, np.int64)
    sizes, terms, weights = GrowingArray(np.int64), GrowingArray(np.int32), GrowingArray(np.float32)
    for batch in batches_of(documents.contents):
        vectors = bm25.weigh(encoder.encode(batch), statistics)
        met = range(len(column_of), len(vectors.vocabulary))  # for the first time
        column_of = np.append(column_of, np.array([columns.get(vectors.vocabulary[i][1], -1) for i in met], np.int64))
        found = column_of[vectors.indices]
        kept = found >= 0
        sizes.append(np.diff(np.concatenate([[0], np.cumsum(kept)])[vectors.pointers]))
        terms.append(found[kept])
        weights.append(factor * vectors.values[kept])
    return SparseRows(offsets_of(sizes.array()), terms.array(), weights.array())
