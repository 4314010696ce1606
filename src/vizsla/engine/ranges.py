"""The search of one segment: bounds for one document range after the other, and exact scores for a few documents.

The bounds of a whole range are added up; those that reach what is known of the k-th best score are candidates. When
all ranges are done, the candidates left, hardly more than k, are scored exactly.

Not all terms take part at first. As in MaxScore, terms that together cannot lift a document to the k-th best score
alone are left out; then they are looked up for the documents they could matter for. Looking up costs much more than
adding up, so only terms with a small share in the score needed are left out, more or fewer from range to range as
it pays, and a block is added up as a whole where too many documents are to be looked up in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.blocks import MANY, MAX_SMALL, RANGE_BITS, RANGE_SIZE, block_bounds, is_bitmap
from vizsla.engine.bounds import (
    MAX_SUM,
    add_bitmap,
    add_few,
    add_few_of_bitmap,
    add_large_block,
    add_small_block,
    clear,
    find_reaching,
)
from vizsla.engine.scores import score_documents
from vizsla.engine.topk import merge_topk
from vizsla.kernels import njit_no_alloc

BIN_BITS = 3
BINS = 1 << (16 - BIN_BITS)  # as many as 16 bits can reach: damaged lists may add up to more than they should
PROBE = 60  # postings added up in the time it takes to look one document up in a block
BITMAP_PROBE = 4  # the same for a bitmap
BITMAP_LOAD = 800  # postings added up in the time it takes to add a bitmap
SHARE = 0.3  # of the score needed: what the terms left out may add together, at first
PART = 512  # candidates that are refined together
NO_RANGE = 1 << 40
MIN_SCORE, MAX_SCORE = 1.2e-38, 3.4e38  # between them a 32-bit float rounds a sum by one part in ten million


class Candidates(NamedTuple):
    """Documents that may be among the best, and memory to find them with."""

    documents: np.ndarray
    reached: np.ndarray
    """Their bounds."""
    bins: np.ndarray
    """How many candidates there were, by bound: they give a lower bound of the k-th best score."""
    sums: np.ndarray
    """[RANGE_SIZE] the bounds of a range; all zero between ranges."""
    words: np.ndarray
    """[RANGE_SIZE / 4] the same memory, four bounds at a time."""
    offsets: np.ndarray
    """[RANGE_SIZE + 1] where in the range candidates are."""
    at: np.ndarray
    """[n, 2] the blocks, small and large, that each term has come to."""
    state: np.ndarray
    """[4] the bound to reach; the lowest bin that, with those above it, holds k candidates; how many these hold; how
    many documents were looked up in the last range."""

    @classmethod
    def of_size(cls, size: int, terms: int) -> Candidates:
        sums = np.zeros(RANGE_SIZE, np.uint16)
        return cls(
            np.empty(size, np.uint32),
            np.empty(size, np.uint16),
            np.empty(BINS, np.int32),
            sums,
            sums.view(np.uint64),
            np.empty(RANGE_SIZE + 1, np.uint16),
            np.empty((terms, 2), np.int64),
            np.empty(4, np.int64),
        )


@njit_no_alloc
def _come_to(ranges, at, end, doc_range):
    """Go on to the first block that is not before a range; returns its place and whether it is of that range."""
    while at < end and ranges[at] < doc_range:
        at += 1
    return at, at < end and ranges[at] == doc_range


@njit_no_alloc
def _next_range(small, large, blocks, at, order, essential, first):
    """The next range, `first` or later, that any of the essential terms has postings in."""
    doc_range = np.int64(NO_RANGE)
    for j in range(essential):
        i = order[j]
        at[i, 0], _ = _come_to(small, at[i, 0], blocks[i, 1], first)
        at[i, 1], _ = _come_to(large, at[i, 1], blocks[i, 3], first)
        if at[i, 0] < blocks[i, 1]:
            doc_range = min(doc_range, np.int64(small[at[i, 0]]))
        if at[i, 1] < blocks[i, 3]:
            doc_range = min(doc_range, np.int64(large[at[i, 1]]))
    return doc_range


@njit_no_alloc
def _count_essential(rest, threshold, share):
    """How many terms, those that can add most first, must take part from the start.

    What the others can add together stays below a share of what is needed. None, if all together cannot add enough.
    """
    n = rest.size - 1
    while n > 1 and rest[n - 1] < threshold * share:
        n -= 1
    return n if rest[0] >= threshold else 0


@njit_no_alloc
def _adapt(share, looked_up, probes, postings):
    """Leave out more terms next time if looking documents up was cheap beside adding up the postings, else fewer."""
    cost = looked_up * probes
    if cost * 4 < postings:
        return min(share * 1.2, 1.0)
    return max(share * 0.7, 0.02) if cost > postings else share


@njit_no_alloc
def _add_term(small, large, lengths, blocks, at, i, s, doc_range, w, rows, factors, sums, offsets):
    """Add a term's bounds in a range, to all sums or only to those of a few documents; False for damage."""
    at[i, 0], here = _come_to(small.ranges, at[i, 0], blocks[i, 1], doc_range)
    if here:
        a, z = block_bounds(small, at[i, 0])
        if z < a:
            return False
        if is_bitmap(small, a, z):
            if offsets.size > RANGE_SIZE:
                add_bitmap(sums, small.postings, a, rows[i], w)
            else:
                add_few_of_bitmap(
                    sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, rows[i], w, s, offsets, False
                )
        elif offsets.size * PROBE < z - a:
            add_few(sums, small, a, z, lengths[s], doc_range << RANGE_BITS, factors[i], w, s, offsets)
        else:
            add_small_block(sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, rows[i], w, s)
    at[i, 1], here = _come_to(large.ranges, at[i, 1], blocks[i, 3], doc_range)
    if here:
        a, z = block_bounds(large, at[i, 1])
        if z < a:
            return False
        if offsets.size * PROBE < z - a:
            add_few(sums, large, a, z, lengths[s], doc_range << RANGE_BITS, factors[i], w, s, offsets)
        else:
            add_large_block(sums, large, a, z, lengths[s], doc_range << RANGE_BITS, factors[i], w, s)
    return True


