"""The top k of the documents with a phrase, in one call of a kernel for each segment that stores term sequences.

It goes through the documents that have all terms of a query, range by range, and scores those with the phrase.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.engine.blocks import (
    LOOKUP,
    OFFSET_MASK,
    RANGE_BITS,
    RANGE_SIZE,
    bits_at,
    block_bounds,
    find_block,
    find_posting,
    is_bitmap,
    value_in_bitmap,
)
from vizsla.engine.intrinsics import prefetch
from vizsla.engine.query import Query
from vizsla.engine.scores import Terms, score_posting, score_value
from vizsla.engine.search import TopDocuments
from vizsla.engine.segment import LENGTH_TYPES, Segment, SegmentArrays, read_only_mask
from vizsla.engine.segment_list import SegmentList
from vizsla.engine.segment_search import Masks, open_terms, scratch_of_thread
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.term_sequences import PhrasePattern, row_has_phrase
from vizsla.engine.topk import TopK
from vizsla.engine.weighting import WEIGHTINGS, Weightings
from vizsla.kernels import njit

_MAX_K = 1000  # with a larger k, inserting each document into the top k takes too long
_ALL_FREQUENT = -2  # even the rarest term has bitmaps
_TOGETHER = 8  # documents that are fetched from memory together
_LINE, _LINES = 16, 8  # numbers in a line of the processor's cache, and lines of a document that are fetched early


class _Phrase(NamedTuple):
    """A phrase, and the sequences of a segment."""

    numbers: np.ndarray
    starts: np.ndarray
    terms: np.ndarray
    offsets: np.ndarray
    previous: np.ndarray
    slop: int
    field: int
    places: np.ndarray
    """[terms] memory."""
    found: np.ndarray
    """[_TOGETHER] memory."""


def search_phrase(
    segments: Sequence[Segment],
    query: Query,
    weightings: Weightings,
    pattern: PhrasePattern,
    space: int,
    k: int,
    masks: Masks | None = None,
) -> TopDocuments | None:
    """The best k documents that have a phrase, whose terms are those of a query; of equal scores the first inserted.

    Returns None if this method does not apply: a segment stores no sequences in the namespace of the phrase, `space`,
    the query has other terms, there are many terms, all terms are very frequent, or k is large.
    """
    ordered = SegmentList.of(segments)
    if k > _MAX_K or len(query.terms) > MAX_TERMS or set(query.terms.tolist()) != set(pattern.terms.tolist()):
        return None
    if not all(space in segment.sequences for segment in ordered.segments):
        return None
    top, count = TopK(np.empty(k, np.float32), np.empty(k, np.int64)), 0
    order, memory_of_terms = np.empty(len(query.terms), np.int64), np.empty(len(pattern.terms), np.int64)
    found = np.empty(_TOGETHER, np.uint8)
    scratch, asked = CommonScratch.of_thread(), Terms(query.weights, query.spaces, query.terms)
    for segment, first, mask in zip(ordered.segments, ordered.firsts, ordered.masks(masks), strict=False):
        sequences = segment.sequences[space]
        phrase = _Phrase(sequences.numbers, sequences.starts, *pattern.arrays, memory_of_terms, found)
        with scratch_of_thread(1, len(query.terms), segment.range_count) as memory:
            count = _search(
                segment.lists_table, segment.lengths, read_only_mask(mask),
                np.array([len(segment), first]), weightings, asked, order, phrase, memory.table, scratch, top, count,
                stopping.flag(),
            )  # fmt: skip
        if count == _ALL_FREQUENT:
            return None
        if count < 0:
            raise failure()
    return TopDocuments(ordered.numbers_at(top.places[:count]), top.scores[:count])


@njit
def _find_phrase(phrase, documents, stop):
    """Put 1 into `phrase.found` for each document that has the phrase, otherwise 0; False for damage or if stopped.

    Documents lie far apart in memory, so all of them are prefetched before the first is read.
    """
    for x in range(documents.size):
        prefetch(phrase.starts, np.int64(documents[x]))
    for x in range(documents.size):
        start = phrase.starts[documents[x]]
        for line in range(_LINES):
            prefetch(phrase.numbers, start + line * _LINE)
    for x in range(documents.size):
        has = row_has_phrase(
            phrase.numbers, phrase.starts, np.int64(documents[x]), phrase.terms, phrase.offsets,
            phrase.previous, phrase.slop, phrase.field, phrase.places, stop,
        )  # fmt: skip
        if has < 0 or must_stop(stop):
            return False
        phrase.found[x] = has
    return True


@njit
def _is_better(scores, documents, a, b):
    """Whether one document comes before another in a ranking."""
    return scores[a] > scores[b] or (scores[a] == scores[b] and documents[a] < documents[b])


@njit
def _sift(scores, documents, i, size):
    """Move an entry of a heap, whose best is the first, down to its place."""
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _is_better(scores, documents, child + 1, child):
            child += 1
        if _is_better(scores, documents, i, child):
            return
        scores[i], scores[child] = scores[child], scores[i]
        documents[i], documents[child] = documents[child], documents[i]
        i = child


@njit
def _insert(top, count, score, place):
    """Put a document among the best, if it is one of them; returns how many there are now."""
    scores, places, j = top.scores, top.places, count
    if count == scores.size:
        j -= 1
        if scores[j] > score or (scores[j] == score and places[j] < place):
            return count
    while j > 0 and (scores[j - 1] < score or (scores[j - 1] == score and places[j - 1] > place)):
        scores[j], places[j] = scores[j - 1], places[j - 1]
        j -= 1
    scores[j], places[j] = score, place
    return min(count + 1, scores.size)


@njit
def _merge(phrase, scratch, size, first, top, count, stop):
    """Merge the scored documents that have the phrase into the top k; returns its new size, or -1 as `_search` does.

    The phrase is looked for in the best first, until no other can be among the top k.
    """
    scores, documents = scratch.scores, scratch.documents
    for i in range(size // 2 - 1, -1, -1):
        _sift(scores, documents, i, size)
    while size > 0 and np.float32(scores[0]) >= _least(top, count):
        end = size
        for _ in range(min(size, _TOGETHER)):  # the best go to the end
            size -= 1
            scores[0], scores[size] = scores[size], scores[0]
            documents[0], documents[size] = documents[size], documents[0]
            _sift(scores, documents, 0, size)
        if not _find_phrase(phrase, documents[size:end], stop):
            return -1
        for x in range(size, end):
            if phrase.found[x - size]:
                score = np.float32(scores[x]) + np.float32(0)  # turns -0.0 into 0.0
                count = _insert(top, count, score, first + np.int64(documents[x]))
    return count


@njit
def _least(top, count):
    """The score that a document needs to be among the top k."""
    return top.scores[count - 1] if count == top.scores.size else np.float32(-np.inf)


@njit(
    *(
        f"const int64[:,:], const {codes}[:,:], const bool[:], const int64[:], {WEIGHTINGS}, "
        "Terms(const float64[:], const int64[:], const int64[:]), int64[:], _Phrase(const uint32[:], const int64[:], "
        "const uint32[:], const int64[:], const int64[:], int64, int64, int64[:], uint8[:]), const int64[:,:], "
        "CommonScratch(uint16[:,:], uint16[:,:], int64[:,:], uint32[:], float64[:]), TopK(float32[:], int64[:]), "
        "int64, uint8[:]"
        for codes in LENGTH_TYPES
    )
)
def _search(table, lengths, allowed, facts, w, query, order, phrase, memory, scratch, top, count, stop):
    """Merge a segment's documents that have a phrase into the top k; returns its new size.

    Returns -1 for damage or if stopped, _ALL_FREQUENT if all terms are too frequent for this method. `query`: its
    terms, with term numbers instead of blocks. `order`: scratch, one number per term.
    """
    range_count = lengths.shape[1] >> RANGE_BITS
    small, large, blocks, _, sound = open_terms(table, query.blocks, range_count, memory)
    if not sound:
        return -1
    segment = SegmentArrays(small, large, lengths, allowed, facts[0], facts[1])
    terms, size = Terms(query.weights, query.spaces, blocks), 0
    order_by_length(small, large, blocks, order)
    if has_bitmap(small, blocks[order[0]]):
        return _ALL_FREQUENT
    for doc_range in range(range_count):
        few, many = find_common(small, large, blocks, doc_range, order, scratch)
        if few < 0 or must_stop(stop):
            return -1
        least = _least(top, count)
        if few:
            size = score_range(segment, terms, w, doc_range, order[0], 0, few, least, scratch, size)
        if many and size >= 0:
            size = score_range(segment, terms, w, doc_range, order[0], 1, many, least, scratch, size)
        if size < 0:
            return -1
        if size > MANY:
            count = _merge(phrase, scratch, size, segment.first, top, count, stop)
            size = 0
            if count < 0:
                return -1
    return _merge(phrase, scratch, size, segment.first, top, count, stop)


MAX_TERMS = 16
"""The maximum number of terms of a query in this module."""
MANY = 2048
"""Documents are collected until there are this many; the last range may exceed it."""
_LARGE = 1 << 15  # marks a posting of a large list


class CommonScratch(NamedTuple):
    """Scratch memory of a thread."""

    marks: np.ndarray
    """[MAX_TERMS, RANGE_SIZE] for each term and document of a range the position of its posting in the term's block."""
    leads: np.ndarray
    """[2, RANGE_SIZE] documents of a range, as small and as large postings of one term."""
    bounds: np.ndarray
    """[MAX_TERMS, 4] where the small and the large postings of each term start and end in a range."""
    documents: np.ndarray
    """[MANY + RANGE_SIZE] documents that have all terms."""
    scores: np.ndarray
    """Theirs."""

    @classmethod
    def of_thread(cls) -> CommonScratch:
        try:
            scratch: CommonScratch = _local.scratch
        except AttributeError:
            scratch = _local.scratch = cls(
                np.zeros((MAX_TERMS, RANGE_SIZE), np.uint16),
                np.empty((2, RANGE_SIZE), np.uint16),
                np.empty((MAX_TERMS, 4), np.int64),
                np.empty(MANY + RANGE_SIZE, np.uint32),
                np.empty(MANY + RANGE_SIZE),
            )
        return scratch


