"""Reranking: a cross-encoder reads a query with the documents that a first stage found for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from vizsla.errors import CannotExplainError, InputError, VizslaError
from vizsla.models import field_text, text_problem
from vizsla.runs import Document, Explanation, FilterLike, Hit, Hits, Ranking, Retriever, Run, document_id
from vizsla.runs.retriever import check_count, check_queries, check_retriever, query_with_words

DEPTH = 100
_BATCH = 1024  # pairs per call; the pairs of one query are never split

Progress = Callable[[int, int], None]
"""Is called with the number of queries and of pairs done so far."""


class PairScorer(Protocol):
    """What reranks: `vizsla.models.Reranker`, or anything that gives a query and a text a score."""

    @property
    def name(self) -> str:
        """What it is called in tables and messages."""

    @property
    def fields(self) -> Sequence[str]:
        """The fields of a document that it reads, joined by line breaks."""

    def pair_scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """The score of each query with the text at the same place; higher is better."""


@dataclass
class PairScores:
    """The scores of queries with documents, and how long they took."""

    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """By query id, then by document id."""
    pairs: int = 0
    seconds: float = 0.0

    def seconds_per_query(self, run: Run, depth: int) -> float:
        """How long reranking a query of a run takes at some depth, on average."""
        counts = [min(len(run[query]), depth) for query in self.scores if query in run]
        return self.seconds / self.pairs * sum(counts) / len(counts) if self.pairs and counts else 0.0


def rerank(
    retriever: Retriever,
    run: Run,
    queries: Mapping[str, str],
    reranker: PairScorer,
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> Run:
    """A run with the first `depth` documents of each query in the order of the reranker's scores.

    Documents with equal scores keep the order of the run. The documents after the first `depth` keep their order and
    stay below. The retriever gives the texts of the documents.
    """
    return rerank_by_scores(run, pair_scores(retriever, [run], queries, reranker, depth, progress).scores, depth)


def rerank_by_scores(run: Run, scores: Mapping[str, Mapping[str, float]], depth: int) -> Run:
    """A run reranked by scores that are known already, by query id and document id.

    >>> run = Run({"q": [("a", 9.0), ("b", 8.0), ("c", 2.0), ("d", 1.5)]})
    >>> rerank_by_scores(run, {"q": {"a": 0.5, "b": 0.75}}, 2)["q"]
    Ranking([('b', 0.75), ('a', 0.5), ('c', -0.5), ('d', -1.0)])
    """
    reranked = {}
    for query, ranking in run.items():
        first, rest = ranking[:depth], ranking[depth:]
        values = np.array([scores[query][document] for document in first.documents])
        best = Ranking(first.documents, values)
        below = _scores_below(rest.scores, values)
        reranked[query] = Ranking([*best.documents, *rest.documents], np.concatenate([best.scores, below]))
    return Run(reranked, run.name)


def rerank_hits(hits: Sequence[Hit], query: str, reranker: PairScorer) -> Hits:
    """The hits of a query in the order of the reranker's scores, with these scores.

    The hits must have their texts: `rerank_hits(index.search(query, 100), query, reranker)[:10]`.
    """
    return rerank_many([hits], [query], reranker, max(len(hits), 1))[0]


def rerank_many(hits: Sequence[Sequence[Hit]], queries: Sequence[str], reranker: PairScorer, depth: int) -> list[Hits]:
    """The hits of many queries with the first `depth` of each query reranked; the others stay below them."""
    first = [some[:depth] for some in hits]
    texts = [_text(hit.document, reranker) for some in first for hit in some]
    repeated = [query for query, some in zip(queries, first, strict=True) for _ in some]
    if not hits:
        return []
    scores = _scores(reranker, repeated, texts)
    ends = np.cumsum([len(some) for some in first])
    reranked = []
    for some, values in zip(hits, np.split(scores, ends[:-1]), strict=True):
        order = np.argsort(-values, kind="stable").tolist()
        rest = Hits(some)[depth:]
        below = _scores_below(np.array(rest.scores), values).tolist()
        pairs = [*((some[i], float(values[i])) for i in order), *zip(rest, below, strict=True)]
        reranked.append(Hits(hit.at_rank(rank, score) for rank, (hit, score) in enumerate(pairs, 1)))
    return reranked


def pair_scores(
    retriever: Retriever,
    runs: Sequence[Run],
    queries: Mapping[str, str],
    reranker: PairScorer,
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> PairScores:
    """The scores of all queries with the first `depth` documents of any of the runs; each pair is scored once."""
    depth = check_count(depth, "the depth, how many documents of a query are reranked,")
    wanted: dict[str, dict[str, None]] = {}
    for run in runs:
        for query, ranking in run.items():
            wanted.setdefault(query, {}).update(dict.fromkeys(ranking.documents[:depth]))
    unknown = [query for query in wanted if query not in queries]
    if unknown:
        raise InputError(
            f"{len(unknown):,} of the run's {len(wanted):,} queries have no text, {unknown[0]!r} for one; give the "
            "queries that the run was made with"
        )
    result = PairScores()
    for batch in _batches(wanted):
        texts = _texts(retriever, batch, reranker)
        batch_queries = [queries[query] for query, documents in batch.items() for _ in documents]
        batch_texts = [texts[document] for documents in batch.values() for document in documents]
        started = time.perf_counter()
        values = iter(_scores(reranker, batch_queries, batch_texts).tolist())
        result.seconds += time.perf_counter() - started
        for query, documents in batch.items():
            result.scores[query] = {document: next(values) for document in documents}
        result.pairs += len(batch_texts)
        if progress is not None:
            progress(len(result.scores), result.pairs)
    return result


def _scores(reranker: PairScorer, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """The scores of pairs; a reranker that gives anything but one finite number for each is refused."""
    if not texts:
        return np.zeros(0)
    scores = np.asarray(reranker.pair_scores(queries, texts), np.float64)
    if scores.shape != (len(texts),) or not np.isfinite(scores).all():
        raise VizslaError(f"{reranker.name} must give one finite score for each of {len(texts):,} pairs")
    return scores


def _scores_below(scores: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The scores of the documents that are not reranked, moved below the lowest of those that are."""
    return np.asarray(scores - scores[:1] + (above.min() if len(above) else 0) - 1)


