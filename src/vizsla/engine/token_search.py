"""Candidates of late interaction by centroids: which documents may be among the best k, without reading all of them.

1. The query's vectors are multiplied with all centroids. Each of them probes the lists of its best `nprobe` centroids,
   and a document that it meets gains by how much the centroid is better than the worst one that is probed.
2. The `depth` documents that gain most are refined: of each query vector only those tokens are multiplied whose
   centroid is nearly the best of the document.
3. The best by these sums are left; who asks scores them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np

from vizsla.engine.posting_lists import DamagedSegmentError
from vizsla.engine.residual_rows import ResidualRows
from vizsla.engine.token_lists import TokenLists
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_rows import ScaledRows, widen
from vizsla.kernels import njit, njit_fastsum, njit_no_alloc

MARGIN = 0.1  # how far below the best centroid of a document a token may be to be multiplied, for a vector of length 1
_LANES = 8  # query vectors are filled up to a multiple of this
_PER_TASK = 64  # documents that are refined together, at least
_BINS = 4096
_PLAIN, _SCALED, _RESIDUAL = 0, 1, 2


class StoredRows(NamedTuple):
    """Token vectors as they are stored, for the kernels; arrays that a kind does not have are empty."""

    kind: int
    starts: np.ndarray
    halves: np.ndarray
    """16-bit floats, as bits."""
    codes: np.ndarray
    """Numbers in 8 bits."""
    packed: np.ndarray
    """Residuals in 2 or 4 bits."""
    scales: np.ndarray
    table: np.ndarray
    """[256, numbers in a byte] the residuals that a byte stands for."""
    centroids: np.ndarray
    assigned: np.ndarray


def stored_rows(rows: TokenRows, lists: TokenLists) -> StoredRows:
    """The arrays of token vectors for the kernels."""
    vectors, none = rows.vectors, np.zeros((0, 1), np.float32)
    halves, codes, packed = none.astype(np.uint16), none.astype(np.int8), none.astype(np.uint8)
    kind, scales, table = _PLAIN, none[:, 0], np.zeros((256, 1), np.float32)
    if isinstance(vectors, ScaledRows):
        kind, codes, scales = _SCALED, vectors.codes, vectors.scales
    elif isinstance(vectors, ResidualRows):
        kind, packed, scales, table = _RESIDUAL, vectors.codes, vectors.scales, _byte_table(vectors)
    else:
        halves = vectors.view(np.uint16)
    arrays = (rows.starts, halves, codes, packed, scales, table, lists.wide_centroids, lists.assigned)
    return StoredRows(kind, *map(_read_only, arrays))


def _byte_table(rows: ResidualRows) -> np.ndarray:
    """[256, numbers in a byte] the residuals that a byte stands for."""
    bits, shifts = rows.codec.bits, np.arange(0, 8, rows.codec.bits)
    table: np.ndarray = rows.codec.means[(np.arange(256)[:, None] >> shifts) & ((1 << bits) - 1)]
    return table


def _read_only(array: np.ndarray) -> np.ndarray:
    """One kind of array, so that kernels are compiled once."""
    view = array.view()
    view.flags.writeable = False
    return view


@njit
def _best_centroids(scores, count, best, which):
    """The `count` best centroids of each query vector, highest first; a heap of the best for each."""
    queries = best.shape[0]
    least = np.full(queries, -np.inf, np.float32)
    for c in range(scores.shape[0]):
        if c < count:
            for q in range(queries):
                _sift_up(best[q], which[q], c, scores[c, q], c)
            if c == count - 1:
                least[:] = best[:, 0]
            continue
        higher = 0
        for q in range(queries):
            higher += scores[c, q] > least[q]
        if higher == 0:
            continue
        for q in range(queries):
            if scores[c, q] > least[q]:
                _sift_down(best[q], which[q], count, scores[c, q], c)
                least[q] = best[q, 0]
    for q in range(queries):
        for size in range(count - 1, 0, -1):  # the lowest goes to the end, and so on
            score, c = best[q, size], which[q, size]
            best[q, size], which[q, size] = best[q, 0], which[q, 0]
            _sift_down(best[q], which[q], size, score, c)


@njit_no_alloc
def _sift_up(heap, which, place, score, c):
    while place > 0 and heap[(place - 1) >> 1] > score:
        heap[place], which[place] = heap[(place - 1) >> 1], which[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place], which[place] = score, c


@njit_no_alloc
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


@njit_no_alloc
def _probe(best, which, starts, documents, gains, last, met):
    """Add up what documents gain by the lists of the best centroids; gives how many are met, -1 for damage."""
    count, probes = 0, best.shape[1]
    for q in range(best.shape[0]):
        mark, worst = q + 1, best[q, probes - 1]
        for p in range(probes):
            gain = best[q, p] - worst
            c = which[q, p]
            for x in range(starts[c], starts[c + 1]):
                d = documents[x]
                if d >= gains.size:
                    return -1
                if last[d] == mark:
                    continue
                if last[d] == 0:
                    met[count] = d
                    count += 1
                last[d] = mark
                gains[d] += gain
    return count


@njit
def _keep_best(met, gains, allowed, depth):
    """At least the `depth` best of the documents that are met and allowed, and few more: by counts of their gains."""
    highest, size = np.float32(0), 0
    for i in range(met.size):
        if allowed.size == 0 or allowed[met[i]]:
            met[size] = met[i]
            size += 1
            highest = max(highest, gains[met[i]])
    met = met[:size]
    if size <= depth or highest == 0:
        return met
    counts = np.zeros(_BINS + 1, np.int64)
    factor = np.float32(_BINS) / highest
    for d in met:
        counts[int(gains[d] * factor)] += 1
    least, kept = _BINS, counts[_BINS]
    while kept < depth:
        least -= 1
        kept += counts[least]
    size = 0
    for i in range(met.size):
        if int(gains[met[i]] * factor) >= least:
            met[size] = met[i]
            size += 1
    return met[:size]


@njit_no_alloc
def _read_row(rows, t, bits, row):
    """Put a token's vector into `row`, before it is scaled; `bits` is the memory of `row` as whole numbers."""
    if rows.kind == _PLAIN:
        widen(rows.halves[t], bits, row)
    elif rows.kind == _SCALED:
        for j in range(row.size):
            row[j] = rows.codes[t, j]
    else:
        centroid, per_byte = rows.centroids[rows.assigned[t]], rows.table.shape[1]
        whole = row.size // per_byte
        if per_byte == 4:
            for b in range(whole):
                residual = rows.table[rows.packed[t, b]]
                for i in range(4):
                    row[4 * b + i] = centroid[4 * b + i] + residual[i]
        else:
            for b in range(whole):
                residual = rows.table[rows.packed[t, b]]
                for i in range(2):
                    row[2 * b + i] = centroid[2 * b + i] + residual[i]
        for j in range(whole * per_byte, row.size):
            row[j] = centroid[j] + rows.table[rows.packed[t, whole], j - whole * per_byte]


