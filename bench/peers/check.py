"""Compares what a peer found with exhaustive scoring in the peer's own formula.

    python bench/peers/check.py PEER DATA RESULTS.npz

RESULTS.npz is what serve.py saved for a search over DATA/queries. Prints two shares over all queries: right, of results
whose exact score reaches that of the last one of the true top k (ties count as right, and so does a difference of
one in ten thousand), and returned, of the true top k (leaving out scores of 0) that was found.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from protocol import K1, B, Rows

NEAR = 1e-4


def small(length: int) -> int:
    """A document length after Lucene's (and tantivy's) rounding to one byte."""
    free = 24
    if length < free:
        return length
    rest = length - free
    shift = max(0, rest.bit_length() - 4)
    return free + (rest >> shift << shift)


def matrix(documents: Rows, values: np.ndarray) -> sp.csr_matrix:
    width = int(documents.terms.max()) + 1
    return sp.csr_matrix((values, documents.terms, documents.pointers), shape=(len(documents), width))


def bm25(documents: Rows, peer: str) -> sp.csc_matrix:
    """Weights of terms in documents by the peer's own BM25."""
    k1, b = (1.2, 0.75) if peer == "tantivy" else (K1, B)
    counts = matrix(documents, np.ones(documents.terms.size))
    counts.sum_duplicates()
    lengths = np.diff(documents.pointers)
    average = lengths.mean()
    if peer in ("tantivy", "lucene"):
        lengths = np.array([small(int(length)) for length in lengths])
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    odds = (len(documents) - frequency + 0.5) / (frequency + 0.5)
    idf = np.maximum(1e-6, np.log(odds)) if peer == "pisa" else np.log1p(odds)
    norms = k1 * (1 - b + b * np.repeat(lengths, np.diff(counts.indptr)) / average)
    counts.data = idf[counts.indices] * counts.data / (counts.data + norms)
    return counts.tocsc()


def rounded(weights: np.ndarray, peer: str) -> np.ndarray:
    """Query weights as the engine takes them: BMP makes the largest 32 and rounds the others up."""
    values = weights.astype(np.float64)
    return np.ceil(values / values.max() * 32) if peer == "bmp" and values.size else values


def query(queries: Rows, number: int, frequency: np.ndarray, peer: str) -> np.ndarray:
    row = queries.row(number)
    known = frequency[np.minimum(row, frequency.size - 1)] * (row < frequency.size) > 0
    weights = np.ones(row.size) if queries.weights is None else queries.row_weights(number)
    vector = np.bincount(row[known], rounded(weights[known], peer), minlength=frequency.size)
    return np.minimum(vector, 1) if peer == "bm25x" else vector  # which counts a repeated word of a query once


def main() -> None:
    peer, data, results = sys.argv[1], Path(sys.argv[2]), np.load(sys.argv[3])
    documents, queries = Rows.load(data / "documents"), Rows.load(data / "queries")
    weights = matrix(documents, documents.weights.astype(np.float64)).tocsc() if documents.weights is not None else None
    weights = bm25(documents, peer) if weights is None else weights
    frequency = np.diff(weights.indptr)
    right = returned = covered = wanted = 0
    for number, ids in enumerate(results["ids"]):
        vector = query(queries, number, frequency, peer)
        terms = np.flatnonzero(vector)
        scores = weights[:, terms] @ vector[terms]
        found, k = np.unique(ids[ids >= 0]), min(ids.size, scores.size)
        last = max(np.partition(scores, -k)[-k], 1e-12) * (1 - NEAR)
        true = min(k, int((scores > 1e-12).sum()))
        good = int((scores[found] >= last).sum())
        right, returned = right + good, returned + found.size
        covered, wanted = covered + min(good, true), wanted + true
    shares = f"right {right / max(1, returned):.4f}, returned {covered / max(1, wanted):.4f}"
    print(f"{peer}, {len(results['ids'])} queries, k={results['ids'].shape[1]}: {shares}")


if __name__ == "__main__":
    main()
