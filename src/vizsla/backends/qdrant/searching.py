"""The exact top k of queries, found by a cluster.

A model that needs one vector takes one request. A sum takes two steps in one request: each part names its best L
documents, and all that any part named are scored by every part and added up. A document that no part named has at most
the L-th best score of each part, so the result is complete if the k-th sum is above the sum of these; else L is
doubled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.layout import DOCUMENT, ID, NUMBER, SPARSE, vector_name
from vizsla.backends.qdrant.rest import Json, as_json, query_batch
from vizsla.engine import Query
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.search.bound_model import BoundModel
from vizsla.runs import Document, Hits, KnownDocuments

BATCH = 50
"""Queries that are sent together."""
ROUNDING = 1e-5
"""By which share a sum of 32-bit numbers may be off, at most; a result within it is not taken to be complete."""
_SPARE = 8  # documents beyond the top k that a first request fetches, for ties at its end
_LEAST = 40  # documents that each part of a sum names at first
_EXACT = {"exact": True}

Vector = dict[str, list[Any]] | list[float] | list[list[float]]


@dataclass(frozen=True, eq=False)
class PartQuery:
    """What one vector of the documents is compared with."""

    using: str
    vector: Vector
    """A sparse vector as `indices` and `values`, a dense one as its numbers, or one for each token."""

    def request(self, limit: int, condition: Json | None, **more: Any) -> Json:
        """A request for the best documents of this part, of all or of those that a `prefetch` names.

        Dense vectors are all compared; sparse ones are searched exactly anyway.
        """
        made = {"query": self.vector, "using": self.using, "limit": limit, **more}
        if self.using != SPARSE:
            made["params"] = _EXACT
        if condition is not None:
            made["filter"] = condition
        return made


class FoundDocuments(NamedTuple):
    """What a query has found, best first, column by column: an object for each hit would cost more than its search."""

    scores: Sequence[float] = ()
    numbers: Sequence[int] = ()
    """Of insertion."""
    ids: Sequence[str] = ()
    contents: Sequence[Mapping[str, Any]] = ()
    """The fields of the documents, if they were asked for; else none."""

    def top(self, k: int) -> FoundDocuments:
        """The first k."""
        return FoundDocuments(self.scores[:k], self.numbers[:k], self.ids[:k], self.contents[:k])

    def hits(self, known: dict[str, Document]) -> Hits:
        """The documents as hits; `known`: those of other queries, which share them."""
        contents: Iterable[Mapping[str, Any]] = self.contents or ({} for _ in self.ids)
        for doc_id, content in zip(self.ids, contents, strict=True):
            if doc_id not in known:
                known[doc_id] = Document(doc_id, content)
        source = KnownDocuments([known[doc_id].content for doc_id in self.ids])
        return Hits.from_columns(list(self.ids), list(self.scores), source=source)


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
        # Each term comes once: parts have namespaces of their own, whose numbers are disjoint.
        parts.append(PartQuery(SPARSE, {"indices": query.terms.tolist(), "values": query.weights.tolist()}))
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
    ) -> list[FoundDocuments]:
        """The best k documents of each query, best first, equal scores in the order of insertion."""
        found = [FoundDocuments()] * len(queries)
        # A query without terms and vectors finds nothing.
        pending = [self.first(place, parts, k) for place, parts in enumerate(queries) if parts]
        passing = None if condition is None else as_json(condition)
        while pending:
            batch, pending = pending[:BATCH], pending[BATCH:]
            requests = [request for one in batch for request in self.requests(one, passing)]
            answers = iter(self._connection.call(query_batch, self._base, requests))
            for one in batch:
                best = ordered(next(answers))
                bounds = [next(answers) for _ in one.parts] if len(one.parts) > 1 else []
                if is_complete(best.scores, k, one, [point["score"] for last in bounds for point in last]):
                    found[one.place] = best.top(k)
                else:
                    pending.append(one)
        return found

    def first(self, place: int, parts: list[PartQuery], k: int) -> Pending:
        """A query at some place, as it is asked for at first."""
        return Pending(place, parts, k + _SPARE, max(_LEAST, 2 * k))

    def requests(self, one: Pending, condition: Json | None) -> list[Json]:
        """What is sent for a query: one request, and for a sum one more for each of its parts."""
        if len(one.parts) == 1:
            return [one.parts[0].request(one.limit, condition, with_payload=self._payload)]
        depth, count = one.depth, len(one.parts)
        named = [part.request(depth, condition) for part in one.parts]
        scores = [f"$score[{i}]" for i in range(count)]
        total = {
            "prefetch": [part.request(count * depth, condition, prefetch=named) for part in one.parts],
            "query": {"formula": {"sum": scores}, "defaults": dict.fromkeys(scores, 0.0)},
            "limit": one.limit,
            "with_payload": self._payload,
        }
        return [total, *(part.request(1, condition, offset=depth - 1) for part in one.parts)]


def ordered(points: Sequence[Json]) -> FoundDocuments:
    """Points by descending score, equal scores in the order of insertion."""
    if not points:
        return FoundDocuments()
    try:
        scores = [point["score"] for point in points]
        payloads = [point["payload"] for point in points]
        numbers = [payload[NUMBER] for payload in payloads]
        ids = [payload[ID] for payload in payloads]
    except (KeyError, TypeError):
        raise _foreign_point(points) from None
    if set(map(type, numbers)) != {int} or set(map(type, ids)) != {str}:
        raise _foreign_point(points)
    contents = [payload.get(DOCUMENT) or {} for payload in payloads] if DOCUMENT in payloads[0] else []
    if len(set(scores)) == len(scores) and sorted(scores, reverse=True) == scores:
        return FoundDocuments(scores, numbers, ids, contents)  # as most are, and as servers give them
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], numbers[place]))
    return FoundDocuments(
        [scores[place] for place in order],
        [numbers[place] for place in order],
        [ids[place] for place in order],
        [contents[place] for place in order] if contents else [],
    )


def _foreign_point(points: Sequence[Json]) -> CollectionError:
    """What to say of the point that Vizsla has not written."""
    for point in points:
        payload = point.get("payload") or {}
        if type(payload.get(NUMBER)) is not int or type(payload.get(ID)) is not str:
            return CollectionError(
                f"the point {point.get('id')} was not written by Vizsla; remove it, or build it again"
            )
    return CollectionError("a server gives points without a score; is this a Qdrant server that Vizsla knows?")


def is_complete(scores: Sequence[float], k: int, one: Pending, lasts: Sequence[float]) -> bool:
    """Whether no other document can be among the best k; if not, what is asked for next is doubled.

    `scores`: of the documents that were found, best first. `lasts`: for a sum, the last score that each part named, but
    for parts that have named all their documents.
    """
    if lasts:
        # A document that a part did not name may have no such vector, and then adds 0, which may be more than the last.
        bound = sum(max(last, 0.0) for last in lasts)
        if len(scores) < k or scores[k - 1] <= bound + ROUNDING * bound:
            one.depth *= 2
            one.limit = max(one.limit, k + _SPARE)
            return False
    if len(scores) < one.limit or scores[k - 1] > scores[-1]:
        return True
    one.limit *= 2
    return False
