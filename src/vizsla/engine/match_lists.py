"""COIL's scores: each query token takes the best product with an equal token of the document.

Products are computed in 32 bits, list by list, the shortest lists first. The norms of vectors bound how much the
remaining lists can add or subtract; once only few documents can still be in the top k, the remaining lists are not
read. That bound is added to the rounding margin, so the caller finds these documents and scores them in 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vizsla import stopping
from vizsla.engine.arrays import DamagedSegmentError, distinct
from vizsla.engine.max_sim import ROUNDING, token_margins
from vizsla.engine.posting_vectors import MatchQuery, VectorPostings
from vizsla.engine.query import Query
from vizsla.engine.segment import Segment
from vizsla.engine.vector_rows import MAX_CODE, products
from vizsla.kernels import njit
from vizsla.lazy import cached_property

_CHUNK = 1 << 14  # postings whose products are made together
_CHECK = 4  # documents whose scores can be checked in the time it takes to read a posting
_LOOKUP = 64  # postings read in order in the time it takes to look a document up in a list and score it


@dataclass(frozen=True, eq=False)
class _TokenList:
    """The list of a token of a query, and the query's vectors of this token, which may occur several times."""

    postings: VectorPostings
    start: int
    end: int
    vectors: np.ndarray
    """[occurrences, dimensions]"""
    weight: float
    norm: float
    """The length of the longest vector of the list."""

    def __len__(self) -> int:
        return self.end - self.start

    @cached_property
    def bound(self) -> float:
        """What the list can add to a score, or take away, at most."""
        return abs(self.weight) * float(np.linalg.norm(self.vectors.astype(np.float64), axis=1).sum()) * self.norm

    @property
    def margin(self) -> float:
        """By how much it may be off if it is added in 32 bits."""
        return abs(self.weight) * float(token_margins(self.vectors, self.norm).sum())

    @property
    def highest(self) -> float:
        """The largest number that may occur when it is added; 8 bits are multiplied before they are scaled."""
        return max(
            self.bound, max(abs(self.weight), 1.0) * float(np.abs(self.vectors).sum()) * max(self.norm, MAX_CODE)
        )

    def add(self, scores: np.ndarray, hits: np.ndarray | None) -> None:
        """Add to [documents] scores, and mark those that have the token."""
        vectors = self.vectors.astype(np.float32, copy=False)
        marked = np.zeros(0, np.bool_) if hits is None else hits
        documents, a = self.postings.documents, self.start
        while a < self.end:
            stopping.check()
            z = min(a + _CHUNK, self.end)
            while z < self.end and documents[z] == documents[z - 1]:
                z += 1
            found = products(vectors, self.postings.vectors, a, z)
            if not _add_best(found, np.asarray(documents[a:z]), float(self.weight), scores, marked):
                raise DamagedSegmentError
            a = z


class MatchLists:
    """The lists of a segment that a query reads, short ones first."""

    def __init__(self, segment: Segment, query: Query) -> None:
        lists = []
        for space, (terms, vectors, weight) in query.matches.items():
            postings = segment.matches[space]
            if vectors.shape[1] != postings.width:
                raise DamagedSegmentError
            for term in distinct(terms).tolist():
                a, z, norm = postings.list_of(term)
                if z > a:
                    lists.append(_TokenList(postings, a, z, vectors[terms == term], weight, norm))
        self._lists = sorted(lists, key=len)

    @property
    def highest(self) -> float:
        """The largest number that may occur when the lists are added."""
        return sum(some.highest for some in self._lists)

    def margin(self, highest: float) -> float:
        """By how much scores may be off if all lists are added in 32 bits to scores of at most `highest`."""
        total = highest + sum(some.bound for some in self._lists)
        return sum(some.margin for some in self._lists) + (len(self._lists) + 4) * ROUNDING * total

    def _mark(self, hits: np.ndarray) -> None:
        """Mark the documents that have any of the tokens."""
        for some in self._lists:
            documents = np.asarray(some.postings.documents[some.start : some.end])
            if int(documents.max()) >= len(hits):
                raise DamagedSegmentError
            hits[documents] = True

    def add(self, scores: np.ndarray, hits: np.ndarray | None, k: int, least: float, margin: float) -> float:
        """Add to [documents] scores; returns by how much they may be off because some lists were not read.

        `hits`: a mask of the hits, to which documents with a token are added; None if all documents are hits. Documents
        that are not hits get minus infinity. `least`: a score that k documents reach elsewhere. `margin`: the rounding
        error of scores; if it is infinite, nothing is added.
        """
        missing = self._add(scores, hits, k, least, margin) if np.isfinite(margin) else 0.0
        if hits is not None:
            if not np.isfinite(margin):
                self._mark(hits)
            scores[~hits] = -np.inf
        return missing

    def _add(self, scores: np.ndarray, hits: np.ndarray | None, k: int, least: float, margin: float) -> float:
        left = sum(map(len, self._lists))
        for i, some in enumerate(self._lists):
            rest = self._lists[i:]
            missing = sum(other.bound for other in rest)
            if len(some) * _CHECK > len(scores) and _can_stop(
                scores, hits, k, least, missing + margin, left // len(rest)
            ):
                return missing
            some.add(scores, hits)
            left -= len(some)
        return 0.0


