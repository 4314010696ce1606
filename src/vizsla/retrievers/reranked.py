"""A retriever whose best documents a cross-encoder reranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vizsla.errors import CannotExplainError, VizslaError
from vizsla.retrievers.reranking import DEPTH, PairScorer, rerank_many
from vizsla.runs import Document, Explanation, FilterLike, Hit, Hits, Retriever, document_id
from vizsla.runs.retriever import check_count, check_queries, check_retriever, query_with_words


class RerankedRetriever(Retriever):
    """The documents that a first stage finds, the best `depth` of them in the order of a reranker's scores.

    Documents after the first `depth` stay below, in the order of the first stage.

    >>> import numpy as np
    >>> from vizsla.runs import Run
    >>> class First(Retriever):
    ...     name = "first"
    ...     dogs = {"1": Document("1", {"text": "dog"}), "2": Document("2", {"text": "dog dog"})}
    ...     def search_many(self, queries, k=10, filter=None):
    ...         return [[Hit(i, 1 / i, d) for i, d in enumerate(self.dogs.values(), 1)][:k] for _ in queries]
    ...     def get_many(self, ids):
    ...         return {i: self.dogs[i] for i in ids if i in self.dogs}
    ...     def __len__(self):
    ...         return 2
    >>> class Longest:
    ...     name, fields = "longest", ("text",)
    ...     def pair_scores(self, queries, texts):
    ...         return np.array([len(text) for text in texts])
    >>> [(hit.id, hit.score) for hit in RerankedRetriever(First(), Longest()).search("dog")]
    [('2', 7.0), ('1', 3.0)]
    """

    def __init__(self, retriever: Retriever, reranker: PairScorer, depth: int = DEPTH) -> None:
        check_retriever(retriever)
        if not callable(getattr(reranker, "pair_scores", None)):
            raise VizslaError(f"a reranker has pair_scores(queries, texts), as Reranker.open(folder), not {reranker!r}")
        self.retriever = retriever
        self.reranker = reranker
        self.depth = check_count(depth, "the depth, how many documents of a query are reranked,")
        self.name = f"{reranker.name} over {retriever.name}"

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[Hits]:
        """The k best documents for each query, reranked. A query without a word finds nothing."""
        checked = check_queries(queries)
        k = check_count(k, "k, the number of results,")
        first_stage = self.retriever.search_many(checked, max(k, self.depth), filter)
        return [hits[:k] for hits in rerank_many(first_stage, checked, self.reranker, self.depth)]

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id; ids of unknown documents are left out."""
        return self.retriever.get_many(ids)

    def __len__(self) -> int:
        """How many documents the first stage has."""
        return len(self.retriever)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:
        """The score of the query with the document, and the document's rank and score in the first stage.

        A document that is not among the first `depth` of the first stage is not reranked, so it is refused.
        """
        text, wanted = query_with_words(query), document_id(doc_id)
        hits = self.retriever.search_many([text], self.depth, filter)[0]
        hit = next((hit for hit in hits if hit.id == wanted), None)
        if hit is None:
            raise VizslaError(
                f"{self.retriever.name} does not find the document {wanted!r} among its first {self.depth:,} for this "
                "query, so it is not reranked"
            )
        (reranked,) = rerank_many([[hit]], [text], self.reranker, 1)[0]
        first_stage = explain_hit(self.retriever, text, hit, filter)
        return Explanation(self.name, reranked.score, {"reranker": self.reranker.name}, (first_stage,))

    def close(self) -> None:
        """Close the first stage."""
        self.retriever.close()


def explain_hit(retriever: Retriever, query: str, hit: Hit, filter: FilterLike) -> Explanation:
    """A retriever's explanation of one of its hits, with the rank; only score and rank if it cannot explain."""
    try:
        explanation = retriever.explain(query, hit.id, filter)
    except CannotExplainError:
        explanation = Explanation(retriever.name, hit.score, {})
    return replace(explanation, facts={**explanation.facts, "rank": hit.rank})
