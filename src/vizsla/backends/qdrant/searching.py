"""The exact top k of queries, found by a cluster.

A model that needs one vector takes one request. A sum takes two steps in one request: each part names its best L
documents, and all that any part named are scored by every part and added up. A document that no part named has at most
the L-th best score of each part, so the result is complete if the k-th sum is above the sum of these; else L is
doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.layout import DOCUMENT, ID, NUMBER, SPARSE, vector_name
from vizsla.engine import Query
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.search.bound_model import BoundModel

BATCH = 50
"""Queries that are sent together."""
ROUNDING = 1e-5
"""By which share a sum of 32-bit numbers may be off, at most; a result within it is not taken to be complete."""
_SPARE = 8  # documents beyond the top k that a first request fetches, for ties at its end
_LEAST = 40  # documents that each part of a sum names at first
_EXACT = models.SearchParams(exact=True)

Vector = models.SparseVector | list[float] | list[list[float]]


@dataclass(frozen=True, eq=False)
class PartQuery:
    """What one vector of the documents is compared with."""

    using: str
    vector: Vector

    @property
    def params(self) -> models.SearchParams | None:
        """Dense vectors are all compared; sparse ones are searched exactly anyway."""
        return None if self.using == SPARSE else _EXACT

    def prefetch(self, limit: int, condition: models.Filter | None, inner: Any = None) -> models.Prefetch:
        """The best documents of this part, of all or of those that inner prefetches name."""
        return models.Prefetch(
            query=self.vector, using=self.using, limit=limit, filter=condition, params=self.params, prefetch=inner
        )


class ScoredDocument(NamedTuple):
    """A document that was found: its score, its insertion number, its id, and its fields if they were asked for."""

    score: float
    number: int
    doc_id: str
    content: dict[str, Any]


@dataclass(eq=False)
class Pending:
    """A query that is being searched: how many documents to fetch, or for how many each part is asked."""

    place: int
    parts: list[PartQuery]
    limit: int
    depth: int = 0


def part_queries(bound: BoundModel, query: Query) -> list[PartQuery]:
    """An encoded query as one comparison for each vector of the documents that it has something for."""
    names = {part.space: vector_name(part.component) for part in bound.parts}
    parts = []
    if len(query.terms):
        # A term may come twice, as from two parts that share a namespace; an index of a vector may not.
        terms, places = np.unique(query.terms, return_inverse=True)
        weights = np.bincount(places, query.weights, len(terms)).astype(np.float32)
        parts.append(PartQuery(SPARSE, models.SparseVector(indices=terms.tolist(), values=weights.tolist())))
    for space, vector in query.dense.items():
        parts.append(PartQuery(names[space], vector.astype(np.float32).tolist()))
    for space, tokens in query.tokens.items():
        if tokens.weight <= 0:
            raise VizslaError("late interaction needs a weight above 0 in a collection in Qdrant")
        parts.append(PartQuery(names[space], (tokens.weight * tokens.vectors).astype(np.float32).tolist()))
    return parts


class TopK:
    """Searches one collection."""

    def __init__(self, connection: Connection, base: str, *, documents: bool) -> None:
        self._connection = connection
        self._base = base
        self._payload = [ID, NUMBER, *([DOCUMENT] if documents else [])]

    def search(
        self, queries: Sequence[list[PartQuery]], k: int, condition: models.Filter | None = None
    ) -> list[list[ScoredDocument]]:
        """The best k documents of each query, best first, equal scores in the order of insertion."""
        found: list[list[ScoredDocument]] = [[] for _ in queries]
        # A query without terms and vectors finds nothing.
        pending = [self.first(place, parts, k) for place, parts in enumerate(queries) if parts]
        while pending:
            batch, pending = pending[:BATCH], pending[BATCH:]
            answers = iter(self._ask([request for one in batch for request in self.requests(one, condition)]))
            for one in batch:
                best = next(answers)
                bounds = [next(answers) for _ in one.parts] if len(one.parts) > 1 else []
                hits = _ordered(best)
                if is_complete(hits, k, one, bounds):
                    found[one.place] = hits[:k]
                else:
                    pending.append(one)
        return found

    def first(self, place: int, parts: list[PartQuery], k: int) -> Pending:
        """A query at some place, as it is asked for at first."""
        return Pending(place, parts, k + _SPARE, max(_LEAST, 2 * k))

    def requests(self, one: Pending, condition: models.Filter | None) -> list[models.QueryRequest]:
        """What is sent for a query: one request, and for a sum one more for each of its parts."""
        if len(one.parts) == 1:
            (part,) = one.parts
            return [
                models.QueryRequest(
                    query=part.vector,
                    using=part.using,
                    limit=one.limit,
                    filter=condition,
                    params=part.params,
                    with_payload=self._payload,
                )
            ]
        depth, count = one.depth, len(one.parts)
        named = [part.prefetch(depth, condition) for part in one.parts]
        scores = [f"$score[{i}]" for i in range(count)]
        summed = models.FormulaQuery(
            formula=models.SumExpression(sum=list(scores)), defaults=dict.fromkeys(scores, 0.0)
        )
        rescored = [part.prefetch(count * depth, condition, named) for part in one.parts]
        total = models.QueryRequest(prefetch=rescored, query=summed, limit=one.limit, with_payload=self._payload)
        last = [
            models.QueryRequest(
                query=part.vector, using=part.using, limit=1, offset=depth - 1, filter=condition, params=part.params
            )
            for part in one.parts
        ]
        return [total, *last]

    def _ask(self, requests: list[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        answers = self._connection.call(QdrantClient.query_batch_points, self._base, requests)
        return [answer.points for answer in answers]


def _ordered(points: Sequence[models.ScoredPoint]) -> list[ScoredDocument]:
    """Points by descending score, equal scores in the order of insertion."""
    found = []
    for point in points:
        payload = point.payload or {}
        number, doc_id = payload.get(NUMBER), payload.get(ID)
        if type(number) is not int or not isinstance(doc_id, str):
            raise CollectionError(f"the point {point.id} was not written by Vizsla; remove it, or build it again")
        found.append(ScoredDocument(point.score, number, doc_id, payload.get(DOCUMENT) or {}))
    found.sort(key=itemgetter(1))
    found.sort(key=itemgetter(0), reverse=True)  # which leaves equal ones in their order
    return found


def is_complete(
    hits: list[ScoredDocument], k: int, one: Pending, bounds: Sequence[Sequence[models.ScoredPoint]]
) -> bool:
    """Whether no other document can be among the best k; if not, what is asked for next is doubled."""
    # A document that a part did not name may have no such vector, and then adds 0, which can be more than the last did.
    lasts = [max(last[0].score, 0.0) for last in bounds if last]
    if lasts:
        margin = ROUNDING * sum(lasts)
        if len(hits) < k or hits[k - 1].score <= sum(lasts) + margin:
            one.depth *= 2
            one.limit = max(one.limit, k + _SPARE)
            return False
    if len(hits) < one.limit or hits[k - 1].score > hits[-1].score:
        return True
    one.limit *= 2
    return False
