"""A search of many queries: options checked once, queries in batches, each batch in a thread."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from vizsla.engine import Plaid, Query, TopDocuments, VectorIndex, processors
from vizsla.errors import VizslaError, kind_of
from vizsla.index.search.bound_model import BoundModel, TokenPart
from vizsla.index.search.combining import CANDIDATES, Combination, parts_of, union_of
from vizsla.index.search.hits import best_passages, documents_by_id, hits_of
from vizsla.index.search.searcher import Searcher
from vizsla.models import DenseComponent, Model
from vizsla.runs import Filter, FilterLike, Hit, Ranking
from vizsla.runs.retriever import check_queries

T = TypeVar("T")
BATCH_SIZE = 64  # queries that go to a thread together
DENSE_BATCH_SIZE = 512  # one product of matrices uses all processors by itself
_SUM = Combination("sum")


class SearchOptions(NamedTuple):
    """How to search; None leaves it to the index. See `Index.search_many`."""

    model: Model | None = None
    combine: str | None = None
    search_params: str | None = None
    approximate: float | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Search:
    """A search whose options have been checked; the results do not depend on the number of threads."""

    searcher: Searcher
    bound: BoundModel
    k: int
    condition: Filter | None = None
    threads: int = 1
    expected: float = 1.0
    vector_index: VectorIndex | None = None
    """How dense vectors are searched; None scores every vector."""
    union: Combination | None = None
    """Only the best of each part are scored by the sum."""
    fusion: Combination | None = None
    parts: tuple[Search, ...] = ()
    """The searches that are fused."""

    @classmethod
    def prepare(cls, searcher: Searcher, k: int, filter: FilterLike, options: SearchOptions) -> Search:
        """A search with its options checked."""
        k = positive(k, "k, the number of results,")
        condition = None if filter is None else Filter.of(filter)
        if condition is not None:
            searcher.masks(condition)  # refuses a filter that no document can pass
        threads = options.threads
        if type(threads) is not int or threads != 1:
            threads = processors() if threads is None else positive(threads, "the number of threads")
        expected = 1.0 if options.approximate is None else _share(options.approximate)
        bound = searcher.own if options.model is None else searcher.bind(options.model)
        own = searcher.snapshot.vector_index
        vector_index = own if options.search_params is None else _with_params(searcher, bound, options.search_params)
        combination = (
            _SUM if options.combine is None else Combination.parse(check_text(options.combine, "combine", "rrf"))
        )
        single = len(bound.parts) == 1
        if single and combination.name != "sum":
            raise VizslaError(f"{combination.name} combines the parts of a sum, and this model has only one part")
        if not bound.has_vectors and combination.name == "sum":
            return cls(searcher, bound, k, condition, threads, expected)
        exact_sum = combination.name == "sum" and not single
        if exact_sum and options.search_params is not None and vector_index.is_approximate:
            raise VizslaError(
                "a sum is searched exactly; give search parameters with one model with vectors alone, or with combine"
            )
        plan = cls(searcher, bound, k, condition, threads, expected)
        if vector_index.is_approximate and not exact_sum:
            plan = replace(plan, vector_index=vector_index)
        return plan if combination.name == "sum" else plan._combined(combination)

    def _combined(self, combination: Combination) -> Search:
        if combination.name == CANDIDATES:
            self._check_candidates()
        if combination.fusion is None:
            return replace(self, union=combination)
        deep = replace(self, k=max(self.k, combination.depth))
        sparse = replace(deep, vector_index=None)
        models = [self.searcher.bind(part.component) for part in self.bound.parts]
        parts = tuple(replace(deep if bound.has_vectors else sparse, bound=bound) for bound in models)
        return replace(self, fusion=combination, parts=parts)

    def _check_candidates(self) -> None:
        """Refuse a model that has nothing to find candidates by, or nothing to score them by."""
        finding = [part.weight for part in self.bound.parts if not isinstance(part, TokenPart)]
        if not self.bound.tokens or not finding:
            raise VizslaError(f"{CANDIDATES} needs a sum of late interaction and another model, as bm25 + colbert(...)")
        if 0 in finding:
            raise VizslaError("a model with the weight 0 finds no candidates; give it a small weight, such as 1e-6")

    def hits_of(self, query: str) -> list[Hit]:
        """The best k documents for one query with words."""
        return self._hits([query], True)[0]

    def hits(self, queries: Iterable[str], *, documents: bool = True) -> list[list[Hit]]:
        """The best k documents for each query, best first; without `documents` hits have ids and scores only.

        An empty query finds nothing.
        """
        return self._each(lambda batch: self._hits(batch, documents), list, queries)

    def rankings(self, queries: Iterable[str]) -> list[Ranking]:
        """Ids and scores alone, for runs: at a depth of a thousand, making hits costs more than finding them.

        An empty query finds nothing.
        """
        return self._each(self._rankings, lambda: Ranking([], []), queries)

    def _each(
        self, search: Callable[[Sequence[str]], list[T]], nothing: Callable[[], T], queries: Iterable[str]
    ) -> list[T]:
        """What a search gives for each query, and nothing for queries without a word."""
        checked = check_queries(queries)
        with_words = [query for query in checked if query.strip()]
        found = search(with_words) if len(with_words) == 1 else self._in_threads(search, with_words)
        if len(found) == len(checked):
            return found
        remaining = iter(found)
        return [next(remaining) if query.strip() else nothing() for query in checked]

    def _in_threads(self, search: Callable[[Sequence[str]], list[T]], queries: Sequence[str]) -> list[T]:
        """What a search gives for all queries, batch by batch, in their order."""
        multiplies = self.bound.has_vectors
        size = DENSE_BATCH_SIZE if multiplies else BATCH_SIZE
        batches = [queries[a : a + size] for a in range(0, len(queries), size)]
        if self.threads == 1 or multiplies or len(batches) <= 1:
            found = [search(batch) for batch in batches]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(search, batches))
        return [result for batch in found for result in batch]

    def _hits(self, texts: Sequence[str], documents: bool) -> list[list[Hit]]:
        if self.fusion is not None:
            return self._fused_hits(self.fusion, texts, documents)
        searcher, how = self.searcher, self._how
        queries = searcher.encode(texts, self.bound, self.condition)
        if searcher.snapshot.splitter is None and self.union is None:
            top = searcher.top_k(queries, self.bound, self.k, *how)
            return hits_of(searcher.snapshot.documents, top, documents)
        if searcher.snapshot.splitter is None:
            return hits_of(searcher.snapshot.documents, self.top_k(queries, self.k), documents)
        return [best_passages(lambda n, q=q: self._passages(q, n, documents), self.k) for q in queries]  # type: ignore[misc]

    def _passages(self, query: Query, depth: int, documents: bool) -> list[Hit]:
        return hits_of(self.searcher.snapshot.documents, self.top_k([query], depth), documents)[0]

    def _rankings(self, texts: Sequence[str]) -> list[Ranking]:
        if self.fusion is not None:
            return self.fusion.fused([part._rankings(texts) for part in self.parts], self.k)
        snapshot = self.searcher.snapshot
        if snapshot.splitter is not None:
            return [_ranking(hits) for hits in self._hits(texts, documents=False)]
        found = self.top_k(self.searcher.encode(texts, self.bound, self.condition), self.k)
        numbers = [top.numbers.tolist() for top in found]
        ids = snapshot.documents.ids({n for some in numbers for n in some})
        return [Ranking([ids[n] for n in some], top.scores) for some, top in zip(numbers, found, strict=True)]

    def top_k(self, queries: Sequence[Query], k: int) -> list[TopDocuments]:
        """The best k documents of encoded queries."""
        if self.union is not None:
            return self._top_k_of_union(queries, k, max(k, self.union.depth))
        return self.searcher.top_k(queries, self.bound, k, *self._how)

    @property
    def _how(self) -> tuple[Filter | None, float, VectorIndex | None, int]:
        """What `Searcher.top_k` is told beside the queries."""
        return self.condition, self.expected, self.vector_index, self.threads

    def _top_k_of_union(self, queries: Sequence[Query], k: int, depth: int) -> list[TopDocuments]:
        """The best, by the sum of all parts, of the documents that any part finds that looks for some."""
        assert self.union is not None
        finding = [p for p in self.bound.parts if self.union.name != CANDIDATES or not isinstance(p, TokenPart)]
        spaces = [part.space for part in finding]
        by_part = zip(*(parts_of(query, spaces) for query in queries), strict=True)
        top_k, rest = self.searcher.top_k, (depth, *self._how)
        found = zip(*(top_k(part, self.bound, *rest) for part in by_part), strict=True)
        unions = [union_of([hits.numbers for hits in parts]) for parts in found]
        pairs = zip(queries, unions, strict=True)
        return [self.searcher.top_k_among(query, self.bound, numbers, k) for query, numbers in pairs]

    def _fused_hits(self, fusion: Combination, texts: Sequence[str], documents: bool) -> list[list[Hit]]:
        """Fused rankings as hits; of a document in passages the passage that the first part has found."""
        snapshot = self.searcher.snapshot
        if snapshot.splitter is None:
            fused = self._rankings(texts)
            stored = documents_by_id(snapshot.documents, {d for row in fused for d in row.documents}, documents)
            return [[Hit(rank, score, stored[d]) for rank, (d, score) in enumerate(row, 1)] for row in fused]
        rows = [part._hits(texts, documents) for part in self.parts]
        fused = fusion.fused([[_ranking(hits) for hits in part] for part in rows], self.k)
        by_query = zip(*rows, strict=True)
        known = [{hit.id: hit for hits in reversed(found) for hit in hits} for found in by_query]
        return [
            [replace(found[d], rank=rank, score=score) for rank, (d, score) in enumerate(ranking, 1)]
            for ranking, found in zip(fused, known, strict=True)
        ]


def _ranking(hits: Sequence[Hit]) -> Ranking:
    return Ranking([hit.id for hit in hits], [hit.score for hit in hits])


def combination_of(text: str | None) -> Combination:
    """How the parts of a sum become one ranking, from its text; None stands for the sum."""
    return _SUM if text is None else Combination.parse(check_text(text, "combine", "rrf"))


def _with_params(searcher: Searcher, bound: BoundModel, search_params: object) -> VectorIndex:
    """How dense vectors are searched with other parameters than the index's own."""
    text = check_text(search_params, "search_params", "ef_search=200").strip()
    if isinstance(searcher.snapshot.vector_index, Plaid):
        if text != "exact" and not bound.tokens:
            raise VizslaError(f"the model reads no token vectors, so there is nothing that {text!r} could change")
    elif text != "exact" and not bound.dense:
        own = searcher.snapshot.model.parts
        where = "the model reads" if any(isinstance(p.component, DenseComponent) for p in own) else "the index has"
        raise VizslaError(f"{where} no dense vectors, so there is nothing that {text!r} could change")
    return searcher.snapshot.vector_index.with_search_params(text)


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        written = f"{value:g}" if isinstance(value, float) else kind_of(value)
        raise VizslaError(f"approximate goes from 0 to 1, where the search is exact, not {written}")
    return value


def check_text(value: object, name: str, example: str) -> str:
    """A text, and nothing else; `example`: one that could be given."""
    if not isinstance(value, str):
        raise VizslaError(f"{name} is a text, as in {example!r}, not {kind_of(value)}")
    return value


def positive(number: object, name: str) -> int:
    """A whole number from 1, of whatever type."""
    try:
        if isinstance(number, bool):
            raise TypeError
        whole = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        written = repr(number) if isinstance(number, str | float) else kind_of(number)
        raise VizslaError(f"{name} must be a whole number, not {written}") from None
    if whole < 1:
        raise VizslaError(f"{name} must be 1 or more, not {whole}")
    return whole
