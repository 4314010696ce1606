"""Pools: the documents each part of a model finds, with their scores by all parts.

With them any weights of the parts can be tried without searching again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.index import Index
from vizsla.index.search.combining import parts_of, union_of
from vizsla.index.search.plan import positive
from vizsla.index.search.searcher import Searcher
from vizsla.models import Model
from vizsla.runs.retriever import check_queries

_BATCH_SIZE = 512  # queries that are encoded and searched at once


@dataclass(frozen=True)
class Pool:
    """The best documents of each part for a query, in the order of insertion, and their scores by each part.

    Scores include the weights of the parts. A part without a vector or a common term for a document scores it 0.
    """

    documents: Sequence[str]
    scores: np.ndarray
    """[parts, documents]"""


def pools(index: Index, queries: Sequence[str], depth: int = 100, model: Model | None = None) -> list[Pool]:
    """For each query the best `depth` documents of each part of a model, with their scores by all parts."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        _refuse_passages(searcher)
        texts = check_queries(queries)
        depth = positive(depth, "the depth of a pool")
        bound = searcher.own if model is None else searcher.bind(model)
        spaces = [part.space for part in bound.parts]
        pools = []
        for first in range(0, len(texts), _BATCH_SIZE):
            encoded = searcher.encode(texts[first : first + _BATCH_SIZE], bound)
            by_query = [parts_of(query, spaces) for query in encoded]
            found = [searcher.top_k(part, bound, depth) for part in map(list, zip(*by_query, strict=True))]
            for parts, best in zip(by_query, zip(*found, strict=True), strict=True):
                numbers = union_of([hits.numbers for hits in best])
                scores = np.zeros((len(parts), len(numbers)))
                for row, part in zip(scores, parts, strict=True):
                    hits = searcher.top_k_among(part, bound, numbers, len(numbers)) if len(numbers) else best[0]
                    row[np.searchsorted(numbers, hits.numbers)] = hits.scores
                ids = snapshot.documents.ids(numbers.tolist())
                pools.append(Pool([ids[n] for n in numbers.tolist()], scores))
        return pools


def scores_among(
    index: Index, queries: Sequence[str], documents: Sequence[str], model: Model | None = None
) -> Iterator[np.ndarray]:
    """For some queries at a time: [queries, documents] the scores of documents given by their ids, all different.

    A document that the model does not find, or that is not in the index, has the score 0.
    """
    with index._reading() as searcher:
        _refuse_passages(searcher)
        texts, places = check_queries(queries), searcher.snapshot.documents.numbers_of
        found = [(number, column) for column, doc_id in enumerate(documents) for number in places(doc_id)]
        numbers, columns = np.array(sorted(found), np.int64).reshape(-1, 2).T
        bound = searcher.own if model is None else searcher.bind(model)
        for first in range(0, len(texts), _BATCH_SIZE):
            encoded = searcher.encode(texts[first : first + _BATCH_SIZE], bound)
            scores = np.zeros((len(encoded), len(documents)))
            for row, query in zip(scores, encoded, strict=True):
                if len(numbers):
                    hits = searcher.top_k_among(query, bound, numbers, len(numbers))
                    row[columns[np.searchsorted(numbers, hits.numbers)]] = hits.scores
            yield scores


def _refuse_passages(searcher: Searcher) -> None:
    if searcher.snapshot.splitter is not None:
        raise VizslaError(
            f"{searcher.snapshot.path}: the index holds passages of documents, whose scores cannot be pooled"
        )
