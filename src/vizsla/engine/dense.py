"""Exact top k by vectors (dense, MaxSim, matches of equal tokens) and by n-grams, alone or added to what terms give.

Inner products are first computed in 32 bits, for a chunk of documents at a time, by the fastest routine available. Each
has an error bound, which depends on the longest vector of its segment. All documents that could be in the top k within
these error bounds are scored again in 64 bits, and the sums are rounded to 32 bits, so the results do not depend on
segments, batches or threads. A document with a vector is a hit, whether it shares a term with the query or not; with
token matching alone, a document is a hit if it shares a token with the query, and so it is with an n-gram.

If a segment has an ANN index and search parameters are given, the candidates come from the index instead: from faiss
for dense vectors, from centroid lists for token vectors. They are scored in the same way: such a search may miss
documents, but every score is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vizsla import stopping
from vizsla.engine.blocks import RANGE_BITS, RANGE_SIZE
from vizsla.engine.match_lists import MatchLists, exact_matches
from vizsla.engine.max_sim import ROUNDING, VANISHING, exact_max_sims, max_sims, score_margin
from vizsla.engine.ngram_scores import best_ngram_scores, ngram_scores, rows_with_ngrams
from vizsla.engine.query import Query
from vizsla.engine.scores import TERMS, Terms, add_exactly
from vizsla.engine.segment import SEGMENTS, Segment
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.token_search import search_lists
from vizsla.engine.vector_indexes import Approximate, Plaid, VectorIndex
from vizsla.engine.vector_rows import MAX_CODE, products
from vizsla.engine.weighting import WEIGHTINGS, Weightings
from vizsla.kernels import njit

_CHUNK = 8192  # documents that are scored together
_FEW = 8  # up to this many queries chunks are longer, since each chunk has some overhead
_HELD = 1 << 27  # scores of whole segments that are held at once
_MAX_SCORE = 1e37  # scores, and products with vectors in 8 bits before they are scaled, that 32 bits can surely hold


@njit(*(f"{segment}, {TERMS}, {WEIGHTINGS}, float64[:], bool[:], uint8[:]" for segment in SEGMENTS))
def _term_scores(segment, terms, w, sums, touched, stop):
    """Add what terms give to each document of a segment; False if it is damaged, or if stopped."""
    sound = True
    for doc_range in range(segment.lengths.shape[1] >> RANGE_BITS):
        if must_stop(stop):
            return False
        a = doc_range << RANGE_BITS
        for i in range(terms.weights.size):
            s, weight, blocks = terms.spaces[i], terms.weights[i], terms.blocks[i]
            codes, here, seen = segment.lengths[s], sums[a : a + RANGE_SIZE], touched[a : a + RANGE_SIZE]
            sound &= add_exactly(segment.small, blocks[0], blocks[1], doc_range, codes, weight, w, s, here, seen)
            sound &= add_exactly(segment.large, blocks[2], blocks[3], doc_range, codes, weight, w, s, here, seen)
    return sound


@njit
def _select(numbers, place):
    """The number that would be at a place if they were sorted; moves them (Hoare)."""
    low, high = 0, numbers.size - 1
    while low < high:
        pivot = numbers[(low + high) >> 1]
        a, z = low, high
        while a <= z:
            while numbers[a] < pivot:
                a += 1
            while numbers[z] > pivot:
                z -= 1
            if a <= z:
                numbers[a], numbers[z] = numbers[z], numbers[a]
                a += 1
                z -= 1
        if z < place < a:
            break
        low, high = (low, z) if place <= z else (a, high)
    return numbers[place]


@njit
def _make_room(lows, highs, places, k, least, spare):
    """Drop documents of a full row that cannot be in the top k; returns how many are left, and the k-th lower bound."""
    for x in range(lows.size):
        spare[x] = lows[x]
    least = max(least, _select(spare, lows.size - k))
    size = 0
    for x in range(lows.size):
        if highs[x] >= least:
            lows[size], highs[size], places[size] = lows[x], highs[x], places[x]
            size += 1
    return size, least


@njit(
    "const float32[:,:], int64, int64, int64, const float64[:], int64, float64[:], float64[:,:], float64[:,:], "
    "int64[:,:], int64[:], float64[:]"
)
def _gather(scores, first, query, column, margins, k, least, lows, highs, places, counts, spare):
    """Collect the documents of a query that may be in its top k, from a column on.

    Returns the column at which the arrays were full, or the number of columns. `spare`: scratch for a row.
    """
    capacity = lows.shape[1]
    for q in range(query, scores.shape[0]):
        margin = margins[q]
        for j in range(column if q == query else 0, scores.shape[1]):
            score = scores[q, j]
            if score + margin < least[q] or score == -np.inf:
                continue
            if counts[q] == capacity:
                counts[q], least[q] = _make_room(lows[q], highs[q], places[q], k, least[q], spare)
                if counts[q] > capacity // 2:
                    return q * scores.shape[1] + j
                if score + margin < least[q]:
                    continue
            n = counts[q]
            lows[q, n], highs[q, n], places[q, n] = score - margin, score + margin, first + j
            counts[q] += 1
    return scores.size


@dataclass(eq=False)
class _ScoreIntervals:
    """Documents that may be among the best of some queries, with the lowest and the highest score each can have.

    Places count through the documents of all segments. `least`: a score that at least k documents reach.
    """

    k: int
    lows: np.ndarray
    highs: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    least: np.ndarray

    @classmethod
    def of(cls, queries: int, k: int) -> _ScoreIntervals:
        capacity = 4 * k + 1024
        return cls(
            k,
            np.empty((queries, capacity)),
            np.empty((queries, capacity)),
            np.empty((queries, capacity), np.int64),
            np.zeros(queries, np.int64),
            np.full(queries, -np.inf),
        )

    def add(self, scores: np.ndarray, margins: np.ndarray, first: int) -> None:
        """[queries, documents] scores of neighbouring documents, and [queries] by how much they may be off.

        The scores of documents that cannot be found are minus infinity.
        """
        q, j = 0, 0
        while True:
            arrays = self.lows, self.highs, self.places
            spare = np.empty(self.lows.shape[1])
            done = _gather(scores, first, q, j, margins, self.k, self.least, *arrays, self.counts, spare)
            if done == scores.size:
                return
            q, j = divmod(done, scores.shape[1])
            self.lows, self.highs, self.places = (np.concatenate([a, np.empty_like(a)], axis=1) for a in arrays)

    def of_query(self, q: int) -> np.ndarray:
        """The places of what may be among the best of a query, ascending."""
        lows, highs, places = (array[q, : self.counts[q]] for array in (self.lows, self.highs, self.places))
        if len(places) > self.k:
            places = places[highs >= np.partition(lows, len(lows) - self.k)[len(lows) - self.k]]
        return np.sort(places)


@dataclass(frozen=True, eq=False)
class _TermScores:
    """The scores of a segment's documents by the terms and n-grams of a query, and which documents have any of them."""

    sums: np.ndarray
    touched: np.ndarray


