"""Candidates of late interaction by centroids: which documents may be among the best k, without reading all of them.

1. The query's vectors are multiplied with all centroids. Each vector probes the lists of its best `nprobe` centroids.
   A document in such a list gains the difference between the centroid's score and that of the worst probed centroid.
2. The `depth` documents with the highest gains are refined: each query vector is multiplied with the document tokens
   whose centroid it probes. If a document has no such token, the score of the worst probed centroid is used instead.
3. The documents with the best sums are the candidates; the caller scores them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.engine.arrays import aligned, read_only
from vizsla.engine.products import multiply, padded
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.stored_rows import STORED_ROWS, read_row
from vizsla.engine.threads import in_threads, pool
from vizsla.engine.token_rows import TokenLists, TokenRows
from vizsla.kernels import njit, njit_fastsum
from vizsla.stopping import carried, flag

_BINS = 4096
_MULTIPLIED, _PROBING, _SUMMED, _REFINED = 2048, 8, 20_000, 64
"""The least work for a thread, in centroids, query vectors, documents in lists, and documents to refine."""


@njit("const float32[:,:], int64, int64, float32[:], float32[:,:], int64[:,:]")
def _best_centroids(scores, first, count, least, best, which):
    """The `count` best centroids of the query vectors from `first` on, highest first; a heap of the best for each.

    `least`: memory for the lowest of each heap.
    """
    queries = best.shape[0]
    for c in range(scores.shape[0]):
        if c < count:
            for q in range(queries):
                _sift_up(best[q], which[q], c, scores[c, first + q], c)
            if c == count - 1:
                for q in range(queries):
                    least[q] = best[q, 0]
            continue
        higher = 0
        for q in range(queries):
            higher += scores[c, first + q] > least[q]
        if higher == 0:
            continue
        for q in range(queries):
            if scores[c, first + q] > least[q]:
                _sift_down(best[q], which[q], count, scores[c, first + q], c)
                least[q] = best[q, 0]
    for q in range(queries):
        for size in range(count - 1, 0, -1):  # the lowest goes to the end, and so on
            score, c = best[q, size], which[q, size]
            best[q, size], which[q, size] = best[q, 0], which[q, 0]
            _sift_down(best[q], which[q], size, score, c)


@njit
def _sift_up(heap, which, place, score, c):
    while place > 0 and heap[(place - 1) >> 1] > score:
        heap[place], which[place] = heap[(place - 1) >> 1], which[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place], which[place] = score, c


@njit
def _sift_down(heap, which, size, score, c):
    """Replace the lowest of the first `size`."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= score:
            break
        heap[place], which[place] = heap[child], which[child]
        place = child
    heap[place], which[place] = score, c


@njit(
    "const float32[:,:], const int64[:,:], const int64[:], const uint32[:], int64, int64, float32[:], int32[:], "
    "int64[:], uint8[:]"
)
def _probe(best, which, starts, documents, first, last, gains, marks, met, stop):
    """Add up what the documents from `first` to `last` gain by the lists of the best centroids.

    Gives how many are met, and -1 for damage or if stopped.
    """
    count, probes = 0, best.shape[1]
    for q in range(best.shape[0]):
        if must_stop(stop):
            return -1
        mark, worst = q + 1, best[q, probes - 1]
        for p in range(probes):
            gain = best[q, p] - worst
            end = starts[which[q, p] + 1]
            for x in range(_first_from(documents, starts[which[q, p]], end, first), end):
                d = documents[x]
                if d >= last:
                    if d >= gains.size:
                        return -1
                    break
                if d < first:
                    return -1
                if marks[d] == mark:
                    continue
                if marks[d] == 0:
                    met[first + count] = d
                    count += 1
                marks[d] = mark
                gains[d] += gain
    return count


@njit
def _first_from(documents, start, end, least):
    """Where the documents of a list begin that are `least` or higher."""
    if least == 0:
        return start
    while start < end:
        middle = (start + end) >> 1
        if documents[middle] < least:
            start = middle + 1
        else:
            end = middle
    return start


@njit("int64[:], const float32[:], const bool[:], int64, int64[:]")
def _keep_best(met, gains, allowed, depth, counts):
    """Put at least the `depth` best of the documents that are met and allowed to the front: by counts of their gains.

    Returns how many these are: few more. `counts`: zeros.
    """
    highest, size = np.float32(0), 0
    for i in range(met.size):
        if allowed.size == 0 or allowed[met[i]]:
            met[size] = met[i]
            size += 1
            highest = max(highest, gains[met[i]])
    if size <= depth or highest == 0:
        return size
    factor = np.float32(_BINS) / highest
    for i in range(size):
        counts[int(gains[met[i]] * factor)] += 1
    least, kept = _BINS, counts[_BINS]
    while kept < depth:
        least -= 1
        kept += counts[least]
    kept = 0
    for i in range(size):
        if int(gains[met[i]] * factor) >= least:
            met[kept] = met[i]
            kept += 1
    return kept


@njit("const int64[:,:], int32[:], int32[:], int32[:]")
def _by_centroid(which, free, starts, queries):
    """For each centroid the query vectors that probe it: where its list begins, and all lists.

    `starts`: zeros, one more than centroids; `free`: memory for each centroid.
    """
    for q in range(which.shape[0]):
        for p in range(which.shape[1]):
            starts[which[q, p] + 1] += 1
    for c in range(free.size):
        starts[c + 1] += starts[c]
        free[c] = starts[c]
    for q in range(which.shape[0]):
        for p in range(which.shape[1]):
            c = which[q, p]
            queries[free[c]] = q
            free[c] += 1