@njit_fastsum
def _refine(rows, scores, query, margins, documents, out):
    """The sums of documents by the tokens whose centroids are nearly their best; False for damage."""
    queries = scores.shape[1]
    nearly, best = np.empty(queries, np.float32), np.empty(queries, np.float32)
    bits = np.empty(query.shape[1], np.uint32)
    row = bits.view(np.float32)
    for i in range(documents.size):
        a, z = rows.starts[documents[i]], rows.starts[documents[i] + 1]
        if a < 0 or z > rows.assigned.size or a >= z:
            return False
        nearly[:] = -np.inf
        for t in range(a, z):
            c = rows.assigned[t]
            if c >= scores.shape[0]:
                return False
            for q in range(queries):
                nearly[q] = scores[c, q] if scores[c, q] > nearly[q] else nearly[q]
        for q in range(queries):
            nearly[q] -= margins[q]
            best[q] = -np.inf
        for t in range(a, z):
            c, wanted = rows.assigned[t], 0
            for q in range(queries):
                wanted += scores[c, q] >= nearly[q]
            if wanted == 0:
                continue
            _read_row(rows, t, bits, row)
            scale = rows.scales[t] if rows.kind != _PLAIN else np.float32(1)
            for q in range(queries):
                if scores[c, q] >= nearly[q]:
                    product = np.float32(0)
                    for j in range(row.size):
                        product += row[j] * query[q, j]
                    best[q] = max(best[q], product * scale)
        total = np.float32(0)
        for q in range(queries):
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
    stored, mask = stored_rows(rows, lists), np.zeros(0, np.bool_) if allowed is None else allowed
    inner = threads if len(queries) == 1 else 1

    def search(query: np.ndarray) -> np.ndarray:
        return _candidates(stored, lists, query, mask, nprobe, depth, wanted, inner)

    return [search(query) for query in queries] if inner == threads else list(_pool(threads).map(search, queries))


