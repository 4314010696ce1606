"""Approximate and smaller dense vectors: recall, time and bytes of each kind, beside faiss with the same settings.

    python bench/nearest.py [--documents 200000] [--width 384] [--queries 200] [--kinds hnsw pq ...]

Vectors of length 1 around random centres, k = 10, one question at a time, in one thread and by its processor's time, so
that others on the machine disturb little. Times are shares of our exact search's in the same run. faiss has the same
structure, without our candidates being scored again; for `exact`, `float16` and `sq8` its flat index and its scalar
quantisers. Recall is that of the exact top k of the vectors as they were given. Needs faiss-cpu.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np

from dense import NOTHING, segment_of
from vizsla.engine import (
    AnnIndex,
    Approximate,
    Query,
    Segment,
    VectorIndex,
    Weighting,
    Weightings,
    build_ann_index,
    convert_rows,
    search_many,
)
from vizsla.index.storage.arrays import HashedFile

K = 10
KINDS = {
    "exact": "Flat",
    "float16": "SQfp16",
    "sq8": "SQ8",
    "hnsw(ef_search=32)": "",
    "hnsw(ef_search=128)": "",
    "ivf(nprobe=8)": "",
    "ivf(nprobe=32)": "",
    "ivf(nprobe=32, codes=pq)": "",
    "pq": "",
}
WEIGHTINGS = Weightings.pack([Weighting()])
Answer = Callable[[np.ndarray], np.ndarray]


def clustered(rng: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    """Vectors of length 1 around centres, as texts are around topics."""
    rows = centres[rng.integers(0, len(centres), count)] + rng.normal(size=(count, centres.shape[1])).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Contest:
    """One kind, ours and faiss's, over the same vectors."""

    def __init__(self, text: str, segment: Segment, folder: Path, built: dict[str, tuple[AnnIndex, float]]) -> None:
        self.kind = VectorIndex.parse(text)
        vectors, n = segment.dense[0], len(segment)
        self.segment = replace(segment, dense={0: convert_rows(vectors, self.kind.store)})
        factory = self.kind.factory(n, vectors.shape[1])
        self.bytes, self.seconds = self.segment.dense[0].nbytes / n, 0.0
        if factory is None:
            self.theirs = faiss.index_factory(vectors.shape[1], KINDS[text], faiss.METRIC_INNER_PRODUCT)
            self.theirs.train(vectors)
            self.theirs.add(vectors)
            self.their_bytes = self.theirs.sa_code_size()
        else:
            if factory not in built:
                started = time.process_time()
                with HashedFile(folder / f"{len(built)}.faiss", {}) as file:
                    build_ann_index(factory, vectors, file.put)
                data = np.memmap(folder / file.facts["file"], np.uint8, "r")
                made = AnnIndex(data, file.facts["sha256"], factory, file.facts["file"], lambda _: True)
                built[factory] = made, time.process_time() - started
            ann_index, self.seconds = built[factory]
            self.segment = replace(self.segment, ann={0: ann_index})
            self.theirs = ann_index.open(self.kind.device)
            self.their_bytes = ann_index.bytes / n
            self.bytes += self.their_bytes

    def ours(self, vector: np.ndarray) -> np.ndarray:
        query = Query(NOTHING, NOTHING, np.zeros(0), {0: vector.astype(np.float64)})
        return search_many([self.segment], [query], WEIGHTINGS, K, search_params=self.kind)[0].numbers

    def faiss(self, vector: np.ndarray) -> np.ndarray:
        search_params = self.kind.parameters(faiss, 0) if isinstance(self.kind, Approximate) else None
        return self.theirs.search(vector[None], K, params=search_params)[1][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--centres", type=int, default=2000)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(options.centres, options.width)).astype(np.float32)
    vectors, queries = (clustered(rng, centres, n) for n in (options.documents, options.queries))
    exact = [set(np.argpartition(-(vectors @ q), K)[:K].tolist()) for q in queries]
    with tempfile.TemporaryDirectory() as folder:
        built: dict[str, tuple[AnnIndex, float]] = {}
        segment = segment_of(vectors)
        contests = {text: Contest(text, segment, Path(folder), built) for text in ("exact", *options.kinds)}
        answers: dict[tuple[str, str], Answer] = {}
        for text, contest in contests.items():
            answers[text, "vizsla"], answers[text, "faiss"] = contest.ours, contest.faiss
        seconds = {name: np.zeros(len(queries)) for name in answers}
        recalls = {name: np.zeros(len(queries)) for name in answers}
        for name, answer in answers.items():
            answer(queries[0])
            for i, vector in enumerate(queries):  # each kind by itself, as it is used, so that caches are its own
                started = time.thread_time()
                found = answer(vector)
                seconds[name][i] = time.thread_time() - started
                recalls[name][i] = len(exact[i].intersection(found.tolist())) / K
    unit = np.median(seconds["exact", "vizsla"])
    print(f"The exact search takes {1000 * unit:.1f} ms.")
    print("| kind | recall@10 | time | bytes a vector | faiss: recall | time | bytes | ours / faiss | built in s |")
    print("|---" * 9 + "|")
    for text, contest in contests.items():
        (a, b), (r, s) = (
            [float(f(values[text, who])) for who in ("vizsla", "faiss")]
            for f, values in ((np.median, seconds), (np.mean, recalls))
        )
        theirs = f"{s:.3f} | {b / unit:.3f} | {contest.their_bytes:,.0f}"
        print(
            f"| `{text}` | {r:.3f} | {a / unit:.3f} | {contest.bytes:,.0f} | {theirs} | {a / b:.2f} | "
            f"{contest.seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
