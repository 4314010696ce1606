"""SEAL's scores: those of the weighted n-grams of a query that a document has (Bevilacqua and others, 2022).

N-grams are looked at from the heaviest on. One counts for a document if at least one of its places there shares no
token with a place of a heavier one. Of its weight it gives the share that is new: `1 - overlap`, plus `overlap` times
the share of its different tokens that no heavier n-gram that counts has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla import stopping
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.suffix_array import FIRST, TOKEN_TYPES, SuffixArray, row_of
from vizsla.kernels import njit


@dataclass(frozen=True, eq=False)
class NgramQuery:
    """N-grams with weights, heaviest first, and what their score is multiplied by."""

    tokens: np.ndarray
    """int64: the tokens of all n-grams, end to end."""
    starts: np.ndarray
    """[n + 1] int64: where each begins."""
    weights: np.ndarray
    """[n] descending, above 0."""
    overlap: float
    """By what share the weight of an n-gram is reduced if all its tokens are in heavier ones."""
    weight: float = 1.0

    @classmethod
    def of(
        cls, ngrams: Sequence[Sequence[int]], weights: Sequence[float], overlap: float, weight: float = 1.0
    ) -> NgramQuery:
        """Different n-grams in any order; of equal weights the first counts as the heavier.

        >>> query = NgramQuery.of([[5], [6, 7]], [1.0, 2.0], 0.5)
        >>> query.tokens.tolist(), query.starts.tolist(), query.weights.tolist()
        ([6, 7, 5], [0, 2, 3], [2.0, 1.0])
        """
        order = np.argsort(-np.asarray(weights, np.float64), kind="stable").tolist()
        tokens = np.array([token for i in order for token in ngrams[i]], np.int64)
        starts = np.cumsum([0, *(len(ngrams[i]) for i in order)]).astype(np.int64)
        return cls(
            np.array(tokens, np.int64), starts, np.array([weights[i] for i in order], np.float64), overlap, weight
        )

    def __len__(self) -> int:
        return len(self.weights)

    def ngram(self, i: int) -> np.ndarray:
        """The tokens of the i-th."""
        return self.tokens[self.starts[i] : self.starts[i + 1]]


def rows_with_ngrams(array: SuffixArray, query: NgramQuery) -> np.ndarray:
    """The documents of a segment that have any of the n-grams, ascending."""
    hits = np.zeros(len(array), np.bool_)
    for i in range(len(query)):
        array.mark_documents(array.find(query.ngram(i)), hits)
    return np.flatnonzero(hits)


def ngram_scores(array: SuffixArray, rows: np.ndarray, query: NgramQuery) -> np.ndarray:
    """[rows] the scores of some documents, without the query's weight.

    >>> array = SuffixArray.of([[5, 6, 7, 0], [7, 0], [6, 0]])
    >>> ngram_scores(array, np.arange(3), NgramQuery.of([[5, 6], [7], [6]], [4.0, 2.0, 1.0], 0.5)).tolist()
    [6.0, 2.0, 1.0]
    """
    return _Scorer(array, query).scores(rows)[0]


def ngram_shares(array: SuffixArray, row: int, query: NgramQuery) -> np.ndarray:
    """[n-grams] what each adds to the score of a document, without the query's weight; 0 if it does not count."""
    return _Scorer(array, query).scores(np.array([row]))[1]