_local = threading.local()


@njit
def _length(small, large, own):
    """How many postings a term has, if its lists are sound."""
    few = np.int64(small.starts[own[1]]) - np.int64(small.starts[own[0]])
    return few + np.int64(large.starts[own[3]]) - np.int64(large.starts[own[2]])


@njit
def order_by_length(small, large, blocks, order):
    """Sort the terms by how many postings they have, the rarest first."""
    for i in range(order.size):
        term, j = i, i
        while j > 0 and _length(small, large, blocks[term]) < _length(small, large, blocks[order[j - 1]]):
            order[j] = order[j - 1]
            j -= 1
        order[j] = term


@njit
def has_bitmap(small, own):
    """Whether a term has a bitmap. The rarest term of a query must not have one here."""
    for r in range(own[0], own[1]):
        a, z = block_bounds(small, r)
        if is_bitmap(small, a, z):
            return True
    return False


@njit
def _find_blocks(small, large, own, doc_range, bounds):
    """Put where a term's small and large postings in a range start and end into `bounds`; False for damage."""
    for kind in range(2):
        lists, first, last = small if kind == 0 else large, own[2 * kind], own[2 * kind + 1]
        r = find_block(lists.ranges, first, last, doc_range)
        a, z = np.int64(0), np.int64(0)
        if r < last and lists.ranges[r] == doc_range:
            a, z = block_bounds(lists, r)
        if z < a or (z - a > RANGE_SIZE and not is_bitmap(lists, a, z)):
            return False
        bounds[2 * kind], bounds[2 * kind + 1] = a, z
    return True


