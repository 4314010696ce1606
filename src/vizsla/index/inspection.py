"""A closer look at an index: dense vectors, pools of candidates, recall, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vizsla.datasets import document_of
from vizsla.index.index import Index
from vizsla.index.search import ann_recall, pooling, statistics
from vizsla.index.search.ann_recall import Recall
from vizsla.index.search.pooling import Pool
from vizsla.index.search.statistics import VectorBlock
from vizsla.index.storage import trust
from vizsla.models import Model


def newest_generation(index: Index) -> int:
    """The number of the last commit that the folder of the index holds now; `refresh` would make it visible.

    This takes microseconds as long as nothing is written. If the folder holds another index by now, it is the number
    of that one's last commit, so ask `Index.is_outdated` whether to refresh.
    """
    index._check_open()
    return index._searcher.snapshot.watch.newest().generation


def vector_blocks(index: Index) -> Iterator[tuple[list[str], VectorBlock]]:
    """The dense and token vectors of all documents, some documents at a time, with the ids of these documents."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        for block in statistics.vector_blocks(searcher):
            stored = snapshot.documents.ids(block.numbers)
            ids = [stored[number] for number in block.numbers]
            yield ids if snapshot.splitter is None else [document_of(one) for one in ids], block


def pools(index: Index, queries: Sequence[str], depth: int = 100, model: Model | None = None) -> list[Pool]:
    """For each query the best `depth` documents of each part of a model, with their scores by all parts."""
    with index._reading() as searcher:
        return pooling.pools_of(searcher, queries, depth, model)


def scores_among(
    index: Index, queries: Sequence[str], documents: Sequence[str], model: Model | None = None
) -> Iterator[np.ndarray]:
    """For some queries at a time: [queries, documents] the scores of documents given by their ids, all different."""
    with index._reading() as searcher:
        yield from pooling.scores_among(searcher, queries, documents, model)


def measure_recall(
    index: Index,
    queries: Sequence[str],
    search_params: Sequence[str],
    k: int = 10,
    *,
    model: Model | None = None,
    batch_size: int = 1,
) -> list[Recall]:
    """What approximate dense search finds of the exact top k, and how fast it is; the first result is exact search."""
    with index._reading() as searcher:
        return ann_recall.measure_recall(searcher, model, queries, k, search_params, batch_size)


def bytes_of(index: Index, model: Model) -> int:
    """How many bytes an index of this model alone would take, without documents."""
    with index._reading() as searcher:
        return statistics.bytes_of(searcher, model)


def trust_vector_indexes(index: Index) -> int:
    """Let faiss open the vector indexes that were built on another machine; gives how many there are.

    Do this only if you know who made the index: faiss does not check the files it reads.
    """
    with index._reading() as searcher:
        hashes = {ann.sha256 for segment in searcher.snapshot.segments for ann in segment.ann.values()}
    for sha256 in hashes:
        trust.remember(sha256)
    return len(hashes)
