"""The top k of the documents with a phrase, in one call of a kernel for each segment that stores term sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vizsla import stopping
from vizsla.engine.blocks import RANGE_BITS
from vizsla.engine.common_postings import (
    MANY,
    MAX_TERMS,
    CommonScratch,
    find_common,
    has_bitmap,
    order_by_length,
    score_range,
)
from vizsla.engine.prefetching import prefetch
from vizsla.engine.query import Query
from vizsla.engine.scores import Terms
from vizsla.engine.search import TopDocuments
from vizsla.engine.segment import LENGTH_TYPES, Segment, SegmentArrays, read_only_mask
from vizsla.engine.segment_list import SegmentList
from vizsla.engine.segment_search import Masks, open_terms, scratch_of_thread
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.term_sequences import PhrasePattern, row_has_phrase
from vizsla.engine.topk import TopK
from vizsla.engine.weighting import WEIGHTINGS, Weightings
from vizsla.kernels import njit

_MAX_K = 1000  # of a larger k, finding the place of each document among the best takes too long
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

    None if they must be found in another way: a segment stores no sequences in the namespace of the phrase, `space`,
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
    """Merge those of the scored documents that have the phrase into the top k; how many it has then, -1 as `_search`.

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
                score = np.float32(scores[x]) + np.float32(0)  # makes the 0 of a negative number a plain one
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
    """Merge those of a segment's documents that have a phrase into the top k; how many it has then.

    -1 for damage or if stopped, _ALL_FREQUENT if this is not the way to find them. `query`: its terms, with their
    numbers for blocks. `order`: memory for so many numbers.
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
