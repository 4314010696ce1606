"""The search of one segment: bounds for one document range after the other, and exact scores for a few documents.

The bounds of a whole range are added up; documents whose bound reaches the current threshold, a lower bound of the k-th
best score, become candidates. After the last range the remaining candidates, few more than k, are scored exactly.

As in MaxScore, terms that even together cannot lift a document to the k-th best score are non-essential: they are left
out at first, and then looked up only for documents whose rank they could change. Looking up costs much more than adding
up, so only terms that contribute a small share of the threshold are left out; the share adapts from range to range. A
block is added up as a whole if too many documents would have to be looked up in it.
"""

from __future__ import annotations

import numpy as np

from vizsla.engine.blocks import MANY, MAX_SMALL, RANGE_BITS, RANGE_SIZE
from vizsla.engine.bounds import MAX_SUM, clear
from vizsla.engine.first_threshold import guess_threshold
from vizsla.engine.range_bounds import BIN_BITS, PROBE, advance_to, bound_range, keep, refine
from vizsla.engine.scores import score_documents
from vizsla.engine.stop_flag import must_stop
from vizsla.engine.topk import merge_topk
from vizsla.kernels import njit, njit_inlined

BITMAP_PROBE = 12  # the cost of looking up a document in a bitmap, in postings added up
BITMAP_LOAD = 800  # the cost of adding a whole bitmap, in postings added up
SHARE = 0.3  # the initial share of the threshold that non-essential terms may contribute together
PART = 512  # candidates that are refined together
NO_RANGE = 1 << 40
NOT_PROVEN = -2
EARLY, BEHIND = 5, 0.7  # give up a guess after a fifth of the ranges with less than 70% of the expected candidates
MIN_SCORE, MAX_SCORE = 1.2e-38, 3.4e38  # between them a 32-bit float rounds a sum by one part in ten million


@njit_inlined
def _next_range(small, large, blocks, at, order, essential, first):
    """The next range, `first` or later, that any of the essential terms has postings in."""
    doc_range = np.int64(NO_RANGE)
    for j in range(essential):
        i = order[j]
        at[i, 0], _ = advance_to(small, at[i, 0], blocks[i, 1], first)
        at[i, 1], _ = advance_to(large, at[i, 1], blocks[i, 3], first)
        if at[i, 0] < blocks[i, 1]:
            doc_range = min(doc_range, np.int64(small[at[i, 0]]))
        if at[i, 1] < blocks[i, 3]:
            doc_range = min(doc_range, np.int64(large[at[i, 1]]))
    return doc_range


@njit
def _count_essential(rest, threshold, share):
    """The number of essential terms; terms are ordered by the most they can add.

    The other terms together stay below a share of the threshold. 0 if all terms together cannot reach the threshold.
    """
    n = rest.size - 1
    while n > 1 and rest[n - 1] < threshold * share:
        n -= 1
    return n if rest[0] >= threshold else 0


@njit
def _adapt(share, looked_up, probes, postings):
    """The next share: higher if looking documents up was cheap compared with adding up postings, else lower."""
    cost = looked_up * probes
    if cost * 4 < postings:
        return min(share * 1.2, 1.0)
    return max(share * 0.7, 0.02) if cost > postings else share


@njit
def _drop_below(documents, reached, size, threshold):
    """Keep the candidates that still reach the threshold; returns how many they are."""
    kept_count = 0
    for j in range(size):
        documents[kept_count], reached[kept_count] = documents[j], reached[j]
        kept_count += reached[j] >= threshold
    return kept_count


@njit_inlined
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
    state[4] += end - size
    clamped = _is_clamped(w)
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


@njit_inlined
def _collect_in_parts(segment, terms, w, bounds, candidates, doc_range, n, to_refine, size, state, k, slack):
    """Make the first n offsets candidates, some at a time: each part raises the threshold for the next.

    `to_refine`: whether the bounds are those of all terms, not refined yet.
    """
    sums, offsets = candidates.sums, candidates.offsets
    for a in range(0, n, PART):
        part = offsets[a : min(a + PART, n)]
        part = part[: keep(sums, part, part.size, state[0])]
        if to_refine:
            refine(segment.small, segment.lengths, terms, w, bounds, candidates, doc_range, terms.weights.size, part)
        size = _collect(segment, w, candidates, doc_range, part, size, state, k, slack)
        if size < 0:
            return -1
    return size


@njit
def _is_clamped(w):
    """Whether there are more length codes than bounds distinguish."""
    return w.norms.shape[1] > w.small.shape[1] // MAX_SMALL


@njit
def _has_exact_code(lengths, w, document):
    """Whether bounds know the document's length codes exactly, so that its bound is close to its score."""
    exact = True
    for s in range(w.last_codes.size):
        exact &= w.linear[s] or lengths[s, document] <= w.last_codes[s]
    return exact


@njit
def _keep_allowed(allowed, documents, reached, first, end):
    kept_count = first
    for x in range(first, end):
        documents[kept_count], reached[kept_count] = documents[x], reached[x]
        kept_count += allowed[documents[x]]
    return kept_count