@njit_no_alloc
def _refine(small, lengths, terms, w, bounds, candidates, doc_range, essential, offsets):
    """Correct the bounds of some offsets, to which the essential terms have added bitmaps."""
    for j in range(essential):
        i = bounds.order[j]
        r, s = candidates.at[i, 0], terms.spaces[i]
        if r < terms.blocks[i, 1] and small.ranges[r] == doc_range:
            a, z = block_bounds(small, r)
            if is_bitmap(small, a, z):
                add_few_of_bitmap(
                    candidates.sums, small.postings, a, z, lengths[s], doc_range << RANGE_BITS, bounds.rows[i], w, s,
                    offsets, True,
                )  # fmt: skip


@njit_no_alloc
def _keep(sums, offsets, n, needed):
    """Keep those of the first n offsets whose sums reach what is needed; returns how many they are."""
    kept_count = 0
    for x in range(n):
        if np.int64(sums[offsets[x]]) >= needed:
            offsets[kept_count] = offsets[x]
            kept_count += 1
    return kept_count


@njit_no_alloc
def _drop_below(documents, reached, size, threshold):
    """Keep the candidates that still reach the threshold; returns how many they are."""
    kept_count = 0
    for j in range(size):
        documents[kept_count], reached[kept_count] = documents[j], reached[j]
        kept_count += reached[j] >= threshold
    return kept_count


@njit_no_alloc
def _bound_range(small, large, lengths, terms, w, bounds, candidates, doc_range, essential, threshold):
    """Find the offsets in a range whose bounds reach the threshold; returns how many they are, -1 for damage.

    The essential terms are added up for all documents. The others, and what can still come of them, decide which
    documents they are looked up for. If there are no others, bounds are not refined yet.
    """
    at, sums, offsets, n = candidates.at, candidates.sums, candidates.offsets, 0
    for j in range(terms.weights.size):
        if j == essential:
            needed = max(threshold - bounds.rest[j], 1)
            n = find_reaching(sums, candidates.words, needed, offsets)
            _refine(small, lengths, terms, w, bounds, candidates, doc_range, essential, offsets[:n])
            n = _keep(sums, offsets, n, needed)
            candidates.state[3] = n
        if j >= essential and n == 0:
            return 0
        i = bounds.order[j]
        lookups = offsets[:n] if j >= essential else offsets  # more than any block has: not worth looking up
        if not _add_term(
            small, large, lengths, terms.blocks, at, i, terms.spaces[i], doc_range, w, bounds.rows, bounds.factors,
            sums, lookups,
        ):  # fmt: skip
            return -1
        if j >= essential:
            n = _keep(sums, offsets, n, threshold - bounds.rest[j + 1])
    return n if essential < terms.weights.size else find_reaching(sums, candidates.words, threshold, offsets)


@njit_no_alloc
def _collect(segment, w, candidates, doc_range, offsets, size, state, k, slack):
    """Make offsets candidates and raise the threshold; returns the number of candidates, -1 for damage.

    The loops avoid branches that a processor cannot predict: most early candidates are dropped later.
    """
    documents, reached, bins, base = candidates.documents, candidates.reached, candidates.bins, doc_range << RANGE_BITS
    threshold, level, above = state[0], state[1], state[2]
    end = size
    for x in range(offsets.size):
        reach = candidates.sums[offsets[x]]
        documents[end], reached[end] = base + np.int64(offsets[x]), reach
        end += reach >= threshold
    if end > size and documents[end - 1] >= segment.documents:
        return -1
    if segment.allowed.size:
        end = _keep_allowed(segment.allowed, documents, reached, size, end)
    clamped = w.norms.shape[1] > w.small.shape[1] // MAX_SMALL
    for x in range(size, end):
        bin = np.int64(reached[x]) >> BIN_BITS
        counts = not clamped or _has_exact_code(segment.lengths, w, documents[x])
        bins[bin] += counts
        above += counts and bin >= level
    while above - bins[level] >= k:
        above -= bins[level]
        level += 1
    state[0], state[1], state[2] = max(threshold, (level << BIN_BITS) - slack), level, above
    return end