def _can_stop(scores: np.ndarray, hits: np.ndarray | None, k: int, least: float, off: float, mean_length: int) -> bool:
    """Whether so few documents may still be in the top k that scoring them is faster than reading the other lists.

    `off`: by how much scores may be off. `mean_length`: of the lists that are not read yet.
    """
    known = scores if hits is None else scores[hits]
    if len(known) >= k:
        least = max(least, float(np.partition(known, len(known) - k)[len(known) - k]) - off)
    if hits is not None and least <= off:  # a document without a token so far may still be among the best
        return False
    return int(np.count_nonzero(known + off >= least)) * _LOOKUP < mean_length


@njit("const float32[:,:], const uint32[:], float64, float32[:], bool[:]")
def _add_best(products, documents, weight, scores, hits):
    """Add the best products of each document, summed over the rows; False if a document does not exist."""
    x = 0
    while x < documents.size:
        d = documents[x]
        end = x + 1
        while end < documents.size and documents[end] == d:
            end += 1
        if d >= scores.size:
            return False
        total = np.float32(0)
        for i in range(products.shape[0]):
            best = products[i, x]
            for j in range(x + 1, end):
                best = products[i, j] if products[i, j] > best else best
            total += best
        scores[d] += np.float32(weight) * total
        if hits.size:
            hits[d] = True
        x = end
    return True


def exact_matches(
    postings: VectorPostings, documents: np.ndarray, query: MatchQuery
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scores of some ascending documents in 64 bits, without the query's weight, and the matches they consist of.

    The matches are [documents, query tokens] arrays: the best product, and which of the document's equal tokens it is
    with, counted from 0; 0 and -1 for a query token that the document does not have. Of equal products the first
    counts.
    """
    best = np.zeros((len(documents), len(query.terms)))
    which = np.full((len(documents), len(query.terms)), -1, np.int64)
    scores = np.zeros(len(documents))
    wide = np.ascontiguousarray(query.vectors, np.float64)
    for i, term in enumerate(query.terms.tolist()):
        a, z, _ = postings.list_of(term)
        listed = np.asarray(postings.documents[a:z])
        begins, ends = (np.searchsorted(listed, documents, side=side) for side in ("left", "right"))
        sizes = np.maximum(ends - begins, 0)
        if not sizes.any():
            continue
        places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        rows = np.asarray(postings.vectors[a + places], np.float32)
        _best_of_runs(rows, np.append(0, np.cumsum(sizes)), wide, i, best, which)
        scores += best[:, i]
    return scores, best, which


@njit("const float32[:,:], const int64[:], const float64[:,:], int64, float64[:,:], int64[:,:]")
def _best_of_runs(rows, starts, query, i, best, which):
    """The best product in 64 bits of each document's rows with a query token, number by number, and which row it is."""
    for d in range(starts.size - 1):
        for x in range(starts[d], starts[d + 1]):
            total = 0.0
            for j in range(query.shape[1]):
                total += np.float64(rows[x, j]) * query[i, j]
            if which[d, i] < 0 or total > best[d, i]:
                best[d, i], which[d, i] = total, x - starts[d]
