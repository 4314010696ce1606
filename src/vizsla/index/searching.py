"""Many queries on a snapshot: in batches, each in a thread of its own, from texts to ids and scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from vizsla.datasets import document_of
from vizsla.engine import Hits
from vizsla.errors import VizslaError, kind_of
from vizsla.index.filters import Filter
from vizsla.index.snapshot import Snapshot

BATCH = 32  # queries that go to a thread together

Found = tuple[int, str, float]
"""The insertion number, id and score of a document."""


def search_texts(
    snapshot: Snapshot,
    queries: Sequence[str],
    k: int,
    filter: str | Filter | None,
    threads: int | None,
    empty_allowed: bool = False,
) -> list[list[Found]]:
    """The best k documents for each query, best first; what is found does not depend on the number of threads."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise VizslaError(f"k, the number of results, must be 1 or more, not {k}")
    if isinstance(queries, str):
        raise VizslaError("queries are a list of texts; for a single one there is search()")
    for query in queries:
        check_query(query, empty_allowed)
    condition = Filter.parse(filter) if isinstance(filter, str) else filter
    count = _processors() if threads is None else threads
    if count < 1:
        raise VizslaError(f"there must be at least one thread, not {count}")
    batches = [queries[a : a + BATCH] for a in range(0, len(queries), BATCH)]
    if count == 1 or len(batches) == 1:
        found = [_search_batch(snapshot, batch, k, condition) for batch in batches]
    else:
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(lambda batch: _search_batch(snapshot, batch, k, condition), batches))
    return [ranking for batch in found for ranking in batch]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _search_batch(snapshot: Snapshot, queries: Sequence[str], k: int, condition: Filter | None) -> list[list[Found]]:
    if snapshot.splitter is not None:
        return [_search_passages(snapshot, query, k, condition) for query in queries]
    return _name(snapshot, snapshot.search(queries, k, condition))


def _name(snapshot: Snapshot, found: list[Hits]) -> list[list[Found]]:
    """Hits with the ids of their documents, looked up together."""
    ids = snapshot.ids({n for hits in found for n in hits.numbers.tolist()})
    return [
        [(n, ids[n], score) for n, score in zip(hits.numbers.tolist(), hits.scores.tolist(), strict=True)]
        for hits in found
    ]


def _search_passages(snapshot: Snapshot, query: str, k: int, condition: Filter | None) -> list[Found]:
    """The best documents by their best passages: more passages until there are enough documents."""
    depth = k
    while True:
        (passages,) = _name(snapshot, snapshot.search([query], depth, condition))
        best: dict[str, Found] = {}
        for number, passage_id, score in passages:
            doc_id = document_of(passage_id)
            best.setdefault(doc_id, (number, doc_id, score))
        if len(best) >= k or len(passages) < depth:
            return list(best.values())[:k]
        depth *= 4


def check_query(query: str, empty_allowed: bool = False) -> None:
    if not isinstance(query, str):
        raise VizslaError(f"a query is a text, not {kind_of(query)}")
    if not query.strip() and not empty_allowed:
        raise VizslaError("the query is empty; give at least one word")
