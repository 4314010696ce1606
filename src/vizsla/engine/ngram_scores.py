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
from vizsla.engine.suffix_array import FIRST, TOKEN_TYPES, SuffixArray
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
    return _scored(array, rows, query)[0]


def ngram_shares(array: SuffixArray, row: int, query: NgramQuery) -> np.ndarray:
    """[n-grams] what each adds to the score of a document, without the query's weight; 0 if it does not count."""
    return _scored(array, np.array([row]), query)[1]


def _scored(array: SuffixArray, rows: np.ndarray, query: NgramQuery) -> tuple[np.ndarray, np.ndarray]:
    scores, shares = np.zeros(len(rows)), np.zeros(len(query))
    if not len(rows) or not len(query):
        return scores, shares
    size = int(query.tokens.max()) + 1
    first, after = _chains(query, size)
    longest = int(array.sizes()[rows].max(initial=0))
    places = np.empty((longest * int(np.diff(query.starts).max()), 2), np.int64)
    memory = (
        first,
        after,
        np.full(len(query), -1, np.int64),
        places,
        np.zeros(size, np.int64),
        np.empty(longest, np.bool_),
    )
    numbers = np.ascontiguousarray(rows, np.int64)
    done = _score_rows(
        array.tokens, array.starts, numbers, query.tokens, query.starts, query.weights, query.overlap, *memory, scores,
        shares, stopping.flag(),
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

    `heads`, `places`: memory for the places of n-grams in a row. `seen`: which row last had a token in an n-gram that
    counts. `taken`: which places of a row belong to heavier n-grams.
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
                shares[i] = weights[i] * (1.0 - overlap + overlap * _new_share(ngram_tokens, a, z, seen, r + 1))
                scores[r] += shares[i]
                for y in range(a, z):
                    seen[ngram_tokens[y]] = r + 1
            x = heads[i]
            while x >= 0:
                taken[places[x, 0] : places[x, 0] + z - a] = True
                x = places[x, 1]
    return True