@njit
def _offset_at(postings, x):
    """The place of a posting's document in its range."""
    return postings[x] & np.uint16(OFFSET_MASK)


@njit
def _look_up(small, large, bounds, leads, some, start, marks):
    """Mark which of the given documents have a term; the documents are given by postings of the rarest term."""
    a, z, b, y = bounds[0], bounds[1], bounds[2], bounds[3]
    is_plain = a < z and not is_bitmap(small, a, z)  # a bitmap needs no marks
    for x in range(np.uint64(some.size)):
        offset = _offset_at(leads, np.uint64(start) + np.uint64(some[x]))
        if is_plain:
            at = find_posting(small.postings, a, z, offset)
            if _offset_at(small.postings, at) == offset:
                marks[offset] = np.uint16(at - np.uint64(a))
        if b < y:
            at = find_posting(large.postings, b, y, offset)
            if _offset_at(large.postings, at) == offset:
                marks[offset] = np.uint16(at - np.uint64(b)) | np.uint16(_LARGE)


@njit
def _mark_all(small, large, bounds, marks):
    """Mark all documents that a term has in a range."""
    a, b = np.uint64(bounds[0]), np.uint64(bounds[2])
    if not is_bitmap(small, bounds[0], bounds[1]):
        for x in range(np.uint64(bounds[1]) - a):
            marks[_offset_at(small.postings, a + x)] = np.uint16(x)
    for x in range(np.uint64(bounds[3]) - b):
        marks[_offset_at(large.postings, b + x)] = np.uint16(x) | np.uint16(_LARGE)