def best_ngram_scores(
    array: SuffixArray, query: NgramQuery, sums: np.ndarray, touched: np.ndarray, mask: np.ndarray | None, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The documents, ascending, that may be among the best k by `sums` with the query's scores added; and these scores.

    The best k are of the documents that have an n-gram or are `touched`, and that `mask` allows. Scores are without the
    query's weight, which is above 0. Documents that are left out may have n-grams, too.

    >>> array = SuffixArray.of([[5, 6, 0], [6, 0], [7, 0]]).built()
    >>> query = NgramQuery.of([[5, 6], [6]], [4.0, 1.0], 0.5)
    >>> rows, scores = best_ngram_scores(array, query, np.zeros(3), np.zeros(3, np.bool_), None, 1)
    >>> rows.tolist(), scores.tolist()
    ([0], [4.0])
    """
    bounds = _Bounds(array, query, sums, touched, np.ones(len(array), np.bool_) if mask is None else mask, k)
    bounds.begin()
    while len(rows := bounds.candidates()):
        if not bounds.look_up(_WORTH * len(rows)):
            bounds.score(rows)
    rows = np.flatnonzero(bounds.scores)
    return rows, bounds.scores[rows]


_WORTH = 5  # places that are looked up in the time in which a document is scored
_BATCH = 256  # documents that are scored together, at least
_SLACK = 1e-6  # by what share a bound may be too low; scores are rounded to 32 bits later


class _Bounds:
    """Upper bounds of the scores of a segment's documents.

    Each n-gram that is looked up adds its weight to the bound of the documents that have it; the weights of all others
    together are a bound of what these add to any document. Documents whose bound is below the k-th best score so far
    are not scored. N-grams with much weight for few places are looked up first, so frequent ones with little weight
    often never are (Turtle and Flood, 1995, did this with terms).
    """

    def __init__(
        self, array: SuffixArray, query: NgramQuery, sums: np.ndarray, touched: np.ndarray, allowed: np.ndarray, k: int
    ) -> None:
        self._array, self._query, self._sums, self._touched, self._k = array, query, sums, touched, max(k, 1)
        places = [array.find(query.ngram(i)) for i in range(len(query))]
        counts, weights = np.array([array.count(found) for found in places], np.int64), query.weight * query.weights
        order = np.argsort(counts / weights, kind="stable")
        order = order[counts[order] > 0]
        self._places = [places[i] for i in order.tolist()]
        self._before = np.append(0, np.cumsum(counts[order]))  # places of the n-grams before each
        self._rest = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)  # the weight of those from each on
        self._known = 0  # n-grams that have been looked up
        self._bounds, self._last = np.array(sums), np.full(len(array), -1, np.int64)
        self._open = np.array(allowed)  # documents that have not been scored
        self._best = np.zeros(0)  # the best k scores so far
        self._scorer = _Scorer(array, query)
        self.scores = np.zeros(len(array))

    def begin(self) -> None:
        """Look n-grams up until k documents can be found, and score those with the highest bounds."""
        while self._known < len(self._places) and np.count_nonzero(self._hits) < self._k:
            self._look_up_to(self._within(self._before[self._known] + self._k))
        self.score(np.flatnonzero(self._hits))

    def candidates(self) -> np.ndarray:
        """The documents that have not been scored, and may be among the best k."""
        may = self._open & (self._bounds + self._rest[self._known] >= self._least)
        if self._known == len(self._places):
            may &= self._last >= 0
        return np.flatnonzero(may)

    def look_up(self, places: int) -> bool:
        """Look more n-grams up; False if too little can be known by looking at so many places."""
        needed = int(np.searchsorted(-self._rest, -self._least, side="right"))  # others are too light by themselves
        target = min(max(needed, self._known + 1), len(self._places))
        if self._known == len(self._places) or self._before[target] - self._before[self._known] > places:
            return False
        self._look_up_to(max(target, self._within(self._before[self._known] + places // 4)))
        return True

    def score(self, rows: np.ndarray) -> None:
        """Score those of some documents that have the highest bounds."""
        most = max(_BATCH, self._k)
        if len(rows) > most:
            rows = rows[np.argpartition(-self._bounds[rows], most)[:most]]
        self.scores[rows] = self._scorer.scores(rows)[0]
        self._open[rows] = False
        found = rows[self._touched[rows] | (self.scores[rows] > 0)]
        self._best = np.append(self._best, self._sums[found] + self._query.weight * self.scores[found])
        if len(self._best) > self._k:
            self._best = np.partition(self._best, -self._k)[-self._k :]

    @property
    def _hits(self) -> np.ndarray:
        return self._open & (self._touched | (self._last >= 0))

    @property
    def _least(self) -> float:
        """What a document needs to be among the best k."""
        if len(self._best) < self._k:
            return -np.inf
        least = float(self._best.min())
        return least - _SLACK * abs(least)

    def _within(self, places: int) -> int:
        """How many n-grams have so many places together, and at least one that has not been looked up."""
        return max(int(np.searchsorted(self._before, places, side="right")) - 1, self._known + 1)

    def _look_up_to(self, number: int) -> None:
        array = self._array
        for i in range(self._known, number):
            weight = self._rest[i] - self._rest[i + 1]
            first, end, _ = self._places[i]
            done = _raise_bounds(
                array.starts,
                array.guides,
                array.order,
                first,
                end,
                i,
                weight,
                self._last,
                self._bounds,
                stopping.flag(),
            )
            if not done:
                raise failure()
        self._known = number


class _Scorer:
    """Scores documents of a segment by reading their tokens."""

    def __init__(self, array: SuffixArray, query: NgramQuery) -> None:
        self._array, self._query = array, query
        if len(query):
            size, longest = int(query.tokens.max()) + 1, int(array.sizes().max(initial=0))
            places = np.empty((longest * int(np.diff(query.starts).max()), 2), np.int64)
            heads = np.full(len(query), -1, np.int64)
            self._memory = *_chains(query, size), heads, places, np.zeros(size, np.int64), np.empty(longest, np.bool_)

    def scores(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[rows] scores, and what each n-gram adds to the last of them. A document is scored once."""
        scores, shares, array, query = np.zeros(len(rows)), np.zeros(len(self._query)), self._array, self._query
        if len(rows) and len(query):
            done = _score_rows(
                array.tokens, array.starts, np.ascontiguousarray(rows, np.int64), query.tokens, query.starts,
                query.weights, query.overlap, *self._memory, scores, shares, stopping.flag(),
            )  # fmt: skip
            if not done:
                raise failure()
        return scores, shares


def _chains(query: NgramQuery, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams by their first token: the first of each token, and the next with the same one; -1 for none."""
    first, after = np.full(size, -1, np.int64), np.full(len(query), -1, np.int64)
    for i in reversed(range(len(query))):
        token = query.tokens[query.starts[i]]
        after[i], first[token] = first[token], i
    return first, after


@njit("const int64[:], const int64[:], const uint32[:], int64, int64, int64, float64, int64[:], float64[:], uint8[:]")
def _raise_bounds(starts, guides, suffixes, first, end, number, weight, last, bounds, stop):
    """Add an n-gram's weight once to each document of a range of ranks; False for damage, or if stopped.

    `last`: the number of the n-gram that each document has had last.
    """
    if not 0 <= first <= end <= suffixes.size or last.size != starts.size - 1 or bounds.size != last.size:
        return False
    for rank in range(first, end):
        if (rank & 0xFFFF) == 0 and must_stop(stop):
            return False
        row = row_of(starts, guides, np.int64(suffixes[rank]))
        if not 0 <= row < last.size:
            return False
        if last[row] != number:
            last[row] = number
            bounds[row] += weight
    return not must_stop(stop)


@njit
def _occurs(tokens, place, end, ngram_tokens, a, z):
    if place + (z - a) > end:
        return False
    x = a
    while x < z and tokens[place + x - a] == ngram_tokens[x]:
        x += 1
    return x == z


@njit
def _new_share(ngram_tokens, a, z, seen, stamp):
    """The share of an n-gram's different tokens that are new; all are if it has none but marks."""
    size, new = 0, 0
    for x in range(a, z):
        token = ngram_tokens[x]
        repeated = token < FIRST
        for y in range(a, x):
            repeated |= ngram_tokens[y] == token
        if not repeated:
            size += 1
            new += seen[token] != stamp
    return 1.0 if size == 0 else new / size


@njit
def _find_places(tokens, start, end, ngram_tokens, ngram_starts, first, after, heads, places):
    """Put the places of n-grams in a row into chains, one for each n-gram; returns whether there was room."""
    count = 0
    for p in range(start, end):
        token = np.int64(tokens[p])
        i = first[token] if token < first.size else np.int64(-1)
        while i >= 0:
            if _occurs(tokens, p, end, ngram_tokens, ngram_starts[i], ngram_starts[i + 1]):
                if count == places.shape[0]:
                    return False
                places[count, 0], places[count, 1] = p - start, heads[i]
                heads[i] = count
                count += 1
            i = after[i]
    return True


@njit(
    *(
        f"const {kind}[:], const int64[:], const int64[:], const int64[:], const int64[:], const float64[:], float64, "
        "const int64[:], const int64[:], int64[:], int64[:,:], int64[:], bool[:], float64[:], float64[:], uint8[:]"
        for kind in TOKEN_TYPES
    )
)
def _score_rows(
    tokens, starts, rows, ngram_tokens, ngram_starts, weights, overlap, first, after, heads, places, seen, taken,
    scores, shares, stop,
):  # fmt: skip
    """Score rows; False for damage, or if stopped. `shares`: of each n-gram in the last row.

    `heads`, `places`: memory for the places of n-grams in a row. `seen`: one more than the row that last
    had a token in an n-gram that counts. `taken`: which places of a row belong to heavier n-grams.
    """
    for r in range(rows.size):
        if must_stop(stop) or not 0 <= rows[r] < starts.size - 1:
            return False
        start, end = starts[rows[r]], starts[rows[r] + 1]
        if not 0 <= start <= end <= tokens.size or end - start > taken.size:
            return False
        taken[: end - start] = False
        heads[:] = -1
        if not _find_places(tokens, start, end, ngram_tokens, ngram_starts, first, after, heads, places):
            return False
        for i in range(weights.size):
            shares[i] = 0.0
            if heads[i] < 0:
                continue
            a, z = ngram_starts[i], ngram_starts[i + 1]
            is_free, x = False, heads[i]
            while x >= 0 and not is_free:
                is_free = True
                for p in range(places[x, 0], places[x, 0] + z - a):
                    is_free &= not taken[p]
                x = places[x, 1]
            if is_free:
                shares[i] = weights[i] * (1.0 - overlap + overlap * _new_share(ngram_tokens, a, z, seen, rows[r] + 1))
                scores[r] += shares[i]
                for y in range(a, z):
                    seen[ngram_tokens[y]] = rows[r] + 1
            x = heads[i]
            while x >= 0:
                taken[places[x, 0] : places[x, 0] + z - a] = True
                x = places[x, 1]
    return True
