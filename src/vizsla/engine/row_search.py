"""The rows of a segment that have some terms, and the top k among given rows: for boolean queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from vizsla import stopping
from vizsla.engine.blocks import (
    BLOCKS,
    LOOKUP,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    bits_at,
    block_bounds,
    find_block,
    find_posting,
    is_bitmap,
    unpack_bitmap,
)
from vizsla.engine.ngram_scores import rows_with_ngrams
from vizsla.engine.query import Query
from vizsla.engine.search import TopDocuments
from vizsla.engine.segment import Segment
from vizsla.engine.segment_list import SegmentList
from vizsla.engine.segment_search import blocks_of, open_terms, score_rows, scratch_of_thread
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.weighting import Weightings
from vizsla.kernels import njit

_MOST_MARKS = 200  # terms at once: a mark is a byte
_CHECKED, _LEAST_CHECKED = 4, 64  # the best 4 k rows are checked first, and at least 64
_OPEN_TERMS = 1000  # terms whose blocks are opened together
_NO_PLACES = np.zeros(0, np.int64)


def rows_with_any(segment: Segment, terms: np.ndarray) -> np.ndarray:
    """A mask of the rows that have one of some terms, given by their numbers; -1 is no term."""
    mask, stop = np.zeros(len(segment), np.bool_), stopping.flag()
    for a in range(0, len(terms), _OPEN_TERMS):
        arrays, blocks = segment.open(terms[a : a + _OPEN_TERMS])
        if not _mark(arrays.small, blocks, 0, mask, stop) or not _mark(arrays.large, blocks, 2, mask, stop):
            raise failure()
    return mask


def rows_with_a_score(segment: Segment, query: Query) -> np.ndarray:
    """A mask of the rows that share a term or an n-gram with a query, or have a vector where the query has one."""
    rows = rows_with_any(segment, query.terms)
    for space, ngrams in query.ngrams.items():
        rows[rows_with_ngrams(segment.ngrams[space], ngrams)] = True
    for space in query.vector_spaces:
        has_vector = segment.has_vector[space]
        if has_vector is None:
            return np.ones(len(segment), np.bool_)
        rows |= has_vector
    return rows


def rows_with_all(segment: Segment, terms: np.ndarray) -> np.ndarray:
    """The rows, ascending, that have all of some different terms, given by their numbers; -1 is no term."""
    if len(terms) > _MOST_MARKS:
        some, others = (rows_with_all(segment, part) for part in (terms[:_MOST_MARKS], terms[_MOST_MARKS:]))
        return np.intersect1d(some, others, assume_unique=True)
    table, size = segment.lists_table, len(segment)
    lengths = np.empty(len(terms), np.int64)
    with scratch_of_thread(1, len(terms), segment.range_count) as scratch:
        if not _measure(table, terms, size, segment.range_count, scratch.table, lengths):
            raise failure()
        order = np.argsort(lengths, kind="stable")
        rows, marks, spare = (np.empty(lengths[order[0]], np.int64), *_range_memory())
        count = _intersect(table, order, marks, spare, size, scratch.table, rows, stopping.flag())
        if count < 0:
            raise failure()
    return np.sort(rows[:count], kind="stable")  # two ascending runs


def _range_memory() -> tuple[np.ndarray, np.ndarray]:
    """Memory for the marks and for the postings of a range."""
    return np.zeros(RANGE_SIZE, np.uint8), np.empty(RANGE_SIZE, np.uint16)


def search_rows(
    segments: Sequence[Segment],
    query: Query,
    weightings: Weightings,
    rows: Sequence[np.ndarray],
    k: int,
    check: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> TopDocuments:
    """The best k of some rows of each segment, ascending; a row that has no term of the query has the score 0.

    Every row is scored, as `search` would score it. `check(segment, rows)` says which rows may be found. It is called
    for the best rows first, until k rows have passed, so that an expensive check is made for few rows.
    """
    ordered = SegmentList.of(segments)
    places, scores = _score(ordered, query, weightings, rows)
    if check is None:
        best = next(_best_first(scores, k), _NO_PLACES)[:k]
        return TopDocuments(ordered.numbers_at(places[best]), scores[best])
    kept, count = [_NO_PLACES], 0
    for some in _best_first(scores, max(_CHECKED * k, _LEAST_CHECKED)):
        found = some[_checked(ordered, places[some], check)]
        kept.append(found)
        count += len(found)
        if count >= k:
            break
    best = np.concatenate(kept)[:k]
    return TopDocuments(ordered.numbers_at(places[best]), scores[best])


def _score(
    segments: SegmentList, query: Query, weightings: Weightings, rows: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The places of rows, ascending, and their scores."""
    places, scores = [], []
    prepared = segments.prepared(weightings, segments.masks(None))
    arrays = query.terms, query.spaces, query.weights
    with prepared.scratch(1, len(query.terms)) as scratch:
        for segment, first, some in zip(prepared.segments, segments.firsts, rows, strict=False):
            if len(some):
                sums, found, documents = np.empty(len(some)), np.empty(len(some), np.float32), some.astype(np.uint32)
                if not score_rows(*segment[:2], *arrays, documents, sums, scratch.table, found, stopping.flag()):
                    raise failure()
                places.append(first + some)
                scores.append(found)
    if len(places) == 1:
        return places[0], scores[0]
    return np.concatenate([*places, _NO_PLACES]), np.concatenate([*scores, np.zeros(0, np.float32)])


