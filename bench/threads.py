"""How many queries a second threads answer, beside processes: `search_many` by itself, and `search` called by threads.

    python bench/threads.py INDEX QUERIES.jsonl [--k 10] [--asked 400] [--rounds 7] [--out results.json]

All ways take turns within a round, so that what disturbs the machine disturbs all alike; figures are medians. The
measure is what as many independent processes as there are processors answer with `search`, each the same number of
queries: no thread can do better than them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla import Index
from vizsla.datasets import read_queries

CORES = os.cpu_count() or 1
THREADS = (1, 2, 4)


def in_threads(work: Callable[[list[str]], object], queries: list[str], count: int) -> float:
    """Seconds in which threads answer each its share of the queries."""
    ready = threading.Barrier(count + 1)

    def run(own: list[str]) -> None:
        ready.wait()
        work(own)

    threads = [threading.Thread(target=run, args=(queries[i::count],)) for i in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def serve(o: argparse.Namespace) -> None:
    """A process of its own: answers all queries at each line that it reads, and says how long it took."""
    queries = questions(o)
    with Index.open(o.index) as index:
        for query in queries:
            index.search(query, k=o.k)
        print("ready", flush=True)
        for _ in sys.stdin:
            started = time.perf_counter()
            for query in queries:
                index.search(query, k=o.k)
            print(time.perf_counter() - started, flush=True)


@contextmanager
def processes(count: int) -> Iterator[Callable[[], float]]:
    """Processes that answer all queries each; gives a function that lets them, and tells the longest time."""
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([sys.executable, *sys.argv, "--serve"], stdin=pipe, stdout=pipe, text=True)
        for _ in range(count)
    ]

    def answers() -> float:
        for process in started:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in started if process.stdout)

    try:
        for process in started:
            assert process.stdout
            process.stdout.readline()
        yield answers
    finally:
        for process in started:
            assert process.stdin
            process.stdin.close()
            process.wait()


def measure(o: argparse.Namespace) -> dict[str, float]:
    """Queries a second of each way."""
    queries = questions(o)
    rates: dict[str, list[float]] = {}
    with Index.open(o.index) as index, processes(CORES) as answers:

        def one_by_one(own: list[str]) -> None:
            for query in own:
                index.search(query, k=o.k)

        ways: dict[str, Callable[[], float]] = {}
        for count in THREADS:
            ways[f"search_many, threads={count}"] = lambda count=count: timed(  # type: ignore[misc]
                lambda: index.search_many(queries, o.k, threads=count)
            )
        for count in THREADS:
            ways[f"search, called by {count} threads"] = lambda count=count: in_threads(  # type: ignore[misc]
                one_by_one, queries, count
            )
        for turn in range(o.rounds + 1):
            for name, way in ways.items():
                rate = len(queries) / way()
                rates.setdefault(name, []).extend([rate] if turn else [])  # the first round warms up
            rates.setdefault(f"search in {CORES} processes", []).append(CORES * len(queries) / answers())
    return {name: float(np.median(found)) for name, found in rates.items()}


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def questions(o: argparse.Namespace) -> list[str]:
    return [text for text in islice(read_queries(Path(o.queries)).values(), o.asked) if text.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--asked", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.serve:
        serve(o)
        return
    rates = measure(o)
    most = rates[f"search in {CORES} processes"]
    print(f"| k = {o.k} | queries a second | of {CORES} processes |\n|---|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rate / most:.2f} |")
    if o.out:
        o.out.write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
