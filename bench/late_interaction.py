"""Search of token vectors beside fast-plaid: recall of the exact top 10, latency, size and build time.

    python bench/late_interaction.py VECTORS.npz [--queries 100] [--threads 1]
    python bench/late_interaction.py --make 20000

VECTORS.npz, or a folder with the same arrays as .npy files: `rows` [tokens, width], `lengths` [documents], `queries`
[queries, tokens, width], or `query_rows` and `query_lengths`. `--make N` makes N documents of random words instead.

Both sides get the same vectors and the same processors, one query at a time. Every setting of a sweep is measured; the
cheapest one that finds at least 0.95 and 0.99 of the exact top 10 of MaxSim over 16-bit floats is compared, then at
k = 100, too. fast-plaid is left out where it is not installed. `--peer-build cuda` builds its index on a GPU; all
searches are on the CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import (
    Plaid,
    Query,
    Segment,
    TokenQuery,
    TokenRows,
    Weighting,
    Weightings,
    build_segment,
    build_token_index,
    learn_codec,
    search_many,
)

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()])
TARGETS = (0.95, 0.99)
OURS = [(4, 64, 3), (8, 128, 3), (8, 256, 0), (16, 128, 3), (16, 256, 0), (16, 512, 0), (32, 256, 3), (32, 512, 0)]
OURS += [(32, 1024, 0), (64, 512, 0), (64, 1024, 0), (64, 2048, 0), (128, 1024, 0), (128, 4096, 10), (256, 4096, 10)]
PEERS = [(1, 64), (2, 64), (2, 128), (4, 128), (4, 256), (4, 1024), (8, 256), (8, 1024), (8, 4096), (16, 512)]
PEERS += [(16, 1024), (16, 4096), (32, 1024), (32, 4096), (64, 8192)]
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class Vectors:
    """Token vectors of documents and queries."""

    rows: np.ndarray
    lengths: np.ndarray
    queries: list[np.ndarray]

    @property
    def starts(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.lengths))


@dataclass
class System:
    """Something that searches: its name, size, build time, and one search for each setting."""

    name: str
    size: int
    build: float
    settings: list[str]
    search: Callable[[str, np.ndarray, int], np.ndarray]


@dataclass
class Measured:
    """A setting, its recall of the exact top 10, and the milliseconds of single queries."""

    setting: str
    recall: float
    times: np.ndarray

    def __str__(self) -> str:
        return f"{np.median(self.times):.2f} | {np.quantile(self.times, 0.95):.2f}"


def read(source: Path, count: int) -> Vectors:
    """Vectors from an .npz file or a folder of .npy files."""
    if source.is_dir():
        arrays = {file.stem: np.load(file, mmap_mode="r") for file in source.glob("*.npy")}
    else:
        arrays = dict(np.load(source))
    if "queries" in arrays:
        queries = list(arrays["queries"][:count])
    else:
        starts = np.append(0, np.cumsum(arrays["query_lengths"]))[: count + 1].tolist()
        queries = [arrays["query_rows"][a:z] for a, z in pairwise(starts)]
    rows = np.ascontiguousarray(arrays["rows"], np.float16)
    return Vectors(rows, np.asarray(arrays["lengths"], np.int64), [q.astype(np.float32) for q in queries])


def make(documents: int, count: int, width: int = 128) -> Vectors:
    """Documents of random words of their topic, each word with a vector that its document changes a little."""
    rng = np.random.default_rng(0)
    words, topics, own = 30_000, max(documents // 40, 1), 200
    vocabulary, themes = _unit(rng.normal(size=(words, width))), _unit(rng.normal(size=(topics, width)))
    common = 1 / np.arange(1, words + 1)
    lengths = np.clip(rng.normal(110, 35, documents), 10, 180).astype(np.int64)
    topic, document = rng.integers(0, topics, documents), np.repeat(np.arange(documents), lengths)
    chosen = rng.choice(words, len(document), p=common / common.sum())
    of_topic = rng.random(len(document)) < 0.5
    chosen[of_topic] = (topic[document[of_topic]] * 53 + rng.integers(0, own, of_topic.sum())) % words
    rows = np.empty((len(document), width), np.float16)
    for a in range(0, len(rows), 1 << 18):
        part = slice(a, a + (1 << 18))
        noise = 0.3 * _unit(rng.normal(size=(len(chosen[part]), width)))
        rows[part] = _unit(vocabulary[chosen[part]] + 0.3 * themes[topic[document[part]]] + noise)
    starts, queries = np.append(0, np.cumsum(lengths)), []
    for d in rng.integers(0, documents, count).tolist():
        tokens = rows[rng.integers(starts[d], starts[d + 1], 32)].astype(np.float32)
        queries.append(_unit(tokens + 0.3 * _unit(rng.normal(size=tokens.shape))))
    return Vectors(rows, lengths, queries)


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def segment_of(tokens: TokenRows) -> Segment:
    """Documents with token vectors and no terms."""
    n, counts = len(tokens), np.diff(tokens.starts)[None]
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    return build_segment(np.arange(n), np.zeros((1, n), np.int64), counts, *rows, {}, {0: tokens})


def query_of(vectors: np.ndarray) -> Query:
    return Query(NOTHING, NOTHING, np.zeros(0), {}, {0: TokenQuery(vectors)})


def ours(vectors: Vectors, bits: Sequence[int], threads: int) -> Iterator[System]:
    """Exact search, and search by centroids over vectors in 16-bit floats and in residual codes."""
    plain = TokenRows(vectors.rows, vectors.starts)
    exact = segment_of(plain)

    def search_exactly(_: str, query: np.ndarray, k: int) -> np.ndarray:
        return search_many([exact], [query_of(query)], WEIGHTINGS, k)[0].numbers

    yield System("exact, float16", plain.nbytes, 0.0, ["all documents"], search_exactly)
    for b in bits:
        started = time.perf_counter()
        codec = learn_codec([plain], Plaid(nbits=b).centroids(len(vectors.rows)), b)
        indexed = build_token_index(plain, codec)
        seconds, segment = time.perf_counter() - started, segment_of(indexed)

        def search(setting: str, query: np.ndarray, k: int, segment: Segment = segment) -> np.ndarray:
            params = Plaid().with_search_params(setting)
            found = search_many([segment], [query_of(query)], WEIGHTINGS, k, search_params=params, threads=threads)
            return found[0].numbers

        name = f"plaid(nbits={b}), {len(codec.centroids):,} centroids"
        settings = [f"nprobe={probes}, depth={depth}, oversample={times}" for probes, depth, times in OURS]
        yield System(name, indexed.nbytes, seconds, settings, search)


def fast_plaid(vectors: Vectors, bits: int, device: str) -> System:
    """fast-plaid over the same vectors."""
    import torch
    from fast_plaid.search import FastPlaid  # type: ignore[import-not-found]

    folder = tempfile.mkdtemp(prefix="fast-plaid-")
    starts = vectors.starts.tolist()
    documents = [torch.from_numpy(vectors.rows[a:z]) for a, z in pairwise(starts)]
    started = time.perf_counter()
    FastPlaid(index=folder, device=device).create(documents_embeddings=documents, nbits=bits)
    seconds = time.perf_counter() - started
    index: Any = FastPlaid(index=folder, device="cpu")

    def search(setting: str, query: np.ndarray, k: int) -> np.ndarray:
        probes, full = (int(part.partition("=")[2]) for part in setting.split(", "))
        settings = {"top_k": k, "n_ivf_probe": probes, "n_full_scores": full, "show_progress": False}
        (found,) = index.search(queries_embeddings=torch.from_numpy(query)[None], n_processes=1, **settings)
        return np.array([document for document, _ in found], np.int64)

    size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    settings = [f"n_ivf_probe={probes}, n_full_scores={full}" for probes, full in PEERS]
    return System(f"fast-plaid, {bits} bits (built on {device})", size, seconds, settings, search)


def measure(system: System, setting: str, vectors: Vectors, exact: np.ndarray, k: int) -> Measured:
    """Search all queries one by one; a first few are not timed."""
    for query in vectors.queries[:3]:
        system.search(setting, query, k)
    times, shares = [], []
    for query, best in zip(vectors.queries, exact, strict=True):
        started = time.perf_counter()
        found = system.search(setting, query, k)
        times.append(1000 * (time.perf_counter() - started))
        shares.append(len(np.intersect1d(found[:10], best)) / len(best))
    return Measured(setting, float(np.mean(shares)), np.array(times))


def cheapest(rows: Sequence[Measured], target: float) -> Measured | None:
    reached = [row for row in rows if row.recall >= target]
    return min(reached, key=lambda row: float(np.median(row.times)), default=None)


def report(system: System, vectors: Vectors, exact: np.ndarray) -> list[Measured]:
    """Measure all settings of a system and print them."""
    print(f"\n{system.name}: {system.size / 1e6:,.1f} MB, built in {system.build:,.1f} s\n", flush=True)
    print("| setting | recall of the top 10 | median ms, k = 10 | p95 |\n|---|---|---|---|")
    rows = []
    for setting in system.settings:
        rows.append(measure(system, setting, vectors, exact, 10))
        print(f"| {setting} | {rows[-1].recall:.4f} | {rows[-1]} |", flush=True)
    return rows


def compare(systems: Sequence[tuple[System, list[Measured]]], vectors: Vectors, exact: np.ndarray) -> None:
    """The cheapest setting of each system that reaches a recall, beside the last one's."""
    peer = systems[-1]
    for target in TARGETS:
        print(f"\nRecall of the exact top 10 of at least {target:.2f}, the cheapest setting of each:\n")
        columns = "recall | median ms, k = 10 | p95 | median ms, k = 100 | p95 | ratio, k = 10 | k = 100"
        print(f"| system | setting | {columns} |")
        print("|---|---|---|---|---|---|---|---|---|")
        lines: list[tuple[System, Measured, Measured] | System] = []
        for system, rows in systems:
            best = cheapest(rows, target)
            lines.append(system if best is None else (system, best, measure(system, best.setting, vectors, exact, 100)))
        last = lines[-1] if peer[0].name.startswith("fast-plaid") else None
        for line in lines:
            if isinstance(line, System):
                print(f"| {line.name} | not reached by any setting |" + " |" * 7)
                continue
            system, ten, hundred = line
            ratios = ["", ""]
            if last is not None and not isinstance(last, System):
                pairs = zip((ten, hundred), last[1:], strict=True)
                ratios = [f"{np.median(own.times) / np.median(other.times):.2f}" for own, other in pairs]
            print(f"| {system.name} | {ten.setting} | {ten.recall:.4f} | {ten} | {hundred} | {' | '.join(ratios)} |")


