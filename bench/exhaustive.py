"""Exhaustive scoring by the definition, in plain numpy: what every ranking of ours must equal."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vizsla.models import BM25, CountedStatistics

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from protocol import Rows, counted
from vizsla_ import distinct_terms

K1 = 0.9


@dataclass(frozen=True, eq=False)
class Exhaustive:
    """Postings by term, with the weight of each."""

    starts: np.ndarray
    documents: np.ndarray
    weights: np.ndarray
    idf: np.ndarray
    size: int
    queries: list[tuple[np.ndarray, np.ndarray]]

    @staticmethod
    @functools.cache
    def load(data: Path) -> Exhaustive:
        documents, queries = Rows.load(data / "documents"), Rows.load(data / "queries")
        pointers, terms, values = distinct_terms(documents)
        row = np.repeat(np.arange(len(documents)), np.diff(pointers))
        order = np.argsort(terms, kind="stable")
        df = np.bincount(terms, minlength=int(terms.max()) + 1)
        if documents.weights is None:
            sizes = np.diff(documents.pointers)
            model = BM25(k1=K1)
            statistics = CountedStatistics(int(np.count_nonzero(sizes)), int(sizes.sum()), int(sizes.max()), {})
            weights = model.weighting(statistics).weigh(values, model.length_codes(sizes)[row])
            idf = np.log1p((statistics.documents - df + 0.5) / (df + 0.5))
            counts = [counted(queries.row(q)) for q in range(len(queries))]
            asked = [(np.array([*c], np.int64), np.array([*c.values()], np.float64)) for c in counts]
        else:
            weights, idf = values.astype(np.float64), np.ones(len(df))
            asked = [
                (queries.row(q).astype(np.int64), queries.row_weights(q).astype(np.float64))
                for q in range(len(queries))
            ]
        starts = np.append(0, np.cumsum(df))
        return Exhaustive(starts, row[order], weights[order], idf, len(documents), asked)

    def agrees(self, query: int, ids: np.ndarray, scores: np.ndarray, k: int) -> bool:
        """Whether a ranking has the same documents in the same order with the same scores, bit by bit."""
        sums, touched = np.zeros(self.size), np.zeros(self.size, np.bool_)
        for term, weight in zip(*self.queries[query], strict=True):
            if term < len(self.idf):
                here = slice(self.starts[term], self.starts[term + 1])
                sums[self.documents[here]] += weight * self.idf[term] * self.weights[here]
                touched[self.documents[here]] = True
        hits = np.flatnonzero(touched)
        rounded = sums[hits].astype(np.float32)
        best = np.lexsort((hits, -rounded))[:k]
        n = len(best)
        return (
            np.array_equal(ids[:n], hits[best])
            and np.array_equal(scores[:n], rounded[best])
            and bool((ids[n:] == -1).all())
        )
