"""Many queries on a snapshot: in batches, each in a thread of its own, from texts to ids and scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from vizsla.datasets import Document, document_of
from vizsla.engine import Hits, Query
from vizsla.errors import VizslaError, kind_of
from vizsla.index.asking import Asking
from vizsla.index.filters import Filter
from vizsla.index.snapshot import Snapshot
from vizsla.models import Model
from vizsla.runs import Ranking

T = TypeVar("T")
BATCH = 64  # queries that go to a thread together
DENSE_BATCH = 512  # where vectors are dense, one product of matrices uses all processors by itself


@dataclass(frozen=True)
class Hit:
    """A document found, its score, and its place in the ranking from 1."""

    rank: int
    score: float
    document: Document

    @property
    def id(self) -> str:
        return self.document.id

    def __getitem__(self, key: str) -> Any:
        return self.document[key]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Search:
    """What is asked of all queries; what is found does not depend on the number of threads."""

    snapshot: Snapshot
    asking: Asking
    k: int
    condition: Filter | None
    threads: int
    expected: float

    @classmethod
    def prepare(
        cls,
        snapshot: Snapshot,
        k: int,
        filter: str | Filter | None,
        model: Model | None,
        threads: int | None,
        approximate: float | None,
    ) -> Search:
        """A search whose options have been checked."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise VizslaError(f"k, the number of results, must be 1 or more, not {k}")
        condition = Filter.parse(filter) if isinstance(filter, str) else filter
        count = _processors() if threads is None else threads
        if count < 1:
            raise VizslaError(f"there must be at least one thread, not {count}")
        expected = 1.0 if approximate is None else approximate
        if not 0 <= expected <= 1:
            raise VizslaError(f"how approximate a search is goes from 0 to 1, where it is exact, not {expected:g}")
        asking = snapshot.asking if model is None else snapshot.asked_with(model)
        return cls(snapshot, asking, k, condition, count, expected)

    def hits(self, queries: Sequence[str], *, documents: bool = True) -> list[list[Hit]]:
        """The best k documents for each query, best first; without `documents` they have their ids and nothing else."""
        _check_queries(queries, empty_allowed=False)
        return self._in_threads(lambda batch: self._hits(batch, documents), queries)

    def rankings(self, queries: Sequence[str]) -> list[Ranking]:
        """Ids and scores alone, for runs: at a depth of a thousand, hits cost more than finding them.

        An empty query finds nothing.
        """
        _check_queries(queries, empty_allowed=True)
        return self._in_threads(self._rankings, queries)

    def _in_threads(self, search: Callable[[Sequence[str]], list[T]], queries: Sequence[str]) -> list[T]:
        """What a search makes of all queries, in batches, in their order."""
        dense = self.asking.dense
        size = DENSE_BATCH if dense else BATCH
        batches = [queries[a : a + size] for a in range(0, len(queries), size)]
        if self.threads == 1 or dense or len(batches) <= 1:
            found = [search(batch) for batch in batches]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(search, batches))
        return [one for batch in found for one in batch]

    def _hits(self, texts: Sequence[str], documents: bool) -> list[list[Hit]]:
        queries = self.snapshot.encode_queries(texts, self.asking)
        if self.snapshot.splitter is not None:
            return [self._passages(query, documents) for query in queries]
        return self._named(self._found(queries, self.k), documents)

    def _rankings(self, texts: Sequence[str]) -> list[Ranking]:
        if self.snapshot.splitter is not None:
            rows = self._hits(texts, documents=False)
            return [Ranking([h.id for h in hits], [h.score for h in hits]) for hits in rows]
        found = self._found(self.snapshot.encode_queries(texts, self.asking), self.k)
        numbers = [hits.numbers.tolist() for hits in found]
        ids = self.snapshot.ids({n for some in numbers for n in some})
        pairs = zip(numbers, found, strict=True)
        return [Ranking([ids[n] for n in some], hits.scores) for some, hits in pairs]

    def _found(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return self.snapshot.search(queries, self.asking, k, self.condition, self.expected)

    def _named(self, found: list[Hits], documents: bool) -> list[list[Hit]]:
        """Hits as documents, looked up together."""
        numbers = {n for hits in found for n in hits.numbers.tolist()}
        if documents:
            stored = self.snapshot.documents(numbers)
        else:
            stored = {n: Document(doc_id, {}) for n, doc_id in self.snapshot.ids(numbers).items()}
        pairs = (zip(hits.numbers.tolist(), hits.scores.tolist(), strict=True) for hits in found)
        return [[Hit(rank, score, stored[n]) for rank, (n, score) in enumerate(some, 1)] for some in pairs]

    def _passages(self, query: Query, documents: bool) -> list[Hit]:
        """The best documents by their best passages: more passages until there are enough documents."""
        depth = self.k
        while True:
            (passages,) = self._named(self._found([query], depth), documents)
            best: dict[str, Hit] = {}
            for hit in passages:
                doc_id = document_of(hit.id)
                best.setdefault(doc_id, Hit(len(best) + 1, hit.score, Document(doc_id, hit.document.content)))
            if len(best) >= self.k or len(passages) < depth:
                return list(best.values())[: self.k]
            depth *= 4


def _check_queries(queries: Sequence[str], empty_allowed: bool) -> None:
    if isinstance(queries, str):
        raise VizslaError("queries are a list of texts; for a single one there is search()")
    for query in queries:
        check_query(query, empty_allowed)


def check_query(query: str, empty_allowed: bool = False) -> None:
    if not isinstance(query, str):
        raise VizslaError(f"a query is a text, not {kind_of(query)}")
    if not query.strip() and not empty_allowed:
        raise VizslaError("the query is empty; give at least one word")