@njit_no_alloc
def _collect_in_parts(segment, terms, w, bounds, candidates, doc_range, n, size, state, k, slack):
    """Refine the first n offsets and make them candidates, some at a time: each part raises the threshold."""
    sums, offsets = candidates.sums, candidates.offsets
    for a in range(0, n, PART):
        part = offsets[a : min(a + PART, n)]
        part = part[: _keep(sums, part, part.size, state[0])]
        _refine(segment.small, segment.lengths, terms, w, bounds, candidates, doc_range, terms.weights.size, part)
        size = _collect(segment, w, candidates, doc_range, part, size, state, k, slack)
        if size < 0:
            return -1
    return size


@njit_no_alloc
def _has_exact_code(lengths, w, document):
    """Whether bounds know the document's length codes exactly, so that its bound is close to its score."""
    exact = True
    for s in range(w.last_codes.size):
        exact &= w.linear[s] or lengths[s, document] <= w.last_codes[s]
    return exact


@njit_no_alloc
def _keep_allowed(allowed, documents, reached, first, end):
    kept_count = first
    for x in range(first, end):
        documents[kept_count], reached[kept_count] = documents[x], reached[x]
        kept_count += allowed[documents[x]]
    return kept_count


@njit_no_alloc
def _mean_places(lists, a, z, range_count):
    return (np.float64(lists.starts[z]) - np.float64(lists.starts[a])) / range_count if a < z else 0.0


@njit_no_alloc
def _start(small, large, range_count, terms, bounds, candidates):
    """Put everything at its beginning, and estimate what the terms cost."""
    candidates.bins[:] = 0
    candidates.state[:] = 0
    n = terms.weights.size
    bounds.loads[n] = bounds.probes[n] = 0
    for j in range(n - 1, -1, -1):
        i = bounds.order[j]
        a, z, c, e = terms.blocks[i]
        candidates.at[i, 0], candidates.at[i, 1] = a, c
        load, probe = _mean_places(small, a, z, range_count), PROBE
        if load >= MANY:  # most blocks are bitmaps
            load, probe = BITMAP_LOAD, BITMAP_PROBE
        bounds.loads[j] = bounds.loads[j + 1] + load + _mean_places(large, c, e, range_count)
        bounds.probes[j] = bounds.probes[j + 1] + probe


@njit_no_alloc
def search_ranges(segment, terms, w, unit, bounds, candidates, scoring, sorting, topk, count):
    """Merge a segment's documents into the top k; returns how many documents the top k has, or -1 for damage."""
    k, n, capacity = topk.scores.size, terms.weights.size, candidates.documents.size
    small, large, lengths, state = segment.small, segment.large, segment.lengths, candidates.state
    range_count = lengths.shape[1] >> RANGE_BITS
    _start(small, large, range_count, terms, bounds, candidates)
    size, doc_range, share = 0, -1, SHARE
    # Outside of these, different sums could round to equal scores, so all documents are scored.
    steady = unit >= MIN_SCORE and unit * MAX_SUM <= MAX_SCORE
    slack = 2 * n if steady else NO_RANGE
    while doc_range != NO_RANGE:
        if size == 0:
            known = np.int64(topk.scores[k - 1] / unit) - 1 if count == k and steady else 1
            state[0] = max(state[0], known, 1)
        essential = _count_essential(bounds.rest[: n + 1], state[0], share)
        doc_range = _next_range(
            small.ranges, large.ranges, terms.blocks, candidates.at, bounds.order, essential, doc_range + 1
        )
        if doc_range != NO_RANGE:
            if doc_range >= range_count:
                return -1
            n_found = _bound_range(small, large, lengths, terms, w, bounds, candidates, doc_range, essential, state[0])
            if n_found < 0:
                return -1
            if essential < n:
                size = _collect(segment, w, candidates, doc_range, candidates.offsets[:n_found], size, state, k, slack)
            else:
                size = _collect_in_parts(segment, terms, w, bounds, candidates, doc_range, n_found, size, state, k, slack)
            if size < 0:
                return -1
            if essential < n:
                share = _adapt(share, state[3], bounds.probes[essential], bounds.loads[essential])
            clear(candidates.sums)
        if doc_range == NO_RANGE or size + RANGE_SIZE > capacity:
            size = _drop_below(candidates.documents, candidates.reached, size, state[0])
        if doc_range == NO_RANGE or size + RANGE_SIZE > capacity:
            documents = candidates.documents[:size]
            if not score_documents(small, large, lengths, terms, w, documents, scoring):
                return -1
            count = merge_topk(topk, count, scoring.scores[:size], documents, segment.first, sorting)
            size = 0
    return count