@njit_fastsum(
    f"{STORED_ROWS}, const uint16[:], const int32[:], const int32[:], const float32[:,:], const float32[:], "
    "const int64[:], float32[:], uint32[:], float32[:], float32[:], uint8[:]"
)
def _refine(rows, assigned, probing_starts, probing, query, least, documents, best, bits, row, out, stop):
    """The sums of documents by the tokens whose centroids are probed; False for damage or if stopped.

    `best`: memory for each query vector; `bits` and `row`: the same memory for a vector.
    """
    for i in range(documents.size):
        a, z = rows.starts[documents[i]], rows.starts[documents[i] + 1]
        if a < 0 or z > assigned.size or a >= z or must_stop(stop):
            return False
        for q in range(least.size):
            best[q] = least[q]
        for t in range(a, z):
            c = assigned[t]
            if c >= probing_starts.size - 1:
                return False
            if probing_starts[c] == probing_starts[c + 1]:
                continue
            read_row(rows, t, bits, row)
            for x in range(probing_starts[c], probing_starts[c + 1]):
                q, product = probing[x], np.float32(0)
                for j in range(row.size):
                    product += row[j] * query[q, j]
                best[q] = max(best[q], product)
        total = np.float32(0)
        for q in range(least.size):
            total += best[q]
        out[i] = total
    return True


def search_lists(
    rows: TokenRows,
    queries: Sequence[np.ndarray],
    allowed: np.ndarray | None,
    nprobe: int,
    depth: int,
    wanted: int,
    threads: int = 1,
) -> list[np.ndarray]:
    """For each query the places of documents that may be among its best, ascending: about `wanted` of them.

    `queries`: [tokens, dimensions] 32-bit floats. `allowed`: [documents] a mask of those that may be found; None for
    all. Several queries are searched in several threads, and a single one is refined in them.
    """
    lists = rows.lists
    assert lists is not None
    if allowed is not None and np.count_nonzero(allowed) <= wanted:
        return [np.flatnonzero(allowed & (np.diff(rows.starts) > 0))] * len(queries)
    mask = np.zeros(0, np.bool_) if allowed is None else allowed
    inner = threads if len(queries) == 1 else 1

    def search(query: np.ndarray) -> np.ndarray:
        return _candidates(rows, lists, query, mask, nprobe, depth, wanted, inner)

    return (
        [search(query) for query in queries] if inner == threads else list(pool(threads).map(carried(search), queries))
    )


def _candidates(
    rows: TokenRows,
    lists: TokenLists,
    query: np.ndarray,
    allowed: np.ndarray,
    nprobe: int,
    depth: int,
    wanted: int,
    threads: int,
) -> np.ndarray:
    """The places of about `wanted` documents that may be among the best of a query, ascending."""
    best, which = _probed(lists.wide_centroids, query, min(nprobe, len(lists.centroids)), threads)
    met, gains = _met(lists, best, which, len(rows), threads)
    kept = met[: _keep_best(met, gains, allowed, max(depth, wanted), np.zeros(_BINS + 1, np.int64))]
    if len(kept) <= wanted:
        return np.sort(kept)
    refined, probing = np.empty(len(kept), np.float32), _probing(which, len(lists.centroids))
    assigned, least = read_only(lists.assigned), best[:, -1].copy()

    def refine(a: int, z: int) -> bool:
        best, bits = aligned((len(least),), np.float32), aligned((query.shape[1],), np.uint32)
        memory = best, bits, bits.view(np.float32)
        return bool(_refine(rows.stored, assigned, *probing, query, least, kept[a:z], *memory, refined[a:z], stop))

    stop = flag()
    if not all(in_threads(refine, len(kept), threads, _REFINED)):
        raise failure()
    return np.sort(kept[np.argpartition(-refined, wanted - 1)[:wanted]])


def _probed(centroids: np.ndarray, query: np.ndarray, count: int, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """[query vectors, count] the highest products with centroids, highest first, and which centroids these are."""
    full = padded(query)
    scores = np.empty((len(centroids), len(full)), np.float32)
    in_threads(lambda a, z: multiply(centroids[a:z], full, scores[a:z]), len(centroids), threads, _MULTIPLIED)
    best, which = np.empty((len(query), count), np.float32), np.empty((len(query), count), np.int64)

    def find(a: int, z: int) -> None:
        _best_centroids(scores, a, count, np.full(z - a, -np.inf, np.float32), best[a:z], which[a:z])

    in_threads(find, len(query), threads, _PROBING)
    return best, which


def _probing(which: np.ndarray, centroids: int) -> tuple[np.ndarray, np.ndarray]:
    """For each centroid the query vectors that probe it: where its list begins, and all lists."""
    starts, queries = np.zeros(centroids + 1, np.int32), np.empty(which.size, np.int32)
    _by_centroid(which, np.empty(centroids, np.int32), starts, queries)
    return starts, queries


def _met(
    lists: TokenLists, best: np.ndarray, which: np.ndarray, documents: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """The documents in the lists of probed centroids, and what each document gains by them."""
    gains, marks, met = np.zeros(documents, np.float32), np.zeros(documents, np.int32), np.empty(documents, np.int64)
    starts, listed, stop = read_only(lists.starts), read_only(lists.documents), flag()

    def probe(a: int, z: int) -> np.ndarray:
        size = _probe(best, which, starts, listed, a, z, gains, marks, met, stop)
        if size < 0:
            raise failure()
        return met[a : a + size]

    parts = in_threads(probe, documents, threads, _SUMMED)
    return parts[0] if len(parts) == 1 else np.concatenate(parts), gains
