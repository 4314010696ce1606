"""What an approximate search finds of the exact one, and in what share of its time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine import TopDocuments
from vizsla.errors import VizslaError
from vizsla.index.searching import Choices, Search, at_least_one
from vizsla.index.snapshot import Snapshot
from vizsla.models import Model
from vizsla.runs.retriever import check_queries

ROUNDS = 3


@dataclass(frozen=True)
class Recall:
    """What one setting finds: the share of the exact top k, its time beside the exact search's, and by itself."""

    setting: str
    recall: float
    ratio: float
    milliseconds: float


def measure_recall(
    snapshot: Snapshot, model: Model | None, queries: Sequence[str], k: int, settings: Sequence[str], together: int
) -> list[Recall]:
    """Ask the same queries exactly and by some settings, in turns, `together` at a time; the first is the exact search.

    Queries are encoded once and beforehand: only the search is timed. Without a model the one dense part of the index's
    own is asked.
    """
    queries = check_queries(queries)
    if not queries:
        raise VizslaError("there are no queries to measure the recall with")
    if isinstance(settings, str):
        raise VizslaError(f"settings are a list of texts, as in [{settings!r}]")
    together = at_least_one(together, "the number of queries that are asked together")
    asked = [p.component for p in (model or snapshot.model).parts if p.component.dimensions]
    if len(asked) != 1:
        raise VizslaError(f"recall is that of one dense model, and {(model or snapshot.model).name} has {len(asked)}")
    searches = [Search.prepare(snapshot, k, Choices(model=asked[0], dense=s)) for s in ("exact", *settings)]
    first = searches[0]
    encoded = snapshot.encode_queries(queries, first.asking)
    batches = [encoded[a : a + together] for a in range(0, len(encoded), together)]
    found: list[list[TopDocuments]] = [[] for _ in searches]
    seconds = np.zeros((ROUNDS, len(searches)))
    for round in range(ROUNDS):
        for i, search in enumerate(searches):
            search.found(batches[0], search.k)  # what is opened, mapped or compiled at first is not the search
            started = time.perf_counter()
            found[i] = [hits for batch in batches for hits in search.found(batch, search.k)]
            seconds[round, i] = time.perf_counter() - started
    times, ratios = np.median(seconds, axis=0), np.median(seconds / seconds[:, :1], axis=0)
    names = [str(search.kind) for search in searches]
    return [
        Recall(name, _recall(some, found[0]), float(ratio), 1000 * float(spent) / len(queries))
        for name, some, ratio, spent in zip(names, found, ratios, times, strict=True)
    ]


def _recall(found: Sequence[TopDocuments], exact: Sequence[TopDocuments]) -> float:
    """The share of exact hits that others have, on average over the queries that find any."""
    pairs = [(f, e) for f, e in zip(found, exact, strict=True) if len(e)]
    shares = [len(np.intersect1d(f.numbers, e.numbers)) / len(e) for f, e in pairs]
    return float(np.mean(shares)) if shares else 1.0