def _batches(wanted: Mapping[str, dict[str, None]]) -> Iterator[dict[str, dict[str, None]]]:
    """Queries whose documents are scored in one call."""
    batch: dict[str, dict[str, None]] = {}
    size = 0
    for query, documents in wanted.items():
        if batch and size + len(documents) > _BATCH:
            yield batch
            batch, size = {}, 0
        batch[query] = documents
        size += len(documents)
    if batch:
        yield batch


def _texts(retriever: Retriever, batch: Mapping[str, dict[str, None]], reranker: PairScorer) -> dict[str, str]:
    ids = dict.fromkeys(document for documents in batch.values() for document in documents)
    documents = retriever.get_many(ids)
    missing = next((doc_id for doc_id in ids if doc_id not in documents), None)
    if missing is not None:
        raise InputError(
            f"the run has the document {missing!r}, which is not in the index; is it a run of other documents?"
        )
    return {doc_id: _text(document, reranker) for doc_id, document in documents.items()}


def _text(document: Document, reranker: PairScorer) -> str:
    """What a reranker reads of a document."""
    problem = text_problem(document.content, reranker.fields)
    if problem is not None:
        raise InputError(f"the document {document.id!r} {problem}, so a reranker cannot read it")
    if not any(name in document.content for name in reranker.fields):
        raise InputError(
            f"the document {document.id!r} has no text for a reranker to read; if its index was built with --no-store, "
            "build it again without"
        )
    return field_text(document.content, reranker.fields)


class RerankedRetriever(Retriever):
    """The results of a first stage with the best `depth` documents reranked by a cross-encoder.

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
