"""The search itself: window after window, by bounds, and the few documents that can be among the best exactly.

The bounds of a whole window are added up; those that reach what is known of the k-th best score are candidates. When
all windows are done, the candidates left, hardly more than k, are scored exactly.

Not all terms take part at first. As in MaxScore, terms that together cannot lift a document to the k-th best score
alone are left out; then they are looked up for the documents they could matter for. Looking up costs much more than
adding up, so only terms with a small share in the score needed are left out, more or fewer from window to window as
it pays, and a run is added up as a whole where too many documents are to be looked up in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.engine.bounds import ROOM, add_few, add_large_run, add_small_run, clear, reaching
from vizsla.engine.lists import BITS, SMALL, WINDOW
from vizsla.engine.ranking import merge_best
from vizsla.engine.scores import run_bounds, score_documents
from vizsla.kernels import still

BIN_BITS = 3
BINS = 1 << (16 - BIN_BITS)  # as many as 16 bits can reach: damaged lists may add up to more than they should
PROBE = 60  # postings added up in the time it takes to look one document up in a run
SHARE = 0.3  # of the score needed: what the terms left out may add together, at first
NO_WINDOW = 1 << 40
LEAST, MOST = 1.2e-38, 3.4e38  # between them a 32-bit float rounds a sum by one part in ten million


class Candidates(NamedTuple):
    """Documents that may be among the best, and memory to find them with."""

    documents: np.ndarray
    reached: np.ndarray
    """Their bounds."""
    bins: np.ndarray
    """How many there were, by bound: so a lower bound of the k-th best score rises with each."""
    sums: np.ndarray
    """[WINDOW] the bounds of a window; all zero between windows."""
    words: np.ndarray
    """[WINDOW / 4] the same memory, four bounds at a time."""
    found: np.ndarray
    """[WINDOW + 1] where in the window candidates are."""
    at: np.ndarray
    """[n, 2] the runs, small and large, that each term has come to."""
    state: np.ndarray
    """[4] the bound to reach; the bin so many candidates lie in or above that it is known; how many do; in the last
    window, how many documents were to be looked up."""

    @classmethod
    def of_size(cls, size: int, terms: int) -> Candidates:
        sums = np.zeros(WINDOW, np.uint16)
        return cls(
            np.empty(size, np.uint32),
            np.empty(size, np.uint16),
            np.empty(BINS, np.int32),
            sums,
            sums.view(np.uint64),
            np.empty(WINDOW + 1, np.uint16),
            np.empty((terms, 2), np.int64),
            np.empty(4, np.int64),
        )


@still
def _come_to(windows, at, end, window):
    """Go on to the first run that is not before a window; gives its place and whether it is of that window."""
    while at < end and windows[at] < window:
        at += 1
    return at, at < end and windows[at] == window


@still
def _next_window(small, large, runs, at, order, essential, first):
    """The next window, `first` or later, that any of the essential terms has postings in."""
    window = np.int64(NO_WINDOW)
    for j in range(essential):
        i = order[j]
        at[i, 0], _ = _come_to(small, at[i, 0], runs[i, 1], first)
        at[i, 1], _ = _come_to(large, at[i, 1], runs[i, 3], first)
        if at[i, 0] < runs[i, 1]:
            window = min(window, np.int64(small[at[i, 0]]))
        if at[i, 1] < runs[i, 3]:
            window = min(window, np.int64(large[at[i, 1]]))
    return window


@still
def _count_essential(rest, threshold, share):
    """How many terms, those that can add most first, must take part from the start.

    What the others can add together stays below a share of what is needed. None, if all together cannot add enough.
    """
    n = rest.size - 1
    while n > 1 and rest[n - 1] < threshold * share:
        n -= 1
    return n if rest[0] >= threshold else 0


@still
def _adapt(share, looked_up, terms, postings):
    """Leave out more terms next time if looking documents up was cheap beside adding up the postings, else fewer."""
    cost = looked_up * PROBE * terms
    if cost * 4 < postings:
        return min(share * 1.2, 1.0)
    return max(share * 0.7, 0.02) if cost > postings else share


@still
def _add_term(small, large, lengths, runs, at, i, s, window, w, rows, factors, sums, found):
    """Add a term's bounds in a window, to all sums or only to those of a few documents; False for damage."""
    at[i, 0], here = _come_to(small.windows, at[i, 0], runs[i, 1], window)
    if here:
        a, z = run_bounds(small, at[i, 0])
        if z < a:
            return False
        if found.size * PROBE < z - a:
            add_few(sums, small, a, z, lengths[s], window << BITS, factors[i], w, s, found)
        else:
            add_small_run(sums, small.postings, a, z, lengths[s], window << BITS, rows[i], w, s)
    at[i, 1], here = _come_to(large.windows, at[i, 1], runs[i, 3], window)
    if here:
        a, z = run_bounds(large, at[i, 1])
        if z < a:
            return False
        if found.size * PROBE < z - a:
            add_few(sums, large, a, z, lengths[s], window << BITS, factors[i], w, s, found)
        else:
            add_large_run(sums, large, a, z, lengths[s], window << BITS, factors[i], w, s)
    return True


@still
def _keep(sums, found, n, needed):
    """Keep those of the places found whose sums reach what is needed; gives how many they are."""
    kept = 0
    for x in range(n):
        if np.int64(sums[found[x]]) >= needed:
            found[kept] = found[x]
            kept += 1
    return kept


@still
def _drop_below(documents, reached, size, threshold):
    """Keep the candidates that still reach the threshold; gives how many they are."""
    kept = 0
    for j in range(size):
        documents[kept], reached[kept] = documents[j], reached[j]
        kept += reached[j] >= threshold
    return kept


