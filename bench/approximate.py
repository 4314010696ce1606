"""What approximate search gains and misses: time and recall against the exact top k, by its knob.

    python bench/approximate.py DATA [--queries 500]

DATA: a folder made by bench/prepare.py.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from growth import Collection, real
from vizsla.engine import TopDocuments, Weightings, search_many

STEPS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.0)
ROUNDS = 4


def measure(collection: Collection, k: int) -> list[tuple[float, float, float]]:
    """For each step of the knob: the knob, the time beside the exact search's, the recall; steps take turns."""
    weightings = Weightings.pack([collection.weighting])
    found: dict[float, list[TopDocuments]] = {}
    seconds: dict[float, list[float]] = {step: [] for step in STEPS}
    for _ in range(ROUNDS):
        for step in STEPS:
            started = time.perf_counter()
            found[step] = search_many(collection.segments, collection.queries, weightings, k, expected=step)
            seconds[step].append(time.perf_counter() - started)
    medians = {step: float(np.median(s)) for step, s in seconds.items()}
    return [(step, medians[step] / medians[1.0], recall(found[step], found[1.0])) for step in STEPS]


def recall(found: list[TopDocuments], exact: list[TopDocuments]) -> float:
    pairs = [(f, e) for f, e in zip(found, exact, strict=True) if len(e)]
    return float(np.mean([len(np.intersect1d(f.numbers, e.numbers)) / len(e) for f, e in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--queries", type=int, default=500)
    options = parser.parse_args()
    whole = len(np.load(options.data / "documents" / "pointers.npy", mmap_mode="r")) - 1
    collection = real(options.data, whole, options.queries)
    print("| approximate | " + " | ".join(f"time, k = {k} | recall" for k in (10, 100, 1000)) + " |")
    print("|---" * 7 + "|")
    columns = [measure(collection, k) for k in (10, 100, 1000)]
    for row in zip(*columns, strict=True):
        print(f"| {row[0][0]:g} | " + " | ".join(f"{ratio:.2f} | {share:.4f}" for _, ratio, share in row) + " |")


if __name__ == "__main__":
    main()