@njit
def _keep_marked(small, large, bounds, leads, some, start, marks):
    """Move the documents that have a term to the front; returns how many they are.

    Marks are not cleared between ranges: a mark counts only if the posting it points to is one of this document.
    """
    kept, last, as_bitmap = np.uint64(0), np.uint64(bounds[1] - bounds[0] - 1), is_bitmap(small, bounds[0], bounds[1])
    a, b, many = np.uint64(bounds[0]), np.uint64(bounds[2]), np.uint64(bounds[3] - bounds[2])
    has_small = bounds[0] < bounds[1] and not as_bitmap
    for x in range(np.uint64(some.size)):
        lead = some[x]
        offset = _offset_at(leads, np.uint64(start) + np.uint64(lead))
        at = np.uint64(marks[offset])
        has = as_bitmap and bits_at(small.postings, a, offset) > 0
        if at >= np.uint64(_LARGE):
            at -= np.uint64(_LARGE)
            has |= at < many and _offset_at(large.postings, b + at) == offset
        elif has_small:
            has |= _offset_at(small.postings, a + min(at, last)) == offset  # no branch depends on it
        some[kept] = lead
        kept += np.uint64(has)
    return np.int64(kept)


@njit
def find_common(small, large, blocks, doc_range, order, scratch):
    """Find the documents of a range that have all terms; returns how many, by small and by large postings of order[0].

    `scratch.leads` gets these postings of the rarest term, as offsets from the start of its block. If few documents are
    left, each is looked up in the next term's blocks; otherwise the blocks are read. Returns -1 for damage.
    """
    lead = scratch.bounds[order[0]]
    if not _find_blocks(small, large, blocks[order[0]], doc_range, lead):
        return -1, -1
    few, many = lead[1] - lead[0], lead[3] - lead[2]
    if few + many > RANGE_SIZE:
        return -1, -1
    for x in range(few):
        scratch.leads[0, x] = x
    for x in range(many):
        scratch.leads[1, x] = x
    for i in range(1, order.size):
        if few + many == 0:
            break
        bounds, marks = scratch.bounds[order[i]], scratch.marks[order[i]]
        if not _find_blocks(small, large, blocks[order[i]], doc_range, bounds):
            return -1, -1
        common, rare = scratch.leads[0, :few], scratch.leads[1, :many]
        to_read = bounds[3] - bounds[2] + (0 if is_bitmap(small, bounds[0], bounds[1]) else bounds[1] - bounds[0])
        if (few + many) * LOOKUP < to_read:
            _look_up(small, large, bounds, small.postings, common, lead[0], marks)
            _look_up(small, large, bounds, large.postings, rare, lead[2], marks)
        else:
            _mark_all(small, large, bounds, marks)
        few = _keep_marked(small, large, bounds, small.postings, common, lead[0], marks)
        many = _keep_marked(small, large, bounds, large.postings, rare, lead[2], marks)
    return few, many


@njit
def _score(segment, terms, w, scratch, rarest, kind, x, base):
    """The score of a document found by `find_common`, the same as from `score_documents`."""
    small, large, total = segment.small, segment.large, 0.0
    lead = scratch.bounds[rarest, 2 * kind] + np.int64(scratch.leads[kind, x])
    offset = _offset_at(large.postings if kind else small.postings, lead)
    for i in range(terms.weights.size):
        s, mark = terms.spaces[i], np.int64(scratch.marks[i, offset])
        is_large, at = bool(mark & _LARGE), mark & (_LARGE - 1)
        if i == rarest:
            is_large, at = bool(kind), np.int64(scratch.leads[kind, x])
        elif is_bitmap(small, scratch.bounds[i, 0], scratch.bounds[i, 1]):
            value = value_in_bitmap(small.postings, scratch.bounds[i, 0], scratch.bounds[i, 1], offset)
            if value:
                codes = segment.lengths[s]
                total += score_value(np.float64(value), base + np.int64(offset), codes, terms.weights[i], w, s)
                continue
        at += scratch.bounds[i, 2 if is_large else 0]
        if is_large:
            total += score_posting(large, at, segment.lengths[s], base, terms.weights[i], w, s)
        else:
            total += score_posting(small, at, segment.lengths[s], base, terms.weights[i], w, s)
    return total


@njit
def score_range(segment, terms, w, doc_range, rarest, kind, found, least, scratch, size):
    """Append the documents that `find_common` found in a range, and their scores, to those of earlier ranges.

    Documents that may not be found, or have a lower score than `least`, are left out. Returns how many there are then,
    -1 for damage.
    """
    base, postings = doc_range << RANGE_BITS, segment.large.postings if kind else segment.small.postings
    for x in range(found):
        at = scratch.bounds[rarest, 2 * kind] + np.int64(scratch.leads[kind, x])
        document = base + np.int64(_offset_at(postings, at))
        if document >= segment.documents:
            return -1
        if segment.allowed.size and not segment.allowed[document]:
            continue
        score = _score(segment, terms, w, scratch, rarest, kind, x, base)
        if not np.isfinite(score):
            return -1
        scratch.documents[size], scratch.scores[size] = document, score
        size += np.int64(np.float32(score) >= least)
    return size