def search_dense(
    segments: Sequence[Segment],
    queries: Sequence[Query],
    weightings: Weightings,
    k: int,
    masks: Sequence[np.ndarray | None],
    search_params: VectorIndex | None = None,
    threads: int = 1,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the places of the best k documents among those of all segments, and their scores.

    `search_params`: look for candidates in the segments' ANN indexes, where queries are vectors of one namespace alone.
    `threads`: for that, and to score candidates; products of all documents use all processors.
    """
    together = max(_HELD // max(sum(map(len, segments)), 1), 1)
    if len(queries) > together and any(q.matches or q.ngrams for q in queries):  # they hold scores of all documents
        parts = (queries[a : a + together] for a in range(0, len(queries), together))
        how = (weightings, k, masks, search_params, threads)
        return [found for part in parts for found in search_dense(segments, part, *how)]
    intervals = _ScoreIntervals.of(len(queries), k)
    candidates: list[list[np.ndarray]] = [[] for _ in queries]
    term_scores: list[list[_TermScores | None]] = []
    space, token_space = _only_space(queries), _only_token_space(queries)
    first = 0
    for segment, mask in zip(segments, masks, strict=True):
        term_scores.append([_from_terms(segment, query, weightings, mask, k) for query in queries])
        if isinstance(search_params, Approximate) and space is not None and space in segment.ann:
            rows_by_query = _ann_candidates(segment, mask, space, queries, k, search_params)
            for places, rows in zip(candidates, rows_by_query, strict=True):
                places.append(first + rows)
        elif isinstance(search_params, Plaid) and _has_lists(segment, token_space, queries):
            assert token_space is not None
            rows_by_query = _listed_candidates(segment, mask, token_space, queries, k, search_params, threads)
            for places, rows in zip(candidates, rows_by_query, strict=True):
                places.append(first + rows)
        else:
            _search_segment(segment, mask, first, queries, term_scores[-1], intervals)
        first += len(segment)
    chosen = [np.sort(np.concatenate([intervals.of_query(q), *places])) for q, places in enumerate(candidates)]
    return [_scored(segments, term_scores, q, query, chosen[q], k, threads) for q, query in enumerate(queries)]


def _only_space(queries: Sequence[Query]) -> int | None:
    """The one namespace all queries have their dense vectors in, None if there are others, or terms."""
    if any(query.tokens or query.matches or query.ngrams for query in queries):
        return None
    spaces = {s for query in queries for s in query.dense}
    return spaces.pop() if len(spaces) == 1 and not any(len(query.terms) for query in queries) else None


def _ann_candidates(
    segment: Segment, mask: np.ndarray | None, space: int, queries: Sequence[Query], k: int, search_params: Approximate
) -> list[np.ndarray]:
    """For each query the places in a segment of the candidates for its top k, from faiss."""
    has_vector = segment.has_vector[space]
    allowed = mask if has_vector is None else has_vector if mask is None else has_vector & mask
    query_rows = np.stack([q.dense[space] for q in queries]).astype(np.float32)
    return segment.ann[space].candidates(query_rows, k, allowed, search_params)


def _only_token_space(queries: Sequence[Query]) -> int | None:
    """The one namespace all queries have token vectors in, None if there are others, or other kinds."""
    if any(q.dense or q.matches or q.ngrams or len(q.terms) or len(q.tokens) != 1 for q in queries):
        return None
    spaces = {s for query in queries for s in query.tokens}
    return spaces.pop() if len(spaces) == 1 else None


def _has_lists(segment: Segment, space: int | None, queries: Sequence[Query]) -> bool:
    """Whether token vectors can be searched by centroid lists: they exist, and weights and scores allow it."""
    if space is None or segment.tokens[space].lists is None:
        return False
    lengths = [float(np.linalg.norm(query.tokens[space].vectors.astype(np.float64))) for query in queries]
    highest = max(lengths) * max(segment.max_norms[space], 1.0) * MAX_CODE
    return highest < _MAX_SCORE and all(query.tokens[space].weight > 0 for query in queries)


def _listed_candidates(
    segment: Segment,
    mask: np.ndarray | None,
    space: int,
    queries: Sequence[Query],
    k: int,
    search_params: Plaid,
    threads: int,
) -> list[np.ndarray]:
    """For each query the places in a segment of the candidates for its top k, from centroid lists."""
    settings = search_params.nprobe, search_params.depth, search_params.candidates(k)
    vectors = [query.tokens[space].vectors.astype(np.float32) for query in queries]
    return search_lists(segment.tokens[space], vectors, mask, *settings, threads)


def score_places(
    segments: Sequence[Segment], query: Query, weightings: Weightings, places: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of some documents, by their ascending places among those of all segments, and their scores."""
    bounds, term_scores = np.cumsum([0, *map(len, segments)]), []
    for segment, first, end in zip(segments, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mask = np.zeros(len(segment), np.bool_)
        mask[places[slice(*np.searchsorted(places, [first, end]))] - first] = True
        term_scores.append([_from_terms(segment, query, weightings, mask, k)])
    return _scored(segments, term_scores, 0, query, places, k)


def _from_terms(
    segment: Segment, query: Query, weightings: Weightings, mask: np.ndarray | None, k: int
) -> _TermScores | None:
    """The scores of all documents that `mask` allows by terms; n-grams are added where the best k may need them."""
    if len(query.terms) == 0 and not query.ngrams:
        return None
    size = segment.lengths.shape[1]
    sums, touched = np.zeros(size), np.zeros(size, np.bool_)
    if len(query.terms):
        arrays, blocks = segment.open(query.terms)
        terms = Terms(query.weights, query.spaces, blocks)
        if not _term_scores(arrays, terms, weightings, sums, touched, stopping.flag()):
            raise failure()
    for space, ngrams in query.ngrams.items():
        if (
            len(query.ngrams) > 1 or query.vector_spaces or query.matches or ngrams.weight <= 0
        ):  # others add to the sums
            rows = rows_with_ngrams(segment.ngrams[space], ngrams)
            scores = ngram_scores(segment.ngrams[space], rows, ngrams)
        else:
            here = sums[: len(segment)], touched[: len(segment)]
            rows, scores = best_ngram_scores(segment.ngrams[space], ngrams, *here, mask, k)
        sums[rows] += ngrams.weight * scores
        touched[rows] = True
    return _TermScores(sums[: len(segment)], touched[: len(segment)])


def _search_segment(
    segment: Segment,
    mask: np.ndarray | None,
    first: int,
    queries: Sequence[Query],
    term_scores: Sequence[_TermScores | None],
    intervals: _ScoreIntervals,
) -> None:
    spaces = sorted({s for query in queries for s in query.dense})
    zeros = {s: np.zeros(segment.dense[s].shape[1]) for s in spaces}
    vectors = {s: np.stack([q.dense.get(s, zeros[s]) for q in queries]) for s in spaces}
    lists = [MatchLists(segment, query) if query.matches else None for query in queries]
    margins = _margins(segment, queries, vectors, term_scores, lists)
    sound = np.isfinite(margins)  # if 32 bits could overflow, every document is a candidate
    query_rows = {s: np.where(sound[:, None], rows, 0.0).astype(np.float32) for s, rows in vectors.items()}
    has_any_vector = [_has_any_vector(segment, query.vector_spaces) for query in queries]
    chunk = _CHUNK * max(_FEW // len(queries), 1)
    held = []
    for a in range(0, len(segment), chunk):
        stopping.check()
        z = min(a + chunk, len(segment))
        scores = np.zeros((len(queries), z - a), np.float32)
        for s, rows in query_rows.items():
            scores += products(rows, segment.dense[s], a, z)
        _add_max_sims(segment, queries, sound, a, scores)
        for q, (terms, has_vector) in enumerate(zip(term_scores, has_any_vector, strict=True)):
            if terms is not None and sound[q]:
                scores[q] += terms.sums[a:z]
            if has_vector is not None and lists[q] is None:
                is_hit = has_vector[a:z] if terms is None else has_vector[a:z] | terms.touched[a:z]
                scores[q, ~is_hit] = -np.inf
            if mask is not None:
                scores[q, ~mask[a:z]] = -np.inf
        if any(lists):
            held.append(scores)
        else:
            intervals.add(scores, margins, first + a)
    if held:
        scores = np.concatenate(held, axis=1)
        for q, some in enumerate(lists):
            if some is not None:
                hits = _hits(len(segment), has_any_vector[q], term_scores[q])
                margins[q] += some.add(scores[q], hits, intervals.k, intervals.least[q], margins[q])
        intervals.add(scores, margins, first)


def _hits(documents: int, has_vector: np.ndarray | None, terms: _TermScores | None) -> np.ndarray | None:
    """Which documents are hits by a vector or by terms; None where all are."""
    if has_vector is None:
        return None
    return has_vector.copy() if terms is None else has_vector | terms.touched[:documents]


def _has_any_vector(segment: Segment, spaces: Sequence[int]) -> np.ndarray | None:
    """Which documents have a vector in any of some namespaces; None where all have."""
    if not spaces:
        return np.zeros(len(segment), np.bool_)
    masks = [has_vector for s in spaces if (has_vector := segment.has_vector[s]) is not None]
    return np.logical_or.reduce(masks) if len(masks) == len(spaces) else None


def _add_max_sims(segment: Segment, queries: Sequence[Query], sound: np.ndarray, a: int, scores: np.ndarray) -> None:
    """Add what token vectors give to the documents from `a` on, for the queries that 32 bits can hold."""
    for s, rows in segment.tokens.items():
        here = [q for q, query in enumerate(queries) if s in query.tokens and sound[q]]
        if here:
            weights = np.array([queries[q].tokens[s].weight for q in here], np.float32)
            found = max_sims(rows, [queries[q].tokens[s].vectors for q in here], a, a + scores.shape[1])
            scores[here] += weights[:, None] * found


def _margins(
    segment: Segment,
    queries: Sequence[Query],
    vectors: Mapping[int, np.ndarray],
    term_scores: Sequence[_TermScores | None],
    lists: Sequence[MatchLists | None],
) -> np.ndarray:
    """[queries] by how much scores made in 32 bits may be off; infinite where 32 bits cannot hold them."""
    from_terms = np.array([0.0 if terms is None else np.abs(terms.sums).max(initial=0.0) for terms in term_scores])
    margins, highest, bounds = 4 * ROUNDING * from_terms, from_terms.copy(), from_terms.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for s, rows in vectors.items():
            width, max_norm, norms = rows.shape[1], segment.max_norms[s], np.linalg.norm(rows, axis=1)
            margins = margins + (width + 8) * (ROUNDING * norms * max_norm + VANISHING * (1 + max_norm + norms))
            highest = highest + norms * np.maximum(max_norm, MAX_CODE * np.sqrt(width))
            bounds = bounds + norms * max_norm
        for q, query in enumerate(queries):
            for s, (rows, weight) in query.tokens.items():
                max_norm, norms = segment.max_norms[s], np.linalg.norm(rows.astype(np.float64), axis=1)
                margins[q] += abs(weight) * score_margin(rows, max_norm) + VANISHING
                highest[q] += max(abs(weight), 1) * norms.sum() * max(max_norm, MAX_CODE * np.sqrt(rows.shape[1]))
                bounds[q] += abs(weight) * norms.sum() * max_norm
        for q, some in enumerate(lists):
            if some is not None:
                margins[q] += some.margin(bounds[q])
                highest[q] += some.highest
    return np.where(highest < _MAX_SCORE, margins, np.inf)


def _scored(
    segments: Sequence[Segment],
    term_scores: Sequence[Sequence[_TermScores | None]],
    q: int,
    query: Query,
    places: np.ndarray,
    k: int,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of some documents by their scores in 64 bits; equal ones by their places."""
    scores = np.zeros(len(places))
    first = 0
    for segment, from_terms in zip(segments, term_scores, strict=True):
        own = slice(*np.searchsorted(places, [first, first + len(segment)]))
        rows = places[own] - first
        terms = from_terms[q]
        if terms is not None:
            scores[own] += terms.sums[rows]
        for s, vector in query.dense.items():
            scores[own] += np.einsum("ij,j->i", segment.dense[s][rows].astype(np.float64), vector)
        for s, match_query in query.matches.items():
            scores[own] += match_query.weight * exact_matches(segment.matches[s], rows, match_query)[0]
        for s, (token_vectors, weight) in query.tokens.items():
            exact = exact_max_sims(segment.tokens[s], rows, token_vectors, segment.max_norms[s], threads)
            scores[own] += weight * exact[0]
        first += len(segment)
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")[:k]
    return places[order], rounded[order]
