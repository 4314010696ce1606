"""The recall of approximate vector search against exact search, and how much faster it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import Plaid, TopDocuments
from vizsla.errors import VizslaError
from vizsla.index.index import Index
from vizsla.index.search.plan import Search, SearchOptions, positive
from vizsla.models import DenseComponent, Model, TokenComponent
from vizsla.runs.retriever import check_queries

ROUNDS = 3


@dataclass(frozen=True)
class Recall:
    """What a search with some parameters finds of the exact top k, and how long it takes."""

    search_params: str
    recall: float
    ratio: float
    """Its time divided by the time of exact search."""
    milliseconds: float


def measure_recall(
    index: Index,
    queries: Sequence[str],
    search_params: Sequence[str],
    k: int = 10,
    *,
    model: Model | None = None,
    batch_size: int = 1,
) -> list[Recall]:
    """What approximate dense search finds of the exact top k, and how fast it is; the first result is exact search.

    The same queries are searched with each of the parameters in turns. They are encoded first, so only the search is
    timed. By default the component of the index's own model that has an approximate vector index is used: the dense
    one, or that of late interaction.
    """
    with index._reading() as searcher:
        texts = check_queries(queries)
        if not texts:
            raise VizslaError("there are no queries to measure the recall with")
        if isinstance(search_params, str):
            raise VizslaError(f"search_params are a list of texts, as in [{search_params!r}]")
        batch_size = positive(batch_size, "the number of queries in a batch")
        searched = model or searcher.snapshot.model
        by_tokens = isinstance(searcher.snapshot.vector_index, Plaid)
        kind, what = (TokenComponent, "late-interaction") if by_tokens else (DenseComponent, "dense")
        dense = [p.component for p in searched.parts if isinstance(p.component, kind)]
        if len(dense) != 1:
            raise VizslaError(f"recall is measured for one {what} model, and {searched.name} has {len(dense)}")
        searches = [
            Search.prepare(searcher, k, None, SearchOptions(model=dense[0], search_params=params))
            for params in ("exact", *search_params)
        ]
        encoded = searcher.encode(texts, searches[0].bound)
        batches = [encoded[a : a + batch_size] for a in range(0, len(encoded), batch_size)]
        found: list[list[TopDocuments]] = [[] for _ in searches]
        seconds = np.zeros((ROUNDS, len(searches)))
        for round_number in range(ROUNDS):
            for i, search in enumerate(searches):
                search.top_k(batches[0], search.k)  # opening, mapping and compiling are not timed
                started = time.perf_counter()
                found[i] = [hits for batch in batches for hits in search.top_k(batch, search.k)]
                seconds[round_number, i] = time.perf_counter() - started
        times, ratios = np.median(seconds, axis=0), np.median(seconds / seconds[:, :1], axis=0)
        names = ["exact", *(str(search.vector_index or "exact") for search in searches[1:])]
        return [
            Recall(name, _recall(some, found[0]), float(ratio), 1000 * float(spent) / len(texts))
            for name, some, ratio, spent in zip(names, found, ratios, times, strict=True)
        ]


def _recall(found: Sequence[TopDocuments], exact: Sequence[TopDocuments]) -> float:
    """The share of exact hits that were found, on average over the queries that find any."""
    pairs = [(f, e) for f, e in zip(found, exact, strict=True) if len(e)]
    shares = [len(np.intersect1d(f.numbers, e.numbers)) / len(e) for f, e in pairs]
    return float(np.mean(shares)) if shares else 1.0