@njit
def _mean_places(lists, a, z, range_count):
    return (np.float64(lists.starts[z]) - np.float64(lists.starts[a])) / range_count if a < z else 0.0


@njit
def _start(small, large, range_count, terms, bounds, candidates):
    """Reset all positions to the first block, and estimate the costs of the terms."""
    candidates.bins[:] = 0
    candidates.state[:] = 0
    n = terms.weights.size
    bounds.loads[n] = bounds.probes[n] = 0
    for j in range(n - 1, -1, -1):
        i = bounds.order[j]
        own = terms.blocks[i]
        a, z, c, e = own[0], own[1], own[2], own[3]
        candidates.at[i, 0], candidates.at[i, 1] = a, c
        load, probe = _mean_places(small, a, z, range_count), PROBE
        if load >= MANY:  # most blocks are bitmaps
            load, probe = BITMAP_LOAD, BITMAP_PROBE
        bounds.loads[j] = bounds.loads[j + 1] + load + _mean_places(large, c, e, range_count)
        bounds.probes[j] = bounds.probes[j + 1] + probe


@njit
def _is_behind(found, k, done, range_count):
    """Whether so few candidates were found in the first ranges that there will hardly be k."""
    return done * EARLY >= range_count and (found + 2) * range_count < BEHIND * k * done


@njit
def _search_from(segment, terms, w, unit, bounds, candidates, scoring, sorting, topk, count, guess, stop):
    """Merge a segment's documents into the top k; returns how many documents the top k has.

    Documents below `guess`, an estimate of the k-th best score, are left out; if it was too high, NOT_PROVEN is
    returned and the top k is unchanged. Returns -1 for damage or if stopped; in the latter case `candidates` is clean.
    """
    k, n, capacity = topk.scores.size, terms.weights.size, candidates.documents.size
    small, large, lengths, state = segment.small, segment.large, segment.lengths, candidates.state
    range_count = lengths.shape[1] >> RANGE_BITS
    _start(small, large, range_count, terms, bounds, candidates)
    size, doc_range, share, known = 0, -1, SHARE, np.int64(1)
    # Outside of these, different sums could round to equal scores, so all documents are scored.
    steady = unit >= MIN_SCORE and unit * MAX_SUM <= MAX_SCORE
    slack = 2 * n if steady else NO_RANGE
    while doc_range != NO_RANGE:
        if size == 0:
            known = np.int64(topk.scores[k - 1] / unit) - 1 if count == k and steady else np.int64(1)
            state[0] = max(state[0], known, guess, 1)
        essential = _count_essential(bounds.rest[: n + 1], state[0], share)
        doc_range = _next_range(
            small.ranges, large.ranges, terms.blocks, candidates.at, bounds.order, essential, doc_range + 1
        )
        if doc_range != NO_RANGE:
            if doc_range >= range_count or must_stop(stop):
                return -1
            n_found = bound_range(small, large, lengths, terms, w, bounds, candidates, doc_range, essential, state[0])
            if n_found < 0:
                return -1
            size = _collect_in_parts(
                segment, terms, w, bounds, candidates, doc_range, n_found, essential == n, size, state, k, slack
            )
            if size < 0:
                return -1
            if essential < n:
                share = _adapt(share, state[3], bounds.probes[essential], bounds.loads[essential])
            clear(candidates.sums)
            if guess > 0 and _is_behind(state[4], k, doc_range + 1, range_count):
                return NOT_PROVEN
        if doc_range == NO_RANGE or size + RANGE_SIZE > capacity:
            size = _drop_below(candidates.documents, candidates.reached, size, state[0])
        if doc_range == NO_RANGE or size + RANGE_SIZE > capacity:
            if max(known, (state[1] << BIN_BITS) - slack) < guess:
                return NOT_PROVEN
            documents = candidates.documents[:size]
            if not score_documents(small, large, lengths, terms, w, documents, scoring):
                return -1
            count = merge_topk(topk, count, scoring.scores[:size], documents, segment.first, sorting)
            size = 0
    return count


@njit
def search_ranges(segment, terms, w, unit, bounds, candidates, scoring, sorting, topk, count, stop):
    """Merge a segment's documents into the top k; returns how many it has then, or -1 for damage or if stopped."""
    guess = np.int64(0)
    if count < topk.scores.size and unit >= MIN_SCORE and unit * MAX_SUM <= MAX_SCORE and not _is_clamped(w):
        _start(segment.small, segment.large, segment.lengths.shape[1] >> RANGE_BITS, terms, bounds, candidates)
        guess = guess_threshold(segment, terms, w, bounds, candidates, topk.scores.size)
    found = np.int64(NOT_PROVEN)
    while found == NOT_PROVEN:
        found = _search_from(segment, terms, w, unit, bounds, candidates, scoring, sorting, topk, count, guess, stop)
        guess = np.int64(0)
    return found
