"""How many queries a second threads answer, beside processes: `search_many` by itself, and `search` called by threads.

    python bench/threads.py INDEX QUERIES.jsonl [--k 10] [--asked 400] [--rounds 7] [--out results.json]

All ways take turns within a round, so that what disturbs the machine disturbs all alike; figures are medians. Each
number of threads is held to as many times what one thread answers, and to as many independent processes that answer
with `search`: no thread can do better than them.
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

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = tuple(count for count in (1, 2, 4, 8, 16, 32) if count <= max(2, CORES))
WAYS = ("search_many", "search", "search in processes")
Rates = dict[str, dict[int, float]]


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
def processes(count: int) -> Iterator[Callable[[int], float]]:
    """Processes; gives a function that lets so many of them answer all queries each, and tells the longest time."""
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([sys.executable, *sys.argv, "--serve"], stdin=pipe, stdout=pipe, text=True)
        for _ in range(count)
    ]

    def answers(count: int) -> float:
        for process in started[:count]:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in started[:count] if process.stdout)

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


def measure(o: argparse.Namespace) -> Rates:
    """Queries a second of each way, by the number of threads or processes."""
    queries = questions(o)
    found: dict[tuple[str, int], list[float]] = {(way, count): [] for way in WAYS for count in THREADS}
    with Index.open(o.index) as index, processes(THREADS[-1]) as answers:

        def one_by_one(own: list[str]) -> None:
            for query in own:
                index.search(query, k=o.k)

        for turn in range(o.rounds + 1):
            for count in THREADS:
                rates = (
                    len(queries) / timed(lambda count=count: index.search_many(queries, o.k, threads=count)),  # type: ignore[misc]
                    count * len(queries) / in_threads(one_by_one, [*queries] * count, count),
                    count * len(queries) / answers(count),
                )
                for way, rate in zip(WAYS, rates, strict=True):
                    found[way, count].extend([rate] if turn else [])  # the first round warms up
    return {way: {count: float(np.median(found[way, count])) for count in THREADS} for way in WAYS}


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
    print(f"| k = {o.k} | threads or processes | queries a second | of linear | of processes |\n|---|---|---|---|---|")
    for way, by_count in rates.items():
        for count, rate in by_count.items():
            most = rates[WAYS[-1]][count]
            print(f"| {way} | {count} | {rate:,.0f} | {rate / (count * by_count[1]):.2f} | {rate / most:.2f} |")
    if o.out:
        o.out.write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
