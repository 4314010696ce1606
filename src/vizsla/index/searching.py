"""Many queries on a snapshot: in batches, each in a thread of its own, from texts to ids and scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vizsla.datasets import Document, document_of
from vizsla.engine import DenseKind, Hits, Query
from vizsla.errors import VizslaError, kind_of
from vizsla.index.asking import Asking
from vizsla.index.combining import Combination, parts_of, union_of
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
class Choices:
    """What a search may be told beside its queries; None leaves it to the index."""

    filter: str | Filter | None = None
    model: Model | None = None
    threads: int | None = None
    approximate: float | None = None
    dense: str | None = None
    combine: str | None = None


@dataclass(frozen=True)
class Search:
    """What is asked of all queries; what is found does not depend on the number of threads."""

    snapshot: Snapshot
    asking: Asking
    k: int
    condition: Filter | None
    threads: int
    expected: float
    kind: DenseKind
    union: Combination | None = None
    """Where only the best of each part are scored by the sum."""
    fusion: Combination | None = None
    parts: tuple[Search, ...] = ()
    """The searches that are fused."""

    @classmethod
    def prepare(cls, snapshot: Snapshot, k: int, choices: Choices) -> Search:
        """A search whose options have been checked."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise VizslaError(f"k, the number of results, must be 1 or more, not {k}")
        condition = Filter.parse(choices.filter) if isinstance(choices.filter, str) else choices.filter
        count = _processors() if choices.threads is None else choices.threads
        if count < 1:
            raise VizslaError(f"there must be at least one thread, not {count}")
        expected = 1.0 if choices.approximate is None else choices.approximate
        if not 0 <= expected <= 1:
            raise VizslaError(f"how approximate a search is goes from 0 to 1, where it is exact, not {expected:g}")
        asking = snapshot.asking if choices.model is None else snapshot.asked_with(choices.model)
        kind = snapshot.kind if choices.dense is None else snapshot.kind.asked(choices.dense)
        plain = cls(snapshot, asking, k, condition, count, expected, kind)
        way = Combination.parse(choices.combine or "sum")
        alone = len(asking.parts) == 1
        if alone and way.name != "sum":
            raise VizslaError(f"{way.name} combines the parts of a sum, and what is asked has only one")
        if way.name == "sum" and choices.dense is not None and kind.built and not (alone and asking.dense):
            raise VizslaError("a sum is searched exactly; give --dense with a dense model alone, or with --combine")
        return plain._combined(way)

    def _combined(self, way: Combination) -> Search:
        if way.name == "sum":
            return self
        if way.fusion is None:
            return replace(self, union=way)
        components = [part.component for _, part in self.asking.parts]
        deep = replace(self, k=max(self.k, way.depth))
        parts = tuple(replace(deep, asking=self.snapshot.asked_with(component)) for component in components)
        return replace(self, fusion=way, parts=parts)

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
        if self.fusion is not None:
            return self._fused_hits(self.fusion, texts, documents)
        queries = self.snapshot.encode_queries(texts, self.asking)
        if self.snapshot.splitter is not None:
            return [self._passages(query, documents) for query in queries]
        return self._named(self.found(queries, self.k), documents)

    def _rankings(self, texts: Sequence[str]) -> list[Ranking]:
        if self.fusion is not None:
            return self.fusion.fused([part._rankings(texts) for part in self.parts], self.k)
        if self.snapshot.splitter is not None:
            return [_ranking(hits) for hits in self._hits(texts, documents=False)]
        found = self.found(self.snapshot.encode_queries(texts, self.asking), self.k)
        numbers = [hits.numbers.tolist() for hits in found]
        ids = self.snapshot.ids({n for some in numbers for n in some})
        pairs = zip(numbers, found, strict=True)
        return [Ranking([ids[n] for n in some], hits.scores) for some, hits in pairs]

    def found(self, queries: Sequence[Query], k: int) -> list[Hits]:
        """The best documents of encoded queries."""
        if self.union is not None:
            return self._found_in_union(queries, k, max(k, self.union.depth))
        effort = self.kind if self.kind.built and len(self.asking.parts) == 1 else None
        return self.snapshot.search(queries, self.asking, k, self.condition, self.expected, effort)

    def _found_in_union(self, queries: Sequence[Query], k: int, depth: int) -> list[Hits]:
        """The best of all that any part finds, by the sum of all parts."""
        spaces = [space for space, _ in self.asking.parts]
        asked = zip(*(parts_of(query, spaces) for query in queries), strict=True)
        search, rest = self.snapshot.search, (depth, self.condition, self.expected, self.kind)
        found = zip(*(search(part, self.asking, *rest) for part in asked), strict=True)
        unions = [union_of([hits.numbers for hits in parts]) for parts in found]
        pairs = zip(queries, unions, strict=True)
        return [self.snapshot.search_among(query, self.asking, numbers, k) for query, numbers in pairs]

    def _fused_hits(self, fusion: Combination, texts: Sequence[str], documents: bool) -> list[list[Hit]]:
        """Fused rankings as hits; of a document in passages the one that the first part has found."""
        if self.snapshot.splitter is None:
            fused = self._rankings(texts)
            known = [self._stored({d for ranking in fused for d in ranking.documents}, documents)] * len(fused)
        else:
            rows = [part._hits(texts, documents) for part in self.parts]
            fused = fusion.fused([[_ranking(hits) for hits in part] for part in rows], self.k)
            by_query = zip(*rows, strict=True)
            known = [{hit.id: hit.document for hits in reversed(found) for hit in hits} for found in by_query]
        return [
            [Hit(rank, score, stored[d]) for rank, (d, score) in enumerate(ranking, 1)]
            for ranking, stored in zip(fused, known, strict=True)
        ]

    def _stored(self, ids: set[str], documents: bool) -> dict[str, Document]:
        """Documents by their ids; without `documents` they have nothing else."""
        if not documents:
            return {d: Document(d, {}) for d in ids}
        numbers = {n: d for d in ids for n in self.snapshot.numbers_of(d)}
        return {numbers[n]: document for n, document in self.snapshot.documents(numbers).items()}

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
            (passages,) = self._named(self.found([query], depth), documents)
            best: dict[str, Hit] = {}
            for hit in passages:
                doc_id = document_of(hit.id)
                best.setdefault(doc_id, Hit(len(best) + 1, hit.score, Document(doc_id, hit.document.content)))
            if len(best) >= self.k or len(passages) < depth:
                return list(best.values())[: self.k]
            depth *= 4


def _ranking(hits: Sequence[Hit]) -> Ranking:
    return Ranking([hit.id for hit in hits], [hit.score for hit in hits])


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
