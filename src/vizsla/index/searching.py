"""Many queries on a snapshot: in batches, each in a thread of its own, from texts to ids and scores."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vizsla.datasets import Document, document_of, passage_of
from vizsla.engine import Query, TopDocuments, VectorIndex
from vizsla.errors import VizslaError
from vizsla.index.asking import BoundModel
from vizsla.index.combining import Combination, parts_of, union_of
from vizsla.index.snapshot import Snapshot
from vizsla.models import Model
from vizsla.runs import Hit, Ranking
from vizsla.runs.conditions import described
from vizsla.runs.filters import Filter
from vizsla.runs.retriever import check_queries

T = TypeVar("T")
BATCH = 64  # queries that go to a thread together
DENSE_BATCH = 512  # where vectors are dense, one product of matrices uses all processors by itself


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Choices:
    """What a search may be told beside its queries; None leaves it to the index."""

    filter: str | Mapping[str, Any] | Filter | None = None
    model: Model | None = None
    threads: int | None = None
    approximate: float | None = None
    dense: str | None = None
    combine: str | None = None


@dataclass(frozen=True)
class Search:
    """What is asked of all queries; what is found does not depend on the number of threads."""

    snapshot: Snapshot
    asking: BoundModel
    k: int
    condition: Filter | None
    threads: int
    expected: float
    kind: VectorIndex
    union: Combination | None = None
    """Where only the best of each part are scored by the sum."""
    fusion: Combination | None = None
    parts: tuple[Search, ...] = ()
    """The searches that are fused."""

    @classmethod
    def prepare(cls, snapshot: Snapshot, k: int, choices: Choices) -> Search:
        """A search whose options have been checked."""
        k = at_least_one(k, "k, the number of results,")
        condition = Filter.of(choices.filter)
        if condition is not None:
            snapshot.allowed(condition)  # refuses what no document can meet, whatever is asked
        count = _processors() if choices.threads is None else at_least_one(choices.threads, "the number of threads")
        expected = _share(1.0 if choices.approximate is None else choices.approximate)
        asking = snapshot.asking if choices.model is None else snapshot.bind(choices.model)
        kind = _kind(snapshot, asking, choices.dense)
        plain = cls(snapshot, asking, k, condition, count, expected, kind)
        way = Combination.parse(_text(choices.combine or "sum", "combine", "rrf"))
        alone = len(asking.parts) == 1
        if alone and way.name != "sum":
            raise VizslaError(f"{way.name} combines the parts of a sum, and what is asked has only one")
        if way.name == "sum" and choices.dense is not None and kind.is_approximate and not (alone and asking.dense):
            raise VizslaError("a sum is searched exactly; give --dense with a dense model alone, or with --combine")
        return plain._combined(way)

    def _combined(self, way: Combination) -> Search:
        if way.name == "sum":
            return self
        if way.fusion is None:
            return replace(self, union=way)
        components = [part.component for _, part in self.asking.parts]
        deep = replace(self, k=max(self.k, way.depth))
        parts = tuple(replace(deep, asking=self.snapshot.bind(component)) for component in components)
        return replace(self, fusion=way, parts=parts)

    def hits(self, queries: Iterable[str], *, documents: bool = True) -> list[list[Hit]]:
        """The best k documents for each query, best first; without `documents` they have their ids and nothing else.

        An empty query finds nothing.
        """
        return self._each(lambda batch: self._hits(batch, documents), list, queries)

    def rankings(self, queries: Iterable[str]) -> list[Ranking]:
        """Ids and scores alone, for runs: at a depth of a thousand, hits cost more than finding them.

        An empty query finds nothing.
        """
        return self._each(self._rankings, lambda: Ranking([], []), queries)

    def _each(
        self, search: Callable[[Sequence[str]], list[T]], nothing: Callable[[], T], queries: Iterable[str]
    ) -> list[T]:
        """What a search makes of each query, and nothing of those without a word."""
        checked = check_queries(queries)
        found = iter(self._in_threads(search, [query for query in checked if query.strip()]))
        return [next(found) if query.strip() else nothing() for query in checked]

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
        queries = self.snapshot.encode_queries(texts, self.asking, self.condition)
        if self.snapshot.splitter is not None:
            return [self._passages(query, documents) for query in queries]
        return self._named(self.found(queries, self.k), documents)

    def _rankings(self, texts: Sequence[str]) -> list[Ranking]:
        if self.fusion is not None:
            return self.fusion.fused([part._rankings(texts) for part in self.parts], self.k)
        if self.snapshot.splitter is not None:
            return [_ranking(hits) for hits in self._hits(texts, documents=False)]
        found = self.found(self.snapshot.encode_queries(texts, self.asking, self.condition), self.k)
        numbers = [hits.numbers.tolist() for hits in found]
        ids = self.snapshot.ids({n for some in numbers for n in some})
        pairs = zip(numbers, found, strict=True)
        return [Ranking([ids[n] for n in some], hits.scores) for some, hits in pairs]

    def found(self, queries: Sequence[Query], k: int) -> list[TopDocuments]:
        """The best documents of encoded queries."""
        if self.union is not None:
            return self._found_in_union(queries, k, max(k, self.union.depth))
        search_params = self.kind if self.kind.is_approximate and len(self.asking.parts) == 1 else None
        return self.snapshot.search(queries, self.asking, k, self.condition, self.expected, search_params)

    def _found_in_union(self, queries: Sequence[Query], k: int, depth: int) -> list[TopDocuments]:
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
            stored = self._stored({d for ranking in fused for d in ranking.documents}, documents)
            return [[Hit(rank, score, stored[d]) for rank, (d, score) in enumerate(row, 1)] for row in fused]
        rows = [part._hits(texts, documents) for part in self.parts]
        fused = fusion.fused([[_ranking(hits) for hits in part] for part in rows], self.k)
        by_query = zip(*rows, strict=True)
        known = [{hit.id: hit for hits in reversed(found) for hit in hits} for found in by_query]
        return [
            [replace(found[d], rank=rank, score=score) for rank, (d, score) in enumerate(ranking, 1)]
            for ranking, found in zip(fused, known, strict=True)
        ]

    def _stored(self, ids: set[str], documents: bool) -> dict[str, Document]:
        """Documents by their ids; without `documents` they have nothing else."""
        if not documents:
            return {d: Document(d, {}) for d in ids}
        numbers = {n: d for d in ids for n in self.snapshot.numbers_of(d)}
        return {numbers[n]: document for n, document in self.snapshot.documents(numbers).items()}

    def _named(self, found: list[TopDocuments], documents: bool) -> list[list[Hit]]:
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
                document = Document(document_of(hit.id), hit.document.content)
                best.setdefault(document.id, Hit(len(best) + 1, hit.score, document, passage_of(hit.id)))
            if len(best) >= self.k or len(passages) < depth:
                return list(best.values())[: self.k]
            depth *= 4


def _ranking(hits: Sequence[Hit]) -> Ranking:
    return Ranking([hit.id for hit in hits], [hit.score for hit in hits])


def _kind(snapshot: Snapshot, asking: BoundModel, told: str | None) -> VectorIndex:
    """How dense vectors are searched."""
    if told is None:
        return snapshot.kind
    kind = _text(told, "dense", "ef_search=200").strip()
    if kind != "exact" and not asking.dense:
        where = "the index has" if not any(p.component.dimensions for p in snapshot.model.parts) else "the model reads"
        raise VizslaError(f"{where} no dense vectors, so there is nothing that {kind!r} could change")
    return snapshot.kind.with_search_params(kind)


def _share(expected: Any) -> float:
    if isinstance(expected, bool) or not isinstance(expected, int | float) or not 0 <= expected <= 1:
        told = f"{expected:g}" if isinstance(expected, float) else described(expected)
        raise VizslaError(f"how approximate a search is goes from 0 to 1, where it is exact, not {told}")
    return expected


def _text(told: Any, name: str, example: str) -> str:
    if not isinstance(told, str):
        raise VizslaError(f"{name} is a text, as in {example!r}, not {described(told)}")
    return told


def at_least_one(number: Any, name: str) -> int:
    """A whole number from 1, of whatever type."""
    try:
        if isinstance(number, bool):
            raise TypeError
        whole = operator.index(number)
    except TypeError:
        told = repr(number) if isinstance(number, str | float) else described(number)
        raise VizslaError(f"{name} must be a whole number, not {told}") from None
    if whole < 1:
        raise VizslaError(f"{name} must be 1 or more, not {whole}")
    return whole
