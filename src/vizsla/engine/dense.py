"""Exact top k of inner products with dense vectors, alone or added to what terms give.

Products are made block by block in 32 bits, by the fastest routine the machine has. Each stands for the interval its
rounding allows, as wide as the longest vector of its segment makes it. Whatever could be among the best k by these
intervals is then scored again in 64 bits and rounded at the end, so what is found does not depend on segments, blocks,
batches or threads. A document with a dense vector is a hit, whether it shares a term with the query or not.

Where a segment has a structure of faiss's, and an effort is given, it names the candidates instead; they are scored in
the same way, so that a search may miss documents but never gives a score that is not theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.engine.kinds import VectorIndex
from vizsla.engine.lists import BITS, WINDOW, DamagedSegmentError
from vizsla.engine.query import Query
from vizsla.engine.rows import MOST_CODE, products
from vizsla.engine.scores import Terms, add_exactly
from vizsla.engine.segment import Segment
from vizsla.engine.weighting import Weightings
from vizsla.kernels import kernel

_BLOCK = 8192  # documents that are scored together
_FEW = 8  # queries for which blocks are longer, since each costs some bookkeeping
_ROUNDING, _VANISHING = 2.0**-23, 2.0**-126  # errors of 32-bit floats: relative, and absolute where they are tiny
_MOST = 1e37  # scores, and products with vectors in 8 bits before they are scaled, that 32 bits can surely hold


@kernel
def _term_scores(segment, terms, w, sums, touched):
    """Add what terms give to each document of a segment; False if it is damaged."""
    sound = True
    for window in range(segment.lengths.shape[1] >> BITS):
        a = window << BITS
        for i in range(terms.weights.size):
            s, weight, runs = terms.spaces[i], terms.weights[i], terms.runs[i]
            codes, here, seen = segment.lengths[s], sums[a : a + WINDOW], touched[a : a + WINDOW]
            sound &= add_exactly(segment.small, runs[0], runs[1], window, codes, weight, w, s, here, seen)
            sound &= add_exactly(segment.large, runs[2], runs[3], window, codes, weight, w, s, here, seen)
    return sound


@kernel
def _gather(scores, first, begin, margins, k, least, lows, highs, places, counts):
    """Keep what may be among the best; gives the query and column it stopped at because there was no room left."""
    room = lows.shape[1]
    for q in range(begin[0], scores.shape[0]):
        start = begin[1] if q == begin[0] else 0
        margin = margins[q]
        for j in range(start, scores.shape[1]):
            score = scores[q, j]
            if score + margin < least[q] or score == -np.inf:
                continue
            if counts[q] == room:
                least[q] = max(least[q], np.partition(lows[q], room - k)[room - k])
                size = 0
                for x in range(room):
                    if highs[q, x] >= least[q]:
                        lows[q, size], highs[q, size], places[q, size] = lows[q, x], highs[q, x], places[q, x]
                        size += 1
                counts[q] = size
                if size > room // 2:
                    return q, j
                if score + margin < least[q]:
                    continue
            n = counts[q]
            lows[q, n], highs[q, n], places[q, n] = score - margin, score + margin, first + j
            counts[q] += 1
    return scores.shape[0], 0


@dataclass(eq=False)
class _Candidates:
    """What may be among the best of some queries: the least and the most that scores can be, and places.

    Places are those among the documents of all segments. `least`: what k documents reach at least.
    """

    k: int
    lows: np.ndarray
    highs: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    least: np.ndarray

    @classmethod
    def of(cls, queries: int, k: int) -> _Candidates:
        room = 4 * k + 1024
        return cls(
            k,
            np.empty((queries, room)),
            np.empty((queries, room)),
            np.empty((queries, room), np.int64),
            np.zeros(queries, np.int64),
            np.full(queries, -np.inf),
        )

    def take_in(self, scores: np.ndarray, margins: np.ndarray, first: int) -> None:
        """[queries, documents] scores of neighbouring documents, and [queries] by how much they may be off.

        The scores of documents that cannot be found are minus infinity.
        """
        begin = np.zeros(2, np.int64)
        while True:
            kept = self.lows, self.highs, self.places
            q, j = _gather(scores, first, begin, margins, self.k, self.least, *kept, self.counts)
            if q == len(scores):
                return
            begin[:] = q, j
            self.lows, self.highs, self.places = (np.concatenate([a, np.empty_like(a)], axis=1) for a in kept)

    def of_query(self, q: int) -> np.ndarray:
        """The places of what may be among the best of a query, ascending."""
        lows, highs, places = (kept[q, : self.counts[q]] for kept in (self.lows, self.highs, self.places))
        if len(places) > self.k:
            places = places[highs >= np.partition(lows, len(lows) - self.k)[len(lows) - self.k]]
        return np.sort(places)


@dataclass(frozen=True, eq=False)
class _Given:
    """What terms give to the documents of all segments for one query, and who shares one."""

    sums: np.ndarray
    touched: np.ndarray


def search_dense(
    segments: Sequence[Segment],
    queries: Sequence[Query],
    weightings: Weightings,
    k: int,
    masks: Sequence[np.ndarray | None],
    effort: VectorIndex | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the places of the best k documents among those of all segments, and their scores.

    `effort`: look for candidates in the segments' structures, where queries are vectors of one namespace alone.
    """
    found = _Candidates.of(len(queries), k)
    near: list[list[np.ndarray]] = [[] for _ in queries]
    given: list[list[_Given | None]] = []
    space = _only_space(queries) if effort is not None and effort.built else None
    first = 0
    for segment, mask in zip(segments, masks, strict=True):
        given.append([_from_terms(segment, query, weightings) for query in queries])
        if effort is not None and space is not None and space in segment.near:
            for places, rows in zip(near, _near(segment, mask, space, queries, k, effort), strict=True):
                places.append(first + rows)
        else:
            _search_segment(segment, mask, first, queries, given[-1], found)
        first += len(segment)
    chosen = [np.sort(np.concatenate([found.of_query(q), *places])) for q, places in enumerate(near)]
    return [_scored(segments, given, q, query.dense, chosen[q], k) for q, query in enumerate(queries)]


