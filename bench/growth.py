"""How the cost of a search grows with the collection: real passages up to all there are, synthetic ones beyond.

    python bench/growth.py DATA [--queries 500] [--synthetic 10000000] [--out results.json]

DATA: a folder made by bench/prepare.py. Synthetic documents have 20 to 40 terms, by Zipf's law out of 300,000; their
queries are four to eight of the rarer terms of two documents somewhere. Rankings are compared with exhaustive scoring.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import Query, Segment, Weightings, build_segment, search_many
from vizsla.models import BM25, CountedStatistics

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from protocol import Rows, counted
from vizsla_ import distinct_terms

SEGMENT = 1_000_000
SHORTEST, LONGEST, VOCABULARY = 20, 40, 300_000


class Collection:
    """Segments, their statistics, and queries."""

    def __init__(self, segments: list[Segment], sizes: np.ndarray, asked: list[dict[int, int]]) -> None:
        self.segments = segments
        self.documents = len(sizes)
        self.model = BM25()
        statistics = CountedStatistics(int(np.count_nonzero(sizes)), int(sizes.sum()), int(sizes.max()), {})
        self.weighting = self.model.weighting(statistics)
        self.queries = [self._query(counts, statistics.documents) for counts in asked]

    def _query(self, counts: dict[int, int], documents: int) -> Query:
        terms = np.array([*counts], np.int64)
        df = np.sum([s.frequencies(terms) for s in self.segments], axis=0)
        idf = np.log1p((documents - df + 0.5) / (df + 0.5))
        return Query(terms, np.zeros(len(terms), np.int64), np.array([*counts.values()]) * idf)

    def measure(self, k: int) -> dict[str, float]:
        weightings = Weightings.pack([self.weighting])
        seconds = []
        for turn in range(4):
            started = time.perf_counter()
            found = search_many(self.segments, self.queries, weightings, k)
            if turn:  # the first time warms up
                seconds.append(time.perf_counter() - started)
        for i in range(0, len(self.queries), max(len(self.queries) // 10, 1)):
            self._check(self.queries[i], found[i].numbers, found[i].scores, k)
        return {"milliseconds": 1000 * float(np.median(seconds)) / len(self.queries)}

    def _check(self, query: Query, numbers: np.ndarray, scores: np.ndarray, k: int) -> None:
        sums, touched = np.zeros(self.documents), np.zeros(self.documents, np.bool_)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            for segment in self.segments:
                documents, values = segment.list_of(term)
                at = segment.numbers[documents]
                sums[at] += weight * self.weighting.weigh(values, segment.lengths[0, documents])
                touched[at] = True
        hits = np.flatnonzero(touched)
        rounded = sums[hits].astype(np.float32)
        best = np.lexsort((hits, -rounded))[:k]
        if not (np.array_equal(hits[best], numbers) and np.array_equal(rounded[best], scores)):
            raise SystemExit("a ranking is not that of exhaustive scoring")

    def postings(self) -> float:
        """How many postings the lists of a query have together, on average."""
        lists = [sum(int(s.frequencies(q.terms).sum()) for s in self.segments) for q in self.queries]
        return float(np.mean(lists))


def real(data: Path, count: int, queries: int) -> Collection:
    documents = Rows.load(data / "documents", count)
    sizes = np.diff(documents.pointers)
    codes = BM25().length_codes(sizes)
    segment = build_segment(np.arange(len(sizes)), codes[None], sizes[None], *distinct_terms(documents))
    asked = Rows.load(data / "queries", queries)
    return Collection([segment], sizes, [c for q in range(len(asked)) if (c := counted(asked.row(q)))])


def synthetic(count: int, queries: int) -> Collection:
    rng = np.random.default_rng(7)
    segments, asked, lengths = [], [], []
    for first in range(0, count, SEGMENT):
        size = min(SEGMENT, count - first)
        sizes = rng.integers(SHORTEST, LONGEST + 1, size)
        draws = np.exp(rng.random(int(sizes.sum()), np.float32) * np.float32(np.log(VOCABULARY))).astype(np.int64) - 1
        row = np.repeat(np.arange(size), sizes)
        keys, counts = np.unique(row * VOCABULARY + np.clip(draws, 0, VOCABULARY - 1), return_counts=True)
        pointers = np.append(0, np.cumsum(np.bincount(keys // VOCABULARY, minlength=size)))
        terms = (keys % VOCABULARY).astype(np.uint32)
        for _ in range(-(-queries * size // count)):
            pair = [np.sort(terms[pointers[d] : pointers[d + 1]])[5:] for d in rng.integers(0, size, 2)]
            mine = np.unique(np.concatenate(pair))
            asked.append({int(t): 1 for t in rng.choice(mine, int(rng.integers(4, 9)), False)})
        codes = BM25().length_codes(sizes)
        segments.append(
            build_segment(np.arange(first, first + size), codes[None], sizes[None], pointers, terms, counts)
        )
        lengths.append(sizes)
    return Collection(segments, np.concatenate(lengths), asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--synthetic", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    whole = len(np.load(options.data / "documents" / "pointers.npy", mmap_mode="r")) - 1
    rows: list[dict[str, Any]] = []
    print("| documents | segments | postings a query | k = 10 | k = 100 | k = 1000 |\n|---|---|---|---|---|---|")
    plans = [("real", n) for n in (10_000, 100_000, whole)]
    plans += [("synthetic", n) for n in (options.synthetic // 10, options.synthetic) if n]
    for kind, size in plans:
        collection = real(options.data, size, options.queries) if kind == "real" else synthetic(size, options.queries)
        figures = {k: collection.measure(k)["milliseconds"] for k in (10, 100, 1000)}
        postings, segments = collection.postings(), len(collection.segments)
        rows.append({"kind": kind, "documents": size, "segments": segments, "postings": postings, **figures})
        cells = " | ".join(f"{f:.3f} ms" for f in figures.values())
        print(f"| {size:,} {kind} | {segments} | {postings:,.0f} | {cells} |", flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
