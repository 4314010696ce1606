"""MaxSim: the score of late interaction. Each query token takes the best product with a token of the document.

Products are computed in 32 bits for many tokens at a time, which shows the documents that may be in the top k. These
are scored again in 64 bits. For each query token only the document tokens that may have its best product are used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla import stopping
from vizsla.engine.arrays import aligned
from vizsla.engine.products import multiply, padded
from vizsla.engine.stop_flag import failure, must_stop
from vizsla.engine.stored_rows import STORED_ROWS, read_row
from vizsla.engine.threads import in_threads
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_rows import ScaledRows, wide_rows
from vizsla.kernels import njit

ROUNDING, VANISHING = 2.0**-23, 2.0**-126
"""Errors of 32-bit floats: relative, and absolute where they are tiny."""
_TOKENS = 4096  # document tokens that are multiplied together
_COLUMNS = 1024  # query tokens that are multiplied together
_SCORED = 8  # documents that a thread gets at least
_SAFE = 1e37  # products that 32 bits can surely hold


def max_sims(rows: TokenRows, queries: Sequence[np.ndarray], first: int, last: int) -> np.ndarray:
    """[queries, last - first] scores in 32 bits of neighbouring documents; 0 for one without tokens.

    `queries`: [tokens, dimensions] the token vectors of each.
    """
    scores = np.zeros((len(queries), last - first), np.float32)
    groups = _groups([len(query) for query in queries])
    packed = [np.concatenate(queries[a:z]).astype(np.float32, copy=False).T for a, z in groups]
    pointers = [np.cumsum([0, *map(len, queries[a:z])]) for a, z in groups]
    for start, end in rows.blocks(first, last, _TOKENS):
        stopping.check()
        bounds = rows.bounds(start, end)
        vectors = wide_rows(rows.vectors, int(bounds[0]), int(bounds[-1]))
        scales = rows.vectors.scales[bounds[0] : bounds[-1]] if isinstance(rows.vectors, ScaledRows) else None
        for (a, _), columns, parts in zip(groups, packed, pointers, strict=True):
            products = vectors @ columns
            if scales is not None:
                products *= scales[:, None]
            best = np.empty(products.shape[1], np.float32)
            _add_maxima(products, bounds - bounds[0], parts, best, scores, a, start - first)
    return scores


def _groups(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of queries with at most `_COLUMNS` tokens together, or of one query."""
    groups, a = [], 0
    for z in range(1, len(sizes) + 1):
        if z == len(sizes) or sum(sizes[a : z + 1]) > _COLUMNS:
            groups.append((a, z))
            a = z
    return groups


@njit("const float32[:,:], const int64[:], const int64[:], float32[:], float32[:,:], int64, int64")
def _add_maxima(products, starts, pointers, best, scores, query, document):
    """For each document the maxima of its rows of `products`, summed over the columns of each query.

    `query` and `document`: where the first of them is in `scores`.
    """
    for d in range(starts.size - 1):
        if starts[d] == starts[d + 1]:
            continue
        for c in range(best.size):
            best[c] = products[starts[d], c]
        for t in range(starts[d] + 1, starts[d + 1]):
            for c in range(best.size):
                best[c] = products[t, c] if products[t, c] > best[c] else best[c]
        for q in range(pointers.size - 1):
            total = 0.0
            for c in range(pointers[q], pointers[q + 1]):
                total += np.float64(best[c])
            scores[query + q, document + d] = total


def score_margin(query: np.ndarray, max_norm: float) -> float:
    """By how much a score made in 32 bits may be off: each of its products, and their sum as it is rounded."""
    highest = float(np.linalg.norm(query.astype(np.float64), axis=1).sum()) * max_norm
    return float(token_margins(query, max_norm).sum()) + 4 * ROUNDING * highest


def token_margins(query: np.ndarray, max_norm: float) -> np.ndarray:
    """[query tokens] by how much a product made in 32 bits may be off, given the longest document vector."""
    norms = np.linalg.norm(query.astype(np.float64), axis=1)
    off: np.ndarray = (query.shape[1] + 8) * (ROUNDING * norms * max_norm + VANISHING * (1 + max_norm + norms))
    return off


def exact_max_sims(
    rows: TokenRows, documents: np.ndarray, query: np.ndarray, max_norm: float, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scores of some documents in 64 bits, and [documents, query tokens] the best products and their tokens.

    A query token without a match, as of a document without tokens, has the product 0 and the token -1. Of equal
    products the first token counts. Vectors too long for 32 bits are multiplied in 64 alone.
    """
    best = np.zeros((len(documents), len(query)))
    which = np.full((len(documents), len(query)), -1, np.int64)
    wide_query = np.ascontiguousarray(query, np.float64)
    scores = np.zeros(len(documents))
    safe = bool((np.linalg.norm(wide_query, axis=1) * max(max_norm, 1.0) < _SAFE).all())
    off = 2 * token_margins(query, max_norm) if safe else np.full(len(query), np.inf)
    narrow = padded(query if safe else np.zeros_like(query))

    def score(a: int, z: int) -> bool:
        some, out = documents[a:z], (best[a:z], which[a:z], scores[a:z])
        longest = _longest(rows.stored, some)
        if longest < 0:
            return False
        bits, products = aligned((longest, query.shape[1]), np.uint32), aligned((longest, len(narrow)), np.float32)
        memory = bits, bits.view(np.float32), products
        return bool(_score(rows.stored, some, narrow, wide_query, off, *memory, *out, stop))

    stop = stopping.flag()
    if not all(in_threads(score, len(documents), threads, _SCORED)):
        raise failure()
    return scores, best, which


@njit(f"{STORED_ROWS}, const int64[:]")
def _longest(rows, documents):
    """How many tokens the longest of some documents has; -1 for damage."""
    longest = 0
    for i in range(documents.size):
        start, end = rows.starts[documents[i]], rows.starts[documents[i] + 1]
        if start < 0 or end > rows.tokens or end < start:
            return -1
        longest = max(longest, end - start)
    return longest


@njit(
    f"{STORED_ROWS}, const int64[:], const float32[:,:], const float64[:,:], const float64[:], uint32[:,:], "
    "float32[:,:], float32[:,:], float64[:,:], int64[:,:], float64[:], uint8[:]"
)
def _score(rows, documents, narrow, query, off, bits, vectors, products, best, which, scores, stop):
    """The score of each document: the sum of the best products of query tokens; False for damage or if stopped.

    `bits` and `vectors`: the same memory for the vectors of the longest document; `products`: for its products.
    """
    for i in range(documents.size):
        if must_stop(stop):
            return False
        a = rows.starts[documents[i]]
        size = rows.starts[documents[i] + 1] - a
        for t in range(size):
            if not read_row(rows, a + t, bits[t], vectors[t]):
                return False
        multiply(vectors[:size], narrow, products)
        for q in range(query.shape[0]):
            highest = np.float32(-np.inf)
            for t in range(size):
                highest = max(highest, products[t, q])
            for t in range(size):
                if products[t, q] >= highest - off[q]:
                    total = 0.0
                    for j in range(query.shape[1]):
                        total += np.float64(vectors[t, j]) * query[q, j]
                    if which[i, q] < 0 or total > best[i, q]:
                        best[i, q], which[i, q] = total, t
            scores[i] += best[i, q]
    return True