@still
def _bound_window(small, large, lengths, terms, w, bounds, candidates, window, essential, threshold):
    """Find the places in a window whose bounds reach the threshold; gives how many they are, -1 for damage.

    The essential terms are added up for all documents. The others, and what can still come of them, decide which
    documents they are looked up for.
    """
    at, sums, found, n = candidates.at, candidates.sums, candidates.found, 0
    for j in range(terms.weights.size):
        i = bounds.order[j]
        if j == essential:
            n = reaching(sums, candidates.words, max(threshold - bounds.rest[j], 1), found)
            candidates.state[3] = n
        if j >= essential and n == 0:
            return 0
        asked = found[:n] if j >= essential else found  # more than any run has: not worth looking up
        if not _add_term(
            small, large, lengths, terms.runs, at, i, terms.spaces[i], window, w, bounds.rows, bounds.factors, sums,
            asked,
        ):  # fmt: skip
            return -1
        if j >= essential:
            n = _keep(sums, found, n, threshold - bounds.rest[j + 1])
    return n if essential < terms.weights.size else reaching(sums, candidates.words, threshold, found)


@still
def _collect(segment, w, candidates, window, n, size, state, k, slack):
    """Make the places found candidates and raise the threshold; gives how many candidates there are, -1 for damage.

    Loops without branches that could not be foreseen: most of what is found early is dropped later.
    """
    documents, reached, bins, base = candidates.documents, candidates.reached, candidates.bins, window << BITS
    threshold, level, above = state[0], state[1], state[2]
    end = size
    for x in range(n):
        reach = candidates.sums[candidates.found[x]]
        documents[end], reached[end] = base + np.int64(candidates.found[x]), reach
        end += reach >= threshold
    if end > size and documents[end - 1] >= segment.documents:
        return -1
    if segment.allowed.size:
        end = _keep_allowed(segment.allowed, documents, reached, size, end)
    clamped = w.norms.shape[1] > w.small.shape[1] // SMALL
    for x in range(size, end):
        bin = np.int64(reached[x]) >> BIN_BITS
        counts = not clamped or _is_told_apart(segment.lengths, w, documents[x])
        bins[bin] += counts
        above += counts and bin >= level
    while above - bins[level] >= k:
        above -= bins[level]
        level += 1
    state[0], state[1], state[2] = max(threshold, (level << BIN_BITS) - slack), level, above
    return end


@still
def _is_told_apart(lengths, w, document):
    """Whether a document's length codes are among those bounds tell apart, so that its bound is close to its score."""
    apart = True
    for s in range(w.last_codes.size):
        apart &= w.linear[s] or lengths[s, document] <= w.last_codes[s]
    return apart


@still
def _keep_allowed(allowed, documents, reached, first, end):
    kept = first
    for x in range(first, end):
        documents[kept], reached[kept] = documents[x], reached[x]
        kept += allowed[documents[x]]
    return kept


@still
def _mean_postings(lists, a, z, windows):
    return (np.float64(lists.starts[z]) - np.float64(lists.starts[a])) / windows if a < z else 0.0


@still
def _start(small, large, windows, terms, bounds, candidates):
    """Put everything at its beginning; what the terms from a place on have in a window on average goes to `loads`."""
    candidates.bins[:] = 0
    candidates.state[:] = 0
    n = terms.weights.size
    bounds.loads[n] = 0
    for j in range(n - 1, -1, -1):
        i = bounds.order[j]
        a, z, c, e = terms.runs[i]
        candidates.at[i, 0], candidates.at[i, 1] = a, c
        bounds.loads[j] = (
            bounds.loads[j + 1] + _mean_postings(small, a, z, windows) + _mean_postings(large, c, e, windows)
        )


@still
def search_windows(segment, terms, w, unit, bounds, candidates, scoring, ranking, best, count):
    """Bring the best up to date with a segment; gives how many there are, or -1 for damage."""
    k, n, room = best.scores.size, terms.weights.size, candidates.documents.size
    small, large, lengths, state = segment.small, segment.large, segment.lengths, candidates.state
    windows = lengths.shape[1] >> BITS
    _start(small, large, windows, terms, bounds, candidates)
    size, window, share = 0, -1, SHARE
    steady = unit >= LEAST and unit * ROOM <= MOST  # else different sums could be equal scores: all are scored
    slack = 2 * n if steady else NO_WINDOW
    while window != NO_WINDOW:
        if size == 0:
            known = np.int64(best.scores[k - 1] / unit) - 1 if count == k and steady else 1
            state[0] = max(state[0], known, 1)
        essential = _count_essential(bounds.rest[: n + 1], state[0], share)
        window = _next_window(
            small.windows, large.windows, terms.runs, candidates.at, bounds.order, essential, window + 1
        )
        if window != NO_WINDOW:
            if window >= windows:
                return -1
            found = _bound_window(small, large, lengths, terms, w, bounds, candidates, window, essential, state[0])
            size = _collect(segment, w, candidates, window, found, size, state, k, slack)
            if found < 0 or size < 0:
                return -1
            if essential < n:
                share = _adapt(share, state[3], n - essential, bounds.loads[essential])
            clear(candidates.sums)
        if window == NO_WINDOW or size + WINDOW > room:
            size = _drop_below(candidates.documents, candidates.reached, size, state[0])
        if window == NO_WINDOW or size + WINDOW > room:
            documents = candidates.documents[:size]
            if not score_documents(small, large, lengths, terms, w, documents, scoring):
                return -1
            count = merge_best(best, count, scoring.scores[:size], documents, segment.first, ranking)
            size = 0
    return count
