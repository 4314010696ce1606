"""A collection of ten million passages on one machine, from its build to its compaction, measured.

    python bench/large.py CORPUS.jsonl QUERIES.jsonl FOLDER [--documents N] [--memory 4GB] [--workers 2] [--store]
                          [--steps build,open,search,update,delete,compact,search] [--name large]

Each step runs in a process of its own and appends a row to FOLDER/NAME.json: seconds of the clock and of processors,
the most memory that was its own (without the cache of files), and what the step is about. `search` times one query
after the other in one thread, and compares some rankings with exhaustive scoring. `open` drops the index's files from
the cache of the system first, as far as it may, so that the first query waits for the disk. `update` replaces 10,000
documents by the texts of others, `delete` deletes 10,000. bench/passages.py makes a corpus of this size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cli.console import parse_size
from vizsla.datasets import Document, Source, read_documents, read_queries
from vizsla.index import Index

CHANGED = 10_000
STEPS = "build,open,search,update,delete,search,compact,open,search"


class Memory:
    """The most memory of this process, apart from the files that it has mapped, while it is watched."""

    def __init__(self) -> None:
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.most = max(self.most, own_memory())

    def end(self) -> int:
        """Stop watching; gives the most bytes that were seen."""
        self._ended.set()
        self._thread.join()
        return self.most


def own_memory() -> int:
    """The memory of this process that is not a mapped file, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


