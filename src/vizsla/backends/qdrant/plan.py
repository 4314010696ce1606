"""A search of many queries in a cluster: its options checked, and how hits and rankings are made of what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vizsla.backends.qdrant.reader import Reader
from vizsla.backends.qdrant.scanning import find_points
from vizsla.backends.qdrant.searching import FoundDocuments
from vizsla.backends.qdrant.unsupported import cannot
from vizsla.errors import VizslaError
from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.combining import Combination
from vizsla.index.search.pages import Page
from vizsla.index.search.plan import SearchOptions, check_text, combination_of
from vizsla.runs import Document, Filter, FilterLike, Hits, Ranking
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_count, check_queries


def refuse_syntax(address: str, syntax: str | None) -> None:
    """Refuse queries in a language."""
    if check_syntax(syntax) is not None:
        raise cannot(address, "syntax")


@dataclass(frozen=True)
class Plan:
    """A search whose options have been checked; an empty query finds nothing."""

    reader: Reader
    bound: BoundModel
    k: int
    condition: Filter | None = None
    fusion: Combination | None = None
    """The best of each part are fused by a rule."""
    page: Page | None = None
    """Which of the best are given; None for the first k."""

    @classmethod
    def prepare(
        cls, reader: Reader, options: SearchOptions, address: str, k: int = 1, filter: FilterLike = None
    ) -> Plan:
        """A search; ways to search that a cluster does not have are refused."""
        params = options.search_params
        if params is not None and check_text(params, "search_params", "exact").strip() != "exact":
            raise cannot(address, "search_params")
        if options.approximate not in (None, 1):
            raise cannot(address, "approximate")
        refuse_syntax(address, options.syntax)
        for name in ("sort", "collapse"):
            if getattr(options, name) is not None:
                raise cannot(address, name)
        bound = reader.own if options.model is None else reader.bind(options.model)
        page = Page.of(options.offset, None, None, options.min_score)
        plan = cls(reader, bound, check_count(k, "k, the number of results,"), Filter.of(filter), page=page)
        combination = combination_of(options.combine)
        if combination.name == "sum":
            return plan
        if combination.fusion is None:
            raise cannot(address, combination.name)
        if len(bound.parts) == 1:
            raise VizslaError(f"{combination.name} combines the parts of a sum, and this model has only one part")
        return replace(plan, fusion=combination)

    def hits(self, queries: Sequence[str], *, documents: bool) -> list[Hits]:
        """The best k documents for each query, best first; without `documents` hits have ids and scores only."""
        texts = check_queries(queries)
        known: dict[str, Document] = {}
        if self.page is not None:
            first, least = self.page.offset, self.page.min_score
            best = replace(self, k=first + self.k, page=None).hits(texts, documents=documents)
            ends = [len(hits) if least is None else sum(score >= least for score in hits.scores) for hits in best]
            return [hits[first:end] for hits, end in zip(best, ends, strict=True)]
        if self.fusion is None:
            return [found.hits(known) for found in self._found(texts, self.bound, self.k, documents=documents)]
        rankings = self.rankings(texts)
        if documents:
            ids = list(dict.fromkeys(doc_id for ranking in rankings for doc_id in ranking.documents))
            points = find_points(self.reader.connection, self.reader.state.base, ids)
            known = {point.doc_id: point.document for point in points}
        return [FoundDocuments(r.scores.tolist(), (), r.documents).hits(known) for r in rankings]

    def rankings(self, queries: Sequence[str]) -> list[Ranking]:
        """Ids and scores alone, for each query."""
        texts = check_queries(queries)
        if self.fusion is None:
            return self._rankings(texts, self.bound, self.k)
        depth = max(self.k, self.fusion.depth)
        parts = [self._rankings(texts, self.reader.bind(part.component), depth) for part in self.bound.parts]
        return self.fusion.fused(parts, self.k)

    def _rankings(self, texts: Sequence[str], bound: BoundModel, k: int) -> list[Ranking]:
        return [Ranking(list(found.ids), found.scores) for found in self._found(texts, bound, k, documents=False)]

    def _found(self, texts: Sequence[str], bound: BoundModel, k: int, *, documents: bool) -> list[FoundDocuments]:
        with_words = [text for text in texts if text.strip()]
        if not with_words:
            self.reader.translated(self.condition)  # refuses a wrong filter all the same
            return [FoundDocuments()] * len(texts)
        found = iter(self.reader.search(with_words, bound, k, self.condition, documents=documents))
        return [next(found) if text.strip() else FoundDocuments() for text in texts]