def limit_threads(threads: int) -> None:
    """Start again with so many threads in every library, and on so many processors."""
    if all(os.environ.get(name) == str(threads) for name in VARIABLES):
        return
    os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, nargs="?")
    parser.add_argument("--make", type=int, metavar="N", help="make N documents of random words")
    parser.add_argument("--documents", type=int, help="use only the first N documents")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bits", type=int, nargs="*", default=[0, 2, 4], help="of ours; 0 for 16-bit floats")
    parser.add_argument("--peer-bits", type=int, nargs="*", default=[4])
    parser.add_argument("--peer-build", default="cpu", help="device that fast-plaid builds its index on: cpu or cuda")
    options = parser.parse_args()
    if (options.vectors is None) == (options.make is None):
        parser.error("give a file or folder of vectors, or --make N")
    limit_threads(options.threads)
    vectors = make(options.make, options.queries) if options.make else read(options.vectors, options.queries)
    if options.documents is not None and options.documents < len(vectors.lengths):
        kept = vectors.lengths[: options.documents]
        vectors = Vectors(vectors.rows[: kept.sum()], kept, vectors.queries)
    tokens, width = vectors.rows.shape
    print(f"{len(vectors.lengths):,} documents, {tokens:,} tokens of {width} numbers, ", end="")
    print(f"{len(vectors.queries)} queries, {options.threads} threads", flush=True)
    systems = ours(vectors, options.bits, options.threads)
    first = next(systems)
    plain = segment_of(TokenRows(vectors.rows, vectors.starts))
    found = search_many([plain], [query_of(query) for query in vectors.queries], WEIGHTINGS, 10)
    exact = np.array([hits.numbers for hits in found])
    few = Vectors(vectors.rows, vectors.lengths, vectors.queries[:10])
    print("\n| exact search over all documents | median ms, k = 10 | p95 |\n|---|---|---|")
    print(f"| {first.size / 1e6:,.1f} MB | {measure(first, first.settings[0], few, exact[:10], 10)} |")
    measured = [(system, report(system, vectors, exact)) for system in systems]
    if find_spec("fast_plaid") is None:
        print("\nfast-plaid is not installed, and left out.")
    else:
        for bits in options.peer_bits:
            peer = fast_plaid(vectors, bits, options.peer_build)
            measured.append((peer, report(peer, vectors, exact)))
    compare(measured, vectors, exact)


if __name__ == "__main__":
    main()
