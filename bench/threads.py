"""How many queries a second threads answer, beside processes: `search_many` by itself, and `search` called by threads.

    python bench/threads.py INDEX QUERIES.jsonl [--k 10] [--asked 2000] [--rounds 7] [--asleep 200] [--out results.json]

All ways take turns within a round, so that what disturbs the machine disturbs all alike; figures are medians. Each
number of threads is held to as many times what one thread answers, and to as many independent processes that answer
with `search`: no thread can do better than them.

With `--asleep` the engine's kernel does not search: it sleeps so many microseconds for each query, without the GIL, and
gives any documents. So a machine with few cores shows what the GIL leaves of many. All else is as ever, and shares
the cores that there are, so the figures are lower than those of a machine with many.
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
from typing import Any

import numpy as np

from vizsla import Index
from vizsla.datasets import read_queries
from vizsla.engine import search_many

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
COUNTS = (1, 2, 4, 8, 16, 32)
THREADS = tuple(count for count in COUNTS if count <= max(2, CORES))
WAYS = ("search_many", "search_many, ids read", "search", "search in processes")
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
    ways, counts = (WAYS[:-1], COUNTS[:-1]) if o.asleep else (WAYS, THREADS)
    found: dict[tuple[str, int], list[float]] = {(way, count): [] for way in ways for count in counts}
    with Index.open(o.index) as index, processes(0 if o.asleep else counts[-1]) as answers:

        def one_by_one(own: list[str]) -> None:
            for query in own:
                index.search(query, k=o.k)

        def together(count: int) -> None:
            index.search_many(queries, o.k, threads=count)

        def with_ids(count: int) -> None:
            for hits in index.search_many(queries, o.k, threads=count):
                _ = hits.ids, hits.scores

        one_by_one(queries)
        if o.asleep:
            fall_asleep(o.asleep * 1e-6, len(index))
        for turn in range(o.rounds + 1):
            for count in counts:
                seconds = {
                    "search_many": lambda count=count: timed(together, count),
                    "search_many, ids read": lambda count=count: timed(with_ids, count),
                    "search": lambda count=count: in_threads(one_by_one, queries, count),
                    "search in processes": lambda count=count: answers(count) / count,
                }
                for way in ways:
                    rate = len(queries) / seconds[way]()
                    found[way, count].extend([rate] if turn else [])  # the first round warms up
    return {way: {count: float(np.median(found[way, count])) for count in counts} for way in ways}


def fall_asleep(seconds: float, documents: int) -> None:
    """Let the engine sleep so long for each query instead of searching."""

    def sleep(*arguments: Any) -> bool:
        (_, _, (_, first), pointers, *_, scores, places, counts, _) = arguments
        if first == 0:  # once, not for each segment
            time.sleep((len(pointers) - 1) * seconds)
            places[:] = np.arange(places.size).reshape(places.shape) % documents
            scores[:], counts[:] = 1, places.shape[1]
        return True

    sys.modules[search_many.__module__].search_segment = sleep  # type: ignore[attr-defined]


def timed(work: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    work(count)
    return time.perf_counter() - started


def questions(o: argparse.Namespace) -> list[str]:
    return [text for text in islice(read_queries(Path(o.queries)).values(), o.asked) if text.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--asked", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--asleep", type=float, help="microseconds that each query sleeps instead of being searched")
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
            most = rates.get(WAYS[-1], {}).get(count)
            of_processes = f"{rate / most:.2f}" if most else ""
            print(f"| {way} | {count} | {rate:,.0f} | {rate / (count * by_count[1]):.2f} | {of_processes} |")
    if o.out:
        o.out.write_text(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main()