@contextmanager
def measured(figures: dict[str, Any], name: str = "") -> Iterator[None]:
    """Adds seconds and memory of a block to figures."""
    memory, clock, own = Memory(), time.perf_counter(), time.process_time()
    yield
    figures[f"{name}seconds"] = time.perf_counter() - clock
    figures[f"{name}core_seconds"] = time.process_time() - own
    figures[f"{name}own_mb"] = memory.end() / 1e6
    figures[f"{name}resident_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def facts(index: Index) -> dict[str, Any]:
    """The size of an index."""
    found = index.info()
    terms = index._searcher.snapshot.meta["next_term"]
    return {
        "documents": len(index), "segments": len(index._searcher.snapshot.segments), "terms": terms,
        "postings": found["postings"], "index_mb": found["index_bytes"] / 1e6,
        "document_mb": found["document_bytes"] / 1e6,
    }  # fmt: skip


def build(o: argparse.Namespace, folder: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {"store": o.store, "memory": o.memory, "workers": o.workers}
    source = Source.find(o.corpus)
    whole = source.raw_lines() if o.workers > 1 and not o.documents else None  # workers parse them
    with measured(figures), Index.create(folder, memory=parse_size(o.memory), store=o.store, overwrite=True) as index:
        index.add(whole or islice(source.documents(), o.documents), workers=o.workers)
        with measured(figures, "commit_"):
            index.commit()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures |= {"workers_core_seconds": workers.ru_utime + workers.ru_stime, "worker_mb": workers.ru_maxrss / 1000}
    with Index.open(folder) as index:
        return {**figures, **facts(index)}


def drop_cache(folder: Path) -> None:
    """Drop the files of an index from the cache of the system."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def warm_up(folder: Path) -> None:
    """Load code and kernels, so that only the index is measured."""
    with Index.create(folder.with_name("warm.index"), overwrite=True) as small:
        small.add([{"id": str(i), "text": f"dog {i}"} for i in range(2000)])
        small.commit()
        small.search("dog", k=10)


def open_step(o: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The first query of a process: with the index's files on the disk alone, and in the cache."""
    warm_up(folder)
    queries = questions(o)
    figures: dict[str, Any] = {}
    for name in ("cold", "warm"):
        if name == "cold":
            drop_cache(folder)
        clock = [time.perf_counter()]
        index = Index.open(folder)
        clock.append(time.perf_counter())
        for query in queries[:20]:
            index.search(query, k=10)
            clock.append(time.perf_counter())
        took = np.diff(clock) * 1000
        index.close()
        figures |= {f"{name}_open_ms": float(took[0]), f"{name}_first_ms": float(took[1])}
        figures |= {f"{name}_next_ms": float(np.median(took[2:]))}
    return figures


def questions(o: argparse.Namespace) -> list[str]:
    texts = read_queries(Path(o.queries)).values()
    return [text for text in islice(texts, o.asked) if text.strip()]


def search(o: argparse.Namespace, folder: Path) -> dict[str, Any]:
    queries = questions(o)
    figures: dict[str, Any] = {}
    with Index.open(folder) as index:
        index.search_many(queries, 1000, documents=False)  # everything is read from the disk now
        for k in (10, 100, 1000):
            times = np.full((3, len(queries)), np.inf)
            for turn in range(3):
                for i, query in enumerate(queries):
                    started = time.perf_counter()
                    index.search_many([query], k, threads=1, documents=False)
                    times[turn, i] = time.perf_counter() - started
            best = times.min(0) * 1000
            figures |= {f"ms_{k}": float(best.mean()), f"p50_{k}": float(np.median(best))}
            figures |= {f"p99_{k}": float(np.quantile(best, 0.99))}
        check(index, queries[: o.check])
        figures |= {"postings_a_query": postings(index, queries), **facts(index)}
    return figures


def postings(index: Index, queries: list[str]) -> float:
    """How many postings the lists of a query have together, on average."""
    searcher = index._searcher
    encoded = searcher.encode(queries, searcher.own)
    lists = [sum(int(s.frequencies(q.terms).sum()) for s in searcher.snapshot.segments) for q in encoded]
    return float(np.mean(lists))


def check(index: Index, queries: list[str]) -> None:
    """Compare rankings with those of exhaustive scoring."""
    searcher = index._searcher
    snapshot = searcher.snapshot
    (part,) = snapshot.model.parts
    weighting = part.component.weighting(snapshot.statistics[part.component.namespace])
    for query, encoded in zip(queries, searcher.encode(queries, searcher.own), strict=True):
        sums = np.zeros(snapshot.meta["next_number"])
        for term, weight in zip(encoded.terms.tolist(), encoded.weights.tolist(), strict=True):
            for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
                rows, values = segment.list_of(term)
                if alive is not None:
                    lives = alive[rows]
                    rows, values = rows[lives], values[lives]
                sums[segment.numbers[rows]] += weight * weighting.weigh(values, segment.lengths[0, rows])
        rounded = sums.astype(np.float32)
        hits = np.flatnonzero(rounded)
        best = hits[np.lexsort((hits, -rounded[hits]))[:1000]]
        ids = snapshot.documents.ids_of(best)
        found = [(hit.id, np.float32(hit.score)) for hit in index.search(query, k=1000)]
        if found != list(zip(ids, rounded[best], strict=True)):
            raise SystemExit(f"the ranking of {query!r} is not that of exhaustive scoring")


def change(o: argparse.Namespace, folder: Path, step: str) -> dict[str, Any]:
    """Replace documents by others, or delete them."""
    figures: dict[str, Any] = {}
    rng = random.Random(len(step))
    warm_up(folder)
    texts = [d.content for d in islice(read_documents(o.corpus), 2 * CHANGED)][CHANGED:]
    with measured(figures), Index.open(folder, memory=parse_size(o.memory)) as index:
        ids = rng.sample(range(index._searcher.snapshot.meta["next_number"]), CHANGED)
        if step == "update":
            index.add(Document(str(i), content) for i, content in zip(ids, texts, strict=True))
        else:
            figures["deleted"] = index.delete(ids)
        with measured(figures, "commit_"):
            index.commit()
        size = facts(index)
    return {**figures, **size}


def compact(o: argparse.Namespace, folder: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with Index.open(folder, memory=parse_size(o.memory)) as index:
        with measured(figures):
            index.compact()
        return {**figures, **facts(index)}


def run_step(o: argparse.Namespace, step: str) -> None:
    folder = o.folder / f"{o.name}.index"
    if step in ("update", "delete"):
        figures = change(o, folder, step)
    else:
        figures = {"build": build, "open": open_step, "search": search, "compact": compact}[step](o, folder)
    file = o.folder / f"{o.name}.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    rows.append({"step": step, **figures})
    file.write_text(json.dumps(rows, indent=1) + "\n")
    print(
        {name: round(value, 2) if isinstance(value, float) else value for name, value in rows[-1].items()}, flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("queries")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, help="how many documents; without it, all")
    parser.add_argument("--asked", type=int, default=500, help="how many queries")
    parser.add_argument("--check", type=int, default=5, help="how many rankings are compared with exhaustive scoring")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that analyse documents")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--name", default="large")
    parser.add_argument("--steps", default=STEPS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.step:
        run_step(o, o.step)
        return
    o.folder.mkdir(parents=True, exist_ok=True)
    for step in o.steps.split(","):
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--step", step], check=True)


if __name__ == "__main__":
    main()