def _candidates(
    rows: StoredRows,
    lists: TokenLists,
    query: np.ndarray,
    allowed: np.ndarray,
    nprobe: int,
    depth: int,
    wanted: int,
    threads: int,
) -> np.ndarray:
    """The places of about `wanted` documents that may be among the best of a query, ascending."""
    padded = np.zeros((-(-len(query) // _LANES) * _LANES, query.shape[1]), np.float32)
    padded[: len(query)] = query
    scores = lists.wide_centroids @ padded.T
    met, gains = _met(lists, scores, len(query), len(rows.starts) - 1, nprobe)
    kept = _keep_best(met, gains, allowed, max(depth, wanted))
    if len(kept) > wanted:
        margins = (MARGIN * np.linalg.norm(padded, axis=1)).astype(np.float32)
        refined = _refined(rows, scores, padded, margins, kept, threads)
        kept = kept[np.argpartition(-refined, wanted - 1)[:wanted]]
    return np.sort(kept)


def _met(
    lists: TokenLists, scores: np.ndarray, queries: int, documents: int, nprobe: int
) -> tuple[np.ndarray, np.ndarray]:
    """The documents in the lists of the best centroids, and what all documents gain by them."""
    count = min(nprobe, len(scores))
    best, which = np.empty((queries, count), np.float32), np.empty((queries, count), np.int64)
    _best_centroids(scores, count, best, which)
    gains, last = np.zeros(documents, np.float32), np.zeros(documents, np.int32)
    met = np.empty(documents, np.int64)
    size = _probe(best, which, _read_only(lists.starts), _read_only(lists.documents), gains, last, met)
    if size < 0:
        raise DamagedSegmentError
    return met[:size], gains


def _refined(
    rows: StoredRows, scores: np.ndarray, query: np.ndarray, margins: np.ndarray, documents: np.ndarray, threads: int
) -> np.ndarray:
    """The sums of documents by their most likely tokens, in several threads if they are many."""
    out = np.empty(len(documents), np.float32)
    tasks = max(min(threads, len(documents) // _PER_TASK), 1)
    ends = np.linspace(0, len(documents), tasks + 1).astype(np.int64).tolist()

    def refine(a: int, z: int) -> bool:
        return bool(_refine(rows, scores, query, margins, documents[a:z], out[a:z]))

    if not all(in_threads(refine, ends[:-1], ends[1:], threads)):
        raise DamagedSegmentError
    return out


def in_threads(call: Callable[..., bool], first: Sequence[int], last: Sequence[int], threads: int) -> list[bool]:
    """What a kernel gives for each range of documents, ranges in several threads."""
    if len(first) == 1:
        return [call(first[0], last[0])]
    return list(_pool(threads).map(call, first, last))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "vizsla-token-search")
