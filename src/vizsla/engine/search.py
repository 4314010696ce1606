"""Exact top k over segments.

The score of a document is the sum, in 64-bit floats and in the order of the query's terms, of query weight
times document weight, rounded to 32 bits at the end. A hit shares at least one term with the query, even one of
weight 0. Hits come by descending score; equal scores by ascending insertion number. Queries with dense vectors are
searched in `dense.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from vizsla.engine.bounds import MAX_TERMS, Bounds, bound_terms
from vizsla.engine.dense import score_places, search_dense
from vizsla.engine.exhaustive import search_exhaustively
from vizsla.engine.posting_lists import RANGE_SIZE, DamagedSegmentError
from vizsla.engine.query import Query
from vizsla.engine.ranges import Candidates, search_ranges
from vizsla.engine.scores import ScoringScratch, Terms
from vizsla.engine.segment import Segment
from vizsla.engine.topk import SortScratch, TopK
from vizsla.engine.vector_indexes import VectorIndex
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit_no_alloc

SAFELY_POSITIVE, SAFELY_SMALL = 1e-200, 1e200  # outside, a product could vanish or overflow in 64-bit floats

Masks = Sequence[np.ndarray | None]
"""For each segment a mask of the documents that may be found; None for all."""


def _are_positive(weights: np.ndarray) -> bool:
    """Whether every document that shares a term with such a query has a score above 0, so that bounds work."""
    return bool((weights >= SAFELY_POSITIVE).all() and (weights <= SAFELY_SMALL).all())


@dataclass(frozen=True, eq=False)
class TopDocuments:
    """Insertion numbers and scores of documents, best first."""

    numbers: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)


class Queries(NamedTuple):
    """Several queries for the kernels, end to end."""

    pointers: np.ndarray
    terms: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray

    @classmethod
    def pack(cls, queries: Sequence[Query]) -> Queries:
        return cls(
            np.cumsum([0, *(len(q.terms) for q in queries)]),
            np.concatenate([q.terms for q in queries]),
            np.concatenate([q.spaces for q in queries]),
            np.concatenate([q.weights for q in queries]),
        )


class Scratch(NamedTuple):
    """Memory to work in, for one thread."""

    bounds: Bounds
    candidates: Candidates
    scoring: ScoringScratch
    sorting: SortScratch

    @classmethod
    def make(cls, k: int, terms: int, width: int) -> Scratch:
        size = 2 * (RANGE_SIZE + k)
        return cls(
            Bounds.of_size(terms, width),
            Candidates.of_size(size, terms),
            ScoringScratch.of_size(size),
            SortScratch.of_size(size, k),
        )

    def is_enough(self, k: int, terms: int, width: int) -> bool:
        return (
            len(self.candidates.documents) >= 2 * (RANGE_SIZE + k)
            and len(self.bounds.order) >= terms
            and self.bounds.rows.shape[1] == width
        )


@njit_no_alloc
def _search_segment(segment, queries, blocks, maxima, w, expected, scratch, scores, places, counts):
    """Merge a segment's documents into the top k of many queries; False if the segment is damaged."""
    for q in range(queries.pointers.size - 1):
        a, z = queries.pointers[q], queries.pointers[q + 1]
        terms = Terms(queries.weights[a:z], queries.spaces[a:z], blocks[a:z])
        unit = bound_terms(terms, maxima[a:z], w, expected, scratch.bounds)
        if unit < 0:
            return False
        if unit > 0:
            counts[q] = search_ranges(
                segment, terms, w, unit, scratch.bounds, scratch.candidates, scratch.scoring, scratch.sorting,
                TopK(scores[q], places[q]), counts[q],
            )  # fmt: skip
            if counts[q] < 0:
                return False
    return True


def _firsts(segments: Sequence[Segment]) -> list[int]:
    """Where each segment's documents start among the documents of all segments, and where the last one's end."""
    return [0, *accumulate(map(len, segments))]


def _numbers_at(segments: Sequence[Segment], places: np.ndarray) -> np.ndarray:
    """The insertion numbers of documents by their places among those of all segments."""
    numbers = np.empty(places.shape, np.int64)
    for segment, (a, z) in zip(segments, pairwise(_firsts(segments)), strict=True):
        here = (places >= a) & (places < z)
        numbers[here] = segment.numbers[places[here] - a]
    return numbers


_local = threading.local()


