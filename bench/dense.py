"""Exact dense search beside faiss's own, the same vectors and the same work.

    python bench/dense.py [--documents 200000] [--width 384] [--rounds 5]

Random vectors of length 1, k = 10, 100 and 1000, one question at a time and in batches. faiss is `IndexFlatIP`, with
its vectors in its own memory; both use all processors, by turns. Needs faiss-cpu.
"""

from __future__ import annotations

import argparse
import time

import faiss
import numpy as np

from vizsla.engine import Query, Segment, Weighting, Weightings, build_segment, search_many

NOTHING = np.zeros(0, np.int64)


def segment_of(vectors: np.ndarray) -> Segment:
    """Documents with a dense vector each and no terms."""
    n = len(vectors)
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    return build_segment(np.arange(n), np.zeros((1, n), np.int64), np.ones((1, n), np.int64), *rows, {0: vectors})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(options.documents, options.width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    segment, weightings = segment_of(vectors), Weightings.pack([Weighting()])
    index = faiss.IndexFlatIP(options.width)
    index.add(vectors)
    print(f"{'questions':>9} {'k':>5} {'vizsla ms':>10} {'faiss ms':>9} {'ratio':>6} {'same':>7}")
    for count in (1, 16, 64, 512):
        asked = rng.normal(size=(count, options.width)).astype(np.float32)
        queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: row.astype(np.float64)}) for row in asked]
        for k in (10, 100, 1000):
            times, same = [], 0.0
            for turn in range(options.rounds + 1):
                begin = time.perf_counter()
                hits = search_many([segment], queries, weightings, k)
                ours = time.perf_counter()
                _, found = index.search(asked, k)
                theirs = time.perf_counter()
                if turn:
                    times.append(((ours - begin) / count, (theirs - ours) / count))
                pairs = zip(hits, found, strict=True)
                same = float(np.mean([len(set(h.numbers.tolist()) & set(f.tolist())) / k for h, f in pairs]))
            ms = 1000 * np.median(times, 0)
            ratio = np.median([a / b for a, b in times])
            print(f"{count:>9} {k:>5} {ms[0]:>10.3f} {ms[1]:>9.3f} {ratio:>6.2f} {same:>7.4f}", flush=True)


if __name__ == "__main__":
    main()