def _best_first(scores: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """The places of scores, highest first, equal ones as they come: at least `size` of them, then four times as many,
    and so on.
    """
    left = np.arange(len(scores))
    while len(left):
        some = left
        if len(left) > size:
            least = np.partition(scores[left], len(left) - size)[len(left) - size]
            high = scores[left] >= least
            some, left = left[high], left[~high]
        else:
            left = left[:0]
        yield some[np.argsort(-scores[some], kind="stable")]
        size *= 4


def _checked(segments: SegmentList, places: np.ndarray, check: Callable[[int, np.ndarray], np.ndarray]) -> np.ndarray:
    """Which places pass a check of the rows of each segment."""
    if len(segments) == 1:
        return check(0, places)
    passed = np.zeros(len(places), np.bool_)
    for s, (start, end) in enumerate(pairwise(segments.firsts)):
        here = np.flatnonzero((places >= start) & (places < end))
        if len(here):
            passed[here] = check(s, places[here] - start)
    return passed


@njit(f"{BLOCKS}, const int64[:,:], int64, bool[:], uint8[:]")
def _mark(lists, blocks, column, mask, stop):
    """Mark the rows of the lists of some terms; False if a list is damaged, or if stopped.

    `column`: the column of `blocks` with the first block of each list; the next column has the end.
    """
    for i in range(blocks.shape[0]):
        for r in range(blocks[i, column], blocks[i, column + 1]):
            a, z = block_bounds(lists, r)
            base = np.int64(lists.ranges[r]) << RANGE_BITS
            if z < a or must_stop(stop):
                return False
            if is_bitmap(lists, a, z):
                for offset in range(min(RANGE_SIZE, mask.size - base)):
                    mask[base + offset] |= bits_at(lists.postings, a, offset) > 0
                continue
            for x in range(a, z):
                row = base + np.int64(lists.postings[x] & np.uint16(OFFSET_MASK))
                if row >= mask.size:
                    return False
                mask[row] = True
    return True


@njit
def _raise_marks(lists, first, last, doc_range, rare, marks, level):
    """Raise the marks of a term's documents in a range that are at a level; False if its block is damaged.

    `rare`: the postings whose marks may be at the level. Few are looked up, for many the block is read.
    """
    r = find_block(lists.ranges, first, last, doc_range)
    if r == last or lists.ranges[r] != doc_range:
        return True
    a, z = block_bounds(lists, r)
    if z <= a:
        return z == a
    postings, above = lists.postings, np.uint8(level + 1)
    if is_bitmap(lists, a, z):
        for x in range(np.uint64(rare.size)):
            offset = rare[x] & np.uint16(OFFSET_MASK)
            if marks[offset] == level and bits_at(postings, a, offset):
                marks[offset] = above
    elif np.int64(rare.size) * LOOKUP < z - a:
        for x in range(np.uint64(rare.size)):
            offset = rare[x] & np.uint16(OFFSET_MASK)
            if marks[offset] == level:
                at = find_posting(postings, a, z, offset)
                if (postings[at] & np.uint16(OFFSET_MASK)) == offset:
                    marks[offset] = above
    else:
        for x in range(np.uint64(a), np.uint64(z)):
            offset = postings[x] & np.uint16(OFFSET_MASK)
            marks[offset] = above if marks[offset] == level else marks[offset]
    return True


@njit("const int64[:,:], const int64[:], int64, int64, const int64[:,:], int64[:]")
def _measure(table, terms, size, range_count, memory, lengths):
    """Open the lists of terms of a segment, a table, and measure how many rows each has; False for damage."""
    small, large, blocks, _, sound = open_terms(table, terms, range_count, memory)
    if not sound:
        return False
    for i in range(terms.size):
        own = blocks[i]
        lengths[i] = np.int64(large.starts[own[3]]) - np.int64(large.starts[own[2]])
        if not 0 <= lengths[i] <= size:
            return False
        for r in range(own[0], own[1]):
            a, z = block_bounds(small, r)
            lengths[i] += RANGE_SIZE if is_bitmap(small, a, z) else z - a
        lengths[i] = min(lengths[i], size)
    return True


@njit
def _intersect_range(small, large, blocks, order, doc_range, rare, marks, count, out):
    """Put the rows of a range that have all terms into `out`; returns how many there are now, -1 for damage.

    `rare`: the postings of the first of the terms.
    """
    all_terms = order.size
    for x in range(np.uint64(rare.size)):
        marks[rare[x] & np.uint16(OFFSET_MASK)] = 1
    for i in range(1, all_terms):
        own = blocks[order[i]]
        sound = _raise_marks(small, own[0], own[1], doc_range, rare, marks, i)
        if not sound or not _raise_marks(large, own[2], own[3], doc_range, rare, marks, i):
            return -1
    for x in range(np.uint64(rare.size)):
        offset = rare[x] & np.uint16(OFFSET_MASK)
        if marks[offset] == all_terms:
            if count >= out.size:
                return -1
            out[count] = (doc_range << RANGE_BITS) + np.int64(offset)
            count += 1
        marks[offset] = 0
    return count


@njit("const int64[:,:], const int64[:], uint8[:], uint16[:], int64, const int64[:,:], int64[:], uint8[:]")
def _intersect(table, order, marks, spare, size, memory, out, stop):
    """Put the rows that have all terms, whose lists are open in `memory`, into `out`; returns how many there are.

    -1 for damage or if stopped.

    `order`: the terms, rarest first. The rarest one drives the intersection: first its small list, then its large one.
    The mark of a document is the number of terms it has so far; all marks are 0 before and after. `spare`: scratch for
    the postings of a bitmap.
    """
    small, large, blocks = blocks_of(table, memory)
    lead, count = blocks[order[0]], 0
    for kind in range(2):
        lists = small if kind == 0 else large
        for r in range(lead[2 * kind], lead[2 * kind + 1]):
            doc_range = np.int64(lists.ranges[r])
            a, z = block_bounds(lists, r)
            if z < a or must_stop(stop):
                return -1
            if is_bitmap(lists, a, z):
                rare = spare[: unpack_bitmap(lists.postings, a, z, spare)]
                count = _intersect_range(small, large, blocks, order, doc_range, rare, marks, count, out)
            else:
                some = lists.postings[a:z]
                count = _intersect_range(small, large, blocks, order, doc_range, some, marks, count, out)
            if count < 0:
                return -1
    for x in range(count):
        if out[x] >= size:
            return -1
    return count
