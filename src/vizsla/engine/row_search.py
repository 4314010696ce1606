"""Rows of a segment by their terms, and the top k of rows that are known: for queries that say what must match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.engine.posting_lists import OFFSET_MASK, RANGE_BITS, DamagedSegmentError
from vizsla.engine.query import Query
from vizsla.engine.scores import ScoringScratch, Terms, block_bounds, find_block, find_posting, score_documents
from vizsla.engine.search import TopDocuments
from vizsla.engine.segment import Segment
from vizsla.engine.segment_list import SegmentList
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit


def rows_with_any(segment: Segment, terms: np.ndarray) -> np.ndarray:
    """A mask of the rows that have one of some terms, given by their numbers; -1 is no term."""
    mask = np.zeros(len(segment), np.bool_)
    blocks, _ = segment.blocks_of(terms)
    arrays = segment.arrays(None, 0)
    if not _mark(arrays.small, blocks[:, :2], mask) or not _mark(arrays.large, blocks[:, 2:], mask):
        raise DamagedSegmentError
    return mask


def rows_with_all(segment: Segment, terms: np.ndarray) -> np.ndarray:
    """The rows, ascending, that have all of some terms, given by their numbers; -1 is no term."""
    order = np.argsort(segment.frequencies(terms), kind="stable")
    rare, others = terms[order[0]], terms[order[1:]]
    both = [lists.list_of(rare, len(segment))[0] for lists in (segment.small, segment.large)]
    rows = np.sort(np.concatenate(both), kind="stable").astype(np.int64)
    if len(rows) == 0 or len(others) == 0:
        return rows
    keep = np.ones(len(rows), np.bool_)
    arrays, (blocks, _) = segment.arrays(None, 0), segment.blocks_of(others)
    if not _keep(arrays.small, arrays.large, blocks, rows, keep):
        raise DamagedSegmentError
    return rows[keep]


def search_rows(
    segments: Sequence[Segment], query: Query, weightings: Weightings, rows: Sequence[np.ndarray], k: int
) -> TopDocuments:
    """The best k of some rows of each segment, ascending; a row that has no term of the query has the score 0.

    Every row is scored, as `search` would score it.
    """
    ordered = SegmentList.of(segments)
    places, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for segment, first, some in zip(ordered.segments, ordered.firsts, rows, strict=False):
        if not len(some):
            continue
        scratch = ScoringScratch.of_size(len(some))
        arrays = segment.arrays(None, 0)
        terms = Terms(query.weights, query.spaces, segment.blocks_of(query.terms)[0])
        documents = some.astype(np.uint32)
        if not score_documents(arrays.small, arrays.large, arrays.lengths, terms, weightings, documents, scratch):
            raise DamagedSegmentError
        places.append(first + some)
        scores.append(scratch.scores.astype(np.float32) + np.float32(0))
    return _best(ordered, np.concatenate(places), np.concatenate(scores), k)


def _best(segments: SegmentList, places: np.ndarray, scores: np.ndarray, k: int) -> TopDocuments:
    """The best k of documents by ascending places; equal scores in their order."""
    if len(scores) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        keep = scores >= least
        places, scores = places[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")[:k]
    return TopDocuments(segments.numbers_at(places[order]), scores[order])


@njit
def _mark(lists, blocks, mask):
    """Mark the rows of the lists of some terms; False if a list is damaged."""
    for i in range(blocks.shape[0]):
        for r in range(blocks[i, 0], blocks[i, 1]):
            a, z = block_bounds(lists, r)
            base = np.int64(lists.ranges[r]) << RANGE_BITS
            if z < a:
                return False
            for x in range(a, z):
                row = base + np.int64(lists.postings[x] & np.uint16(OFFSET_MASK))
                if row >= mask.size:
                    return False
                mask[row] = True
    return True


@njit
def _has(lists, first, last, row):
    """1 if the blocks of a term, first .. last - 1, have a row, 0 if they have not, -1 if they are damaged."""
    doc_range = row >> RANGE_BITS
    r = find_block(lists.ranges, first, last, doc_range)
    if r == last or lists.ranges[r] != doc_range:
        return 0
    a, z = block_bounds(lists, r)
    if z < a:
        return -1
    if a == z:
        return 0
    offset = np.uint16(row & OFFSET_MASK)
    x = find_posting(lists.postings, a, z, offset)
    return 1 if (lists.postings[x] & np.uint16(OFFSET_MASK)) == offset else 0


@njit
def _keep(small, large, blocks, rows, keep):
    """Keep the rows that all terms have; False if a list is damaged."""
    for j in range(rows.size):
        for i in range(blocks.shape[0]):
            found = _has(small, blocks[i, 0], blocks[i, 1], rows[j])
            if found == 0:
                found = _has(large, blocks[i, 2], blocks[i, 3], rows[j])
            if found < 0:
                return False
            if found == 0:
                keep[j] = False
                break
    return True