def _only_space(queries: Sequence[Query]) -> int | None:
    """The one namespace all queries have their vectors in, None if there are others, or terms."""
    spaces = {s for query in queries for s in query.dense}
    return spaces.pop() if len(spaces) == 1 and not any(len(query.terms) for query in queries) else None


def _near(
    segment: Segment, mask: np.ndarray | None, space: int, queries: Sequence[Query], k: int, effort: VectorIndex
) -> list[np.ndarray]:
    """For each query the places in a segment of documents that may be among its best."""
    there = segment.having[space]
    allowed = mask if there is None else there if mask is None else there & mask
    asked = np.stack([q.dense[space] for q in queries]).astype(np.float32)
    return segment.near[space].candidates(asked, effort.candidates(k), allowed, effort)


def score_places(
    segments: Sequence[Segment], query: Query, weightings: Weightings, places: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of some documents, by their ascending places among those of all segments, and their scores."""
    given = [[_from_terms(segment, query, weightings)] for segment in segments]
    return _scored(segments, given, 0, query.dense, places, k)


def _from_terms(segment: Segment, query: Query, weightings: Weightings) -> _Given | None:
    if len(query.terms) == 0:
        return None
    size = segment.lengths.shape[1]
    sums, touched = np.zeros(size), np.zeros(size, np.bool_)
    here = Terms(query.weights, query.spaces, segment.runs_of(query.terms)[0])
    if not _term_scores(segment.arrays(None, 0), here, weightings, sums, touched):
        raise DamagedSegmentError
    return _Given(sums[: len(segment)], touched[: len(segment)])


def _search_segment(
    segment: Segment,
    mask: np.ndarray | None,
    first: int,
    queries: Sequence[Query],
    given: Sequence[_Given | None],
    found: _Candidates,
) -> None:
    spaces = sorted({s for query in queries for s in query.dense})
    nothing = {s: np.zeros(segment.dense[s].shape[1]) for s in spaces}
    vectors = {s: np.stack([q.dense.get(s, nothing[s]) for q in queries]) for s in spaces}
    margins = _margins(segment, vectors, given)
    sound = np.isfinite(margins)[:, None]  # what 32 bits cannot hold is not multiplied: all of it is a candidate
    asked = {s: np.where(sound, rows, 0.0).astype(np.float32) for s, rows in vectors.items()}
    partly = [having for s in spaces if (having := segment.having[s]) is not None]
    there = np.any(partly, axis=0) if len(partly) == len(spaces) else None
    block = _BLOCK * max(_FEW // len(queries), 1)
    for a in range(0, len(segment), block):
        z = min(a + block, len(segment))
        scores = sum(products(rows, segment.dense[s], a, z) for s, rows in asked.items())
        assert isinstance(scores, np.ndarray)
        for q, terms in enumerate(given):
            if terms is not None and sound[q]:
                scores[q] += terms.sums[a:z]
            if there is not None:
                scores[q, ~(there[a:z] if terms is None else there[a:z] | terms.touched[a:z])] = -np.inf
            if mask is not None:
                scores[q, ~mask[a:z]] = -np.inf
        found.take_in(scores, margins, first + a)


def _margins(segment: Segment, vectors: Mapping[int, np.ndarray], given: Sequence[_Given | None]) -> np.ndarray:
    """[queries] by how much scores made in 32 bits may be off; infinite where 32 bits cannot hold them."""
    from_terms = np.array([0.0 if terms is None else np.abs(terms.sums).max(initial=0.0) for terms in given])
    margins, most = 4 * _ROUNDING * from_terms, from_terms
    with np.errstate(over="ignore", invalid="ignore"):
        for s, rows in vectors.items():
            width, longest, lengths = rows.shape[1], segment.longest[s], np.linalg.norm(rows, axis=1)
            margins = margins + (width + 8) * (_ROUNDING * lengths * longest + _VANISHING * (1 + longest + lengths))
            most = most + lengths * np.maximum(longest, MOST_CODE * np.sqrt(width))
    return np.where(most < _MOST, margins, np.inf)


def _scored(
    segments: Sequence[Segment],
    given: Sequence[Sequence[_Given | None]],
    q: int,
    vectors: Mapping[int, np.ndarray],
    places: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of some documents by their scores in 64 bits; equal ones by their places."""
    scores = np.zeros(len(places))
    first = 0
    for segment, from_terms in zip(segments, given, strict=True):
        here = slice(*np.searchsorted(places, [first, first + len(segment)]))
        rows = places[here] - first
        terms = from_terms[q]
        if terms is not None:
            scores[here] += terms.sums[rows]
        for s, vector in vectors.items():
            scores[here] += np.einsum("ij,j->i", segment.dense[s][rows].astype(np.float64), vector)
        first += len(segment)
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")[:k]
    return places[order], rounded[order]
