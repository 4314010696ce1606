"""Exact top k over segments.

The score of a document is the sum, in 64-bit floats and in the order of the query's terms, of query weight
times document weight, rounded to 32 bits at the end. A hit shares at least one term with the query, even one of
weight 0. Hits come by descending score; equal scores by ascending insertion number. Queries with vectors are searched
in `dense.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

import numpy as np

from vizsla import stopping
from vizsla.engine.arrays import distinct
from vizsla.engine.blocks import RANGE_SIZE
from vizsla.engine.bounds import MAX_TERMS
from vizsla.engine.dense import score_places, search_dense
from vizsla.engine.exhaustive import RangeScratch, search_exhaustively
from vizsla.engine.query import Queries, Query
from vizsla.engine.scores import Terms
from vizsla.engine.segment import Segment
from vizsla.engine.segment_list import SegmentList
from vizsla.engine.segment_search import Masks, search_segment
from vizsla.engine.stop_flag import failure
from vizsla.engine.topk import SortScratch, TopK
from vizsla.engine.vector_indexes import VectorIndex
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit

_NOT_FINITE = "query weights must be finite numbers"
SAFELY_POSITIVE, SAFELY_SMALL = 1e-200, 1e200  # outside, 64-bit products could underflow or overflow


def _are_positive(weights: np.ndarray) -> bool:
    """Whether every document that shares a term with such a query has a score above 0, so that bounds work."""
    return bool((weights >= SAFELY_POSITIVE).all() and (weights <= SAFELY_SMALL).all())


def _packed(queries: Sequence[Query]) -> Queries | None:
    """Queries end to end; None if there are none, or if one has vectors."""
    return Queries.of([q.row for q in queries]) if queries and all(q.is_plain for q in queries) else None


@njit("const int64[:], const float64[:]")
def _longest(pointers, weights):
    """How many terms the longest query has; -1 if bounds do not work for all of the queries."""
    total = 0.0
    for weight in weights:
        if not weight >= SAFELY_POSITIVE:  # or a NaN
            return -1
        total += weight
    longest = 0
    for i in range(pointers.size - 1):
        longest = max(longest, pointers[i + 1] - pointers[i])
    return longest if total <= SAFELY_SMALL and longest <= MAX_TERMS else -1


@dataclass(slots=True, eq=False)
class TopDocuments:
    """Insertion numbers and scores of documents, best first."""

    numbers: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)


_NOTHING = TopDocuments(np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(slots=True, eq=False)
class TopLists(Sequence[TopDocuments]):
    """The top documents of several queries, end to end: those of the i-th lie from bounds[i] to bounds[i + 1].

    A search of many queries makes no object for each of them, since this would need the GIL.

    >>> lists = TopLists.of([TopDocuments(np.array([7, 3]), np.ones(2)), TopDocuments(np.array([9]), np.ones(1))])
    >>> len(lists), lists.bounds.tolist(), lists[1].numbers.tolist()
    (2, [0, 2, 3], [9])
    """

    numbers: np.ndarray
    scores: np.ndarray
    bounds: np.ndarray
    """int64: where those of each query begin, and where the last end."""

    @classmethod
    def of(cls, found: Sequence[TopDocuments]) -> TopLists:
        """The top documents of each query end to end, if they are not so already."""
        if isinstance(found, TopLists):
            return found
        bounds = np.array([0, *accumulate(map(len, found))], np.int64)
        if len(found) == 1:
            return cls(found[0].numbers, found[0].scores, bounds)
        numbers, scores = [top.numbers for top in found], [top.scores for top in found]
        return cls(np.concatenate(numbers), np.concatenate(scores), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, at: int) -> TopDocuments: ...
    @overload
    def __getitem__(self, at: slice) -> list[TopDocuments]: ...
    def __getitem__(self, at: int | slice) -> TopDocuments | list[TopDocuments]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        i = range(len(self))[at]
        a, z = self.bounds[i], self.bounds[i + 1]
        return TopDocuments(self.numbers[a:z], self.scores[a:z])


def _search_batch(
    segments: SegmentList,
    queries: Queries,
    longest: int,
    weightings: Weightings,
    k: int,
    masks: Masks,
    expected: float,
) -> TopLists:
    """The top k of some queries, of which the longest has so many terms, in this thread."""
    arrays = queries.pointers, queries.terms, queries.spaces, queries.weights
    size, stop = len(queries.pointers) - 1, stopping.flag()
    scores, places = np.empty((size, k), np.float32), np.empty((size, k), np.int64)
    counts = np.zeros(size, np.int64)
    prepared = segments.prepared(weightings, masks)
    with prepared.scratch(k, longest) as scratch:
        for segment in prepared.segments:
            if not search_segment(*segment, *arrays, expected, scratch.table, scores, places, counts, stop):
                raise failure()
    if size == 1:
        count = int(counts[0])
        return TopLists(segments.numbers_at(places[0, :count]), scores[0, :count], np.array([0, count]))
    bounds = np.zeros(size + 1, np.int64)
    counts.cumsum(out=bounds[1:])
    filled = np.arange(k) < counts[:, np.newaxis]
    return TopLists(segments.numbers_at(places[filled]), scores[filled], bounds)


def _search_alone(segments: SegmentList, query: Query, weightings: Weightings, k: int, masks: Masks) -> TopDocuments:
    """The top k of a query that bounds do not work for, by scoring every document that shares a term with it."""
    topk, count = TopK(np.empty(k, np.float32), np.empty(k, np.int64)), 0
    memory, scratch = RangeScratch.make(), SortScratch.of_size(RANGE_SIZE, k)
    for segment, mask, first in zip(segments.segments, masks, segments.firsts, strict=False):
        arrays, blocks = segment.open(query.terms, mask, first)
        terms = Terms(query.weights, query.spaces, blocks)
        count = search_exhaustively(arrays, terms, weightings, memory, scratch, topk, count, stopping.flag())
        if count < 0:
            raise failure()
    return TopDocuments(segments.numbers_at(topk.places[:count]), topk.scores[:count])


def search_many(
    segments: Sequence[Segment],
    queries: Sequence[Query],
    weightings: Weightings,
    k: int,
    masks: Masks | None = None,
    *,
    expected: float = 1.0,
    search_params: VectorIndex | None = None,
    threads: int = 1,
) -> Sequence[TopDocuments]:
    """The best k documents over all segments for each query, the same as by scoring every document.

    The weights of documents are positive, those of queries any finite numbers. Works without the GIL, so that
    several threads can each search some of the queries.

    `expected` below 1 makes the search approximate and faster: terms of low weight are assumed to add at most this
    share of their maximum, so documents whose score comes mostly from such terms may be missed. Scores stay exact.

    `search_params`: how dense and token vectors are searched where segments have ANN indexes; None scores all vectors.
    `threads`: how many search token vectors by such an index.
    """
    ordered = segments if isinstance(segments, SegmentList) else SegmentList(segments)
    allowed = masks if masks is not None and ordered.is_sorted else ordered.masks(masks)
    k = min(k, ordered.documents)
    plain = queries if isinstance(queries, Queries) else _packed(queries)
    longest = -1 if plain is None or k == 0 else _longest(plain.pointers, plain.weights)
    if plain is not None and longest >= 0:
        return _search_batch(ordered, plain, longest, weightings, k, allowed, expected)
    weights = np.concatenate([q.weights for q in queries]) if queries else np.zeros(0)
    if not np.isfinite(weights).all():
        raise ValueError(_NOT_FINITE)
    results = [_NOTHING] * len(queries)
    all_positive = _are_positive(weights)
    pruned, dense = [], []
    for i, query in enumerate(queries):
        if k == 0 or (len(query.terms) == 0 and query.is_plain):
            continue
        if not query.is_plain:
            dense.append(i)
        elif (all_positive or _are_positive(query.weights)) and len(query.terms) <= MAX_TERMS:
            pruned.append(i)
        else:
            results[i] = _search_alone(ordered, query, weightings, k, allowed)
    if dense:
        ranked = search_dense(ordered, [queries[i] for i in dense], weightings, k, allowed, search_params, threads)
        for i, (places, scores) in zip(dense, ranked, strict=True):
            results[i] = TopDocuments(ordered.numbers_at(places), scores)
    if pruned:
        rows = Queries.of([queries[i].row for i in pruned])
        longest = max(len(queries[i].terms) for i in pruned)
        batch = _search_batch(ordered, rows, longest, weightings, k, allowed, expected)
        for i, top_documents in zip(pruned, batch, strict=True):
            results[i] = top_documents
    return results


def search_among(
    segments: Sequence[Segment], query: Query, weightings: Weightings, numbers: np.ndarray, k: int
) -> TopDocuments:
    """The best k of some documents, given by their insertion numbers."""
    ordered = SegmentList.of(segments)
    wanted, places = distinct(numbers), [np.zeros(0, np.int64)]
    for segment, first in zip(ordered.segments, ordered.firsts, strict=False):
        rows = np.minimum(np.searchsorted(segment.numbers, wanted), len(segment) - 1)
        places.append(first + rows[segment.numbers[rows] == wanted])
    best, scores = score_places(ordered, query, weightings, np.concatenate(places), k)
    return TopDocuments(ordered.numbers_at(best), scores)


def search(
    segments: Sequence[Segment], query: Query, weightings: Weightings, k: int, masks: Masks | None = None
) -> TopDocuments:
    """The best k documents over all segments for one query, the same as by scoring every document."""
    return search_many(segments, [query], weightings, k, masks)[0]