def _search_batch(
    segments: Sequence[Segment], queries: Sequence[Query], weightings: Weightings, k: int, masks: Masks, expected: float
) -> list[TopDocuments]:
    """The top k of some queries, in this thread."""
    packed = Queries.pack(queries)
    scores, places = np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64)
    counts = np.zeros(len(queries), np.int64)
    terms, width = int(np.diff(packed.pointers).max()), weightings.small.shape[1]
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None or not scratch.is_enough(k, terms, width):
        scratch = Scratch.make(max(k, 1000), max(terms, 32), width)
    _local.scratch = None  # an error leaves it dirty
    for segment, mask, first in zip(segments, masks, _firsts(segments), strict=False):
        blocks, maxima = segment.blocks_of(packed.terms)
        if not _search_segment(
            segment.arrays(mask, first), packed, blocks, maxima, weightings, expected, scratch, scores, places, counts
        ):
            raise DamagedSegmentError
    _local.scratch = scratch
    numbers = _numbers_at(segments, places)
    return [TopDocuments(n[:c], s[:c]) for n, s, c in zip(numbers, scores, counts.tolist(), strict=True)]


def _search_alone(
    segments: Sequence[Segment], query: Query, weightings: Weightings, k: int, masks: Masks
) -> TopDocuments:
    """The top k of a query that bounds do not work for, by scoring every document that shares a term with it."""
    topk, count = TopK(np.empty(k, np.float32), np.empty(k, np.int64)), 0
    for segment, mask, first in zip(segments, masks, _firsts(segments), strict=False):
        terms = Terms(query.weights, query.spaces, segment.blocks_of(query.terms)[0])
        arrays = segment.arrays(mask, first)
        count = search_exhaustively(arrays, terms, weightings, SortScratch.of_size(RANGE_SIZE, k), topk, count)
        if count < 0:
            raise DamagedSegmentError
    return TopDocuments(_numbers_at(segments, topk.places[:count]), topk.scores[:count])


def _in_order(segments: Sequence[Segment], masks: Masks | None) -> tuple[list[Segment], Masks]:
    """Segments by insertion number, so that of equal scores the first found goes first; empty ones left out."""
    pairs = [(s, masks[i] if masks is not None else None) for i, s in enumerate(segments) if len(s)]
    pairs.sort(key=lambda pair: int(pair[0].numbers[0]))
    return [s for s, _ in pairs], [m for _, m in pairs]


def search_many(
    segments: Sequence[Segment],
    queries: Sequence[Query],
    weightings: Weightings,
    k: int,
    masks: Masks | None = None,
    *,
    expected: float = 1.0,
    search_params: VectorIndex | None = None,
) -> list[TopDocuments]:
    """The best k documents over all segments for each query, the same as by scoring every document.

    The weights of documents are positive, those of queries any finite numbers. Works without the GIL, so that
    several threads can each search some of the queries.

    `expected` below 1 makes the search approximate and faster: terms that matter less are expected to add no more than
    this share of what they could, so that documents which live on them may be missed. Scores stay exact.

    `search_params`: how faiss searches dense vectors where segments have ANN indexes; None scores all vectors.
    """
    weights = np.concatenate([q.weights for q in queries]) if queries else np.zeros(0)
    if not np.isfinite(weights).all():
        raise ValueError("query weights must be finite numbers")
    segments, allowed = _in_order(segments, masks)
    k = min(k, sum(map(len, segments)))
    results = [TopDocuments(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(queries)
    all_positive = _are_positive(weights)
    pruned, dense = [], []
    for i, query in enumerate(queries):
        if k == 0 or (len(query.terms) == 0 and not query.dense):
            continue
        if query.dense:
            dense.append(i)
            continue
        if (all_positive or _are_positive(query.weights)) and len(query.terms) <= MAX_TERMS:
            pruned.append(i)
        else:
            results[i] = _search_alone(segments, query, weightings, k, allowed)
    if dense:
        ranked = search_dense(segments, [queries[i] for i in dense], weightings, k, allowed, search_params)
        for i, (places, scores) in zip(dense, ranked, strict=True):
            results[i] = TopDocuments(_numbers_at(segments, places), scores)
    if pruned:
        batch = _search_batch(segments, [queries[i] for i in pruned], weightings, k, allowed, expected)
        for i, top_documents in zip(pruned, batch, strict=True):
            results[i] = top_documents
    return results


def search_among(
    segments: Sequence[Segment], query: Query, weightings: Weightings, numbers: np.ndarray, k: int
) -> TopDocuments:
    """The best k of some documents, given by their insertion numbers."""
    ordered, _ = _in_order(segments, None)
    wanted, places = np.unique(numbers), [np.zeros(0, np.int64)]
    for segment, first in zip(ordered, _firsts(ordered), strict=False):
        rows = np.minimum(np.searchsorted(segment.numbers, wanted), len(segment) - 1)
        places.append(first + rows[segment.numbers[rows] == wanted])
    best, scores = score_places(ordered, query, weightings, np.concatenate(places), k)
    return TopDocuments(_numbers_at(ordered, best), scores)


def search(
    segments: Sequence[Segment], query: Query, weightings: Weightings, k: int, masks: Masks | None = None
) -> TopDocuments:
    """The best k documents over all segments for one query, the same as by scoring every document."""
    return search_many(segments, [query], weightings, k, masks)[0]
