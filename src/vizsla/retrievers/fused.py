"""Several retrievers fused into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vizsla.errors import VizslaError, kind_of
from vizsla.retrievers.reranking import explain_hit
from vizsla.runs import Document, Explanation, FilterLike, Fusion, Hit, Hits, Retriever, Run, document_id
from vizsla.runs.retriever import (
    check_count,
    check_mapping,
    check_queries,
    check_retriever,
    document_ids,
    query_with_words,
    ranking_of,
)

DEPTH = 100


class FusedRetriever(Retriever):
    """Several retrievers searched as one: each is searched, and a fusion makes one ranking of what they find.

    `fusion`: a `Fusion` or its text, as in `rrf(k=60)`. `weights`: one for each retriever. `depth`: how many documents
    of each retriever are fused, or k if that is more. A document comes from the first retriever that has its content.

    >>> class Fixed(Retriever):
    ...     def __init__(self, name, ids):
    ...         self.name, self.ids = name, ids
    ...     def search_many(self, queries, k=10, filter=None):
    ...         return [[Hit(r, 1 / r, Document(i, {})) for r, i in enumerate(self.ids, 1)][:k] for _ in queries]
    ...     def get_many(self, ids):
    ...         return {i: Document(i, {}) for i in ids if i in self.ids}
    ...     def __len__(self):
    ...         return len(self.ids)
    >>> fused = FusedRetriever([Fixed("one", "ab"), Fixed("two", "bc")], "rrf(k=60)")
    >>> [hit.id for hit in fused.search("dogs")], fused.name
    (['b', 'a', 'c'], 'rrf(k=60) of one, two')
    """

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        fusion: str | Fusion = "rrf(k=60)",
        weights: Sequence[float] | None = None,
        depth: int = DEPTH,
    ) -> None:
        if isinstance(retrievers, Retriever | str) or not isinstance(retrievers, Iterable):
            raise VizslaError(f"a fusion needs a list of retrievers, not {kind_of(retrievers)}")
        self.retrievers = tuple(retrievers)
        if not self.retrievers:
            raise VizslaError("there are no retrievers to fuse; give one or more")
        for retriever in self.retrievers:
            check_retriever(retriever)
        self.fusion = Fusion.parse(fusion) if isinstance(fusion, str) else fusion
        if not isinstance(self.fusion, Fusion):
            raise VizslaError(f"a fusion is a Fusion or its text, as in 'rrf(k=60)', not {kind_of(fusion)}")
        self.weights = self.fusion.check_weights(weights, len(self.retrievers))
        self.depth = check_count(depth, "the depth, how many documents of each retriever are fused,")
        self.name = f"{self.fusion} of {', '.join(retriever.name for retriever in self.retrievers)}"

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[Hits]:
        """The k best documents for each query, best first. A query without a word finds nothing."""
        checked = check_queries(queries)
        by_retriever = self._search(checked, k, filter)
        return [self._fuse_hits(hits, k) for hits in zip(*by_retriever, strict=True)]

    def run(self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None) -> Run:
        """The rankings of many queries, by query id."""
        check_mapping(queries)
        depth = max(check_count(k, "k, the number of results,"), self.depth)
        runs = [retriever.run(queries, depth, filter) for retriever in self.retrievers]
        weights = self.weights if self.fusion.takes_weights else None
        return Run(self.fusion.fuse(runs, weights, k), self.name)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids that no retriever has are left out."""
        wanted = document_ids(ids)
        documents: dict[str, Document] = {}
        for retriever in self.retrievers:
            missing = [i for i in wanted if i not in documents or not documents[i].content]
            for doc_id, document in (retriever.get_many(missing) if missing else {}).items():
                if doc_id not in documents or document.content:
                    documents[doc_id] = document
        return {i: documents[i] for i in wanted if i in documents}

    def __len__(self) -> int:
        """How many documents the largest retriever has; how many all have together is not known."""
        return max(len(retriever) for retriever in self.retrievers)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """The fused score of a document, and the rank and score that each retriever gives it."""
        text, wanted = query_with_words(query), document_id(doc_id)
        by_retriever = [hits[0] for hits in self._search([text], self.depth, filter)]
        fused = next((hit for hit in self._fuse_hits(by_retriever) if hit.id == wanted), None)
        if fused is None:
            raise VizslaError(f"no retriever has the document {wanted!r} among its first {self.depth:,} for this query")
        parts = []
        for retriever, weight, hits in zip(self.retrievers, self.weights, by_retriever, strict=True):
            hit = next((hit for hit in hits if hit.id == wanted), None)
            if hit is None:
                part = Explanation(retriever.name, 0.0, {"rank": None, "depth": self.depth})
            else:
                part = explain_hit(retriever, text, hit, filter)
            parts.append(replace(part, facts={**part.facts, "weight": weight}))
        return Explanation(self.name, fused.score, {"fusion": str(self.fusion)}, tuple(parts))

    def close(self) -> None:
        """Close all retrievers."""
        for retriever in self.retrievers:
            retriever.close()

    def _search(self, queries: Sequence[str], k: int, filter: FilterLike) -> list[Sequence[Sequence[Hit]]]:
        """The hits of each retriever for each query."""
        depth = max(check_count(k, "k, the number of results,"), self.depth)
        return [retriever.search_many(queries, depth, filter) for retriever in self.retrievers]

    def _fuse_hits(self, hits: Sequence[Sequence[Hit]], k: int | None = None) -> Hits:
        """The best k hits, or all, from those that each retriever has for a query."""
        columns = [Hits(some) for some in hits]
        ranking = self.fusion.fuse_rankings([ranking_of(some) for some in columns], self.weights)[:k]
        best = set(ranking.documents)
        by_id: dict[str, Hit] = {}
        for some in columns:
            for place, doc_id in enumerate(some.ids):
                if doc_id not in best or (doc_id in by_id and by_id[doc_id].document.content):
                    continue
                if doc_id not in by_id or some[place].document.content:
                    by_id[doc_id] = some[place]
        return Hits(by_id[d].at_rank(rank, score) for rank, (d, score) in enumerate(ranking, 1))
