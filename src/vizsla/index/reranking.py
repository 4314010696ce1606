"""The best of a run ranked anew: a reranker reads each query with the documents a first stage found for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.index.index import Index
from vizsla.index.search.plan import positive
from vizsla.models import Reranker, field_text, text_problem
from vizsla.runs import Hit, Ranking, Run

DEPTH = 100
_PAIRS = 1024  # scored together, or those of one query where they are more

Progress = Callable[[int, int], None]


@dataclass
class PairScores:
    """What a reranker made of queries with documents, and how long it took."""

    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    pairs: int = 0
    seconds: float = 0.0

    def seconds_a_query(self, run: Run, depth: int) -> float:
        """How long a query of a run takes at some depth, on average."""
        asked = [min(len(run[query]), depth) for query in self.scores if query in run]
        return self.seconds / self.pairs * sum(asked) / len(asked) if self.pairs and asked else 0.0


def rerank(
    index: Index,
    run: Run,
    queries: Mapping[str, str],
    reranker: Reranker,
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> Run:
    """A run with the first `depth` documents of each query in the order of the reranker's scores.

    Equal scores stay in the order of the run. What is below stays below, in its order. Texts come from the index.
    """
    return reranked(run, pair_scores(index, [run], queries, reranker, depth, progress).scores, depth)


def reranked(run: Run, scores: Mapping[str, Mapping[str, float]], depth: int) -> Run:
    """A run ranked anew by scores there are already, those of queries with their first documents.

    >>> run = Run({"q": [("a", 9.0), ("b", 8.0), ("c", 2.0), ("d", 1.5)]})
    >>> reranked(run, {"q": {"a": 0.5, "b": 0.75}}, 2)["q"]
    Ranking([('b', 0.75), ('a', 0.5), ('c', -0.5), ('d', -1.0)])
    """
    made = {}
    for query, ranking in run.items():
        first, rest = ranking[:depth], ranking[depth:]
        values = np.array([scores[query][document] for document in first.documents])
        below = rest.scores - rest.scores[:1] + (values.min() if len(values) else 0) - 1
        best = Ranking(first.documents, values)
        made[query] = Ranking([*best.documents, *rest.documents], np.concatenate([best.scores, below]))
    return Run(made, run.name)


def rerank_hits(hits: Sequence[Hit], query: str, reranker: Reranker) -> list[Hit]:
    """Hits of one query in the order of the reranker's scores, which they have then.

    The index must have kept its texts: `rerank_hits(index.search(query, 100), query, reranker)[:10]`.
    """
    texts = [_text(hit.id, hit.document.content, reranker) for hit in hits]
    scores = reranker.scores(query, texts).astype(np.float64)
    order = np.argsort(-scores, kind="stable").tolist()
    return [replace(hits[i], rank=rank, score=float(scores[i])) for rank, i in enumerate(order, 1)]


def pair_scores(
    index: Index,
    runs: Sequence[Run],
    queries: Mapping[str, str],
    reranker: Reranker,
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> PairScores:
    """The scores of all queries with the first `depth` documents of any of the runs, each pair once."""
    depth = positive(depth, "the depth, how many documents of a query are ranked anew,")
    check_texts(index)
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
    found = PairScores()
    for part in _parts(wanted):
        texts = _texts(index, part, reranker)
        asked = [queries[query] for query, documents in part.items() for _ in documents]
        read = [texts[document] for documents in part.values() for document in documents]
        started = time.perf_counter()
        values = iter(reranker.pair_scores(asked, read).tolist())
        found.seconds += time.perf_counter() - started
        found.scores |= {query: {document: next(values) for document in documents} for query, documents in part.items()}
        found.pairs += len(read)
        if progress is not None:
            progress(len(found.scores), found.pairs)
    return found


def check_texts(index: Index) -> None:
    """Refuse an index whose texts were not kept."""
    if not index.info()["stored"]:
        raise VizslaError(f"{index.path}: the index keeps no texts for a reranker to read; index without --no-store")


def _parts(wanted: Mapping[str, dict[str, None]]) -> Iterator[dict[str, dict[str, None]]]:
    """Queries whose documents are scored together."""
    part: dict[str, dict[str, None]] = {}
    size = 0
    for query, documents in wanted.items():
        if part and size + len(documents) > _PAIRS:
            yield part
            part, size = {}, 0
        part[query] = documents
        size += len(documents)
    if part:
        yield part


def _texts(index: Index, part: Mapping[str, dict[str, None]], reranker: Reranker) -> dict[str, str]:
    ids = dict.fromkeys(document for documents in part.values() for document in documents)
    contents = {d: document.content for d, document in index.get_many(ids).items()}
    missing = next((document for document in ids if document not in contents), None)
    if missing is not None:
        raise InputError(f"the run has the document {missing!r} and the index has not; is it a run of this index?")
    return {document: _text(document, content, reranker) for document, content in contents.items()}


def _text(document: str, content: Mapping[str, Any], reranker: Reranker) -> str:
    problem = text_problem(content, reranker.fields)
    if problem is not None:
        raise InputError(f"the document {document!r} {problem}, so no reranker can read it")
    return field_text(content, reranker.fields)
