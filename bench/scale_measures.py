"""What `bench/scale.py` measures: indexes, shards, parts, vectors, a network, and a Qdrant server."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

K = 10
ROUNDS = 5
WIDTH = 384


def measure(o: argparse.Namespace) -> None:
    """Measure everything and write FOLDER/figures.json."""
    from vizsla.datasets import read_documents, read_queries

    o.folder.mkdir(parents=True, exist_ok=True)
    sizes = sorted(int(size) for size in o.sizes.split(","))
    documents = list(islice(read_documents(o.corpus), sizes[-1]))
    if len(documents) < sizes[-1]:
        raise SystemExit(f"{o.corpus} has {len(documents):,} documents, fewer than {sizes[-1]:,}")
    queries = [text for text in islice(read_queries(Path(o.queries)).values(), o.asked) if text.strip()]
    warm_up(o.folder)
    figures: dict[str, Any] = {"queries": len(queries), "sparse": [], "dense": [], "parts": []}
    figures["sparse"] = measure_indexes(documents, queries, sizes, o.folder)
    figures["shards"] = measure_shards(documents, queries, o.folder, o.shards)
    report({name: value for name, value in figures["shards"].items() if not isinstance(value, list)})
    figures["parts"] = measure_parts(documents[: sizes[1]], o.folder)
    report(figures["parts"])
    figures["dense"] = measure_vectors(sorted(int(s) for s in (o.vectors or o.sizes).split(",")))
    if o.encoder:
        figures["encoding"] = measure_encoding(documents[: o.encoded], o.encoder)
        report(figures["encoding"])
    (o.folder / "figures.json").write_text(json.dumps(figures) + "\n")


def report(figures: dict[str, Any]) -> None:
    """Show what was measured, to whoever waits."""
    print({name: value for name, value in figures.items() if not isinstance(value, list)}, file=sys.stderr, flush=True)


def warm_up(folder: Path) -> None:
    """Compile the kernels before anything is timed."""
    from vizsla import Index

    with Index.create(folder / "warm.index", overwrite=True) as index:
        index.add([{"id": str(i), "text": f"dogs bark {i}"} for i in range(3000)])
        index.commit()
        index.search("dogs")
    shutil.rmtree(folder / "warm.index")


def timed(asks: Sequence[Callable[[str], object]], queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """[what is asked, queries] milliseconds: the processor's, the shortest of the rounds, and the clock's in the last.

    All take turns within a round, so that what disturbs the machine disturbs all alike.
    """
    own, clock = np.full((ROUNDS, len(asks), len(queries)), np.inf), np.zeros((len(asks), len(queries)))
    for i in range(ROUNDS):
        for a, ask in enumerate(asks):
            for j, query in enumerate(queries):
                began, started = time.perf_counter_ns(), time.thread_time_ns()
                ask(query)
                own[i, a, j], clock[a, j] = time.thread_time_ns() - started, time.perf_counter_ns() - began
    return own.min(0) / 1e6, clock / 1e6


def build(documents: Sequence[Any], folder: Path) -> float:
    """Build a BM25 index of one segment; gives the seconds of processors without the last step."""
    from vizsla import Index

    started = time.process_time()
    with Index.create(folder, overwrite=True) as index:
        index.add(documents)
        index.commit()
        seconds = time.process_time() - started
        index.compact()
    return seconds


def asker(index: Any) -> Callable[[str], object]:
    """Asks an index one query, in one thread."""
    return lambda query: index.search_many([query], K, threads=1, documents=False)


def measure_indexes(documents: Sequence[Any], queries: Sequence[str], sizes: list[int], folder: Path) -> list[Any]:
    """Build BM25 indexes of several sizes and ask each the same queries."""
    from vizsla import Index

    folders = [folder / f"{size}.index" for size in sizes]
    seconds = [build(documents[:size], path) for size, path in zip(sizes, folders, strict=True)]
    indexes = [Index.open(path) for path in folders]
    own, clock = timed([asker(index) for index in indexes], queries)
    rows = []
    for i, index in enumerate(indexes):
        facts = index.info()
        rows.append({
            "passages": sizes[i], "build_seconds": seconds[i], "index_bytes": facts["index_bytes"],
            "document_bytes": facts["document_bytes"], "terms": count_terms(folders[i]),
            "postings": facts["postings"] / sizes[i], "ms": float(own[i].mean()), "p50": float(np.median(own[i])),
            "p99": float(np.quantile(own[i], 0.99)), "clock_p50": float(np.median(clock[i])),
            "clock_p99": float(np.quantile(clock[i], 0.99)),
        })  # fmt: skip
        report(rows[-1])
        index.close()
    return rows


def count_terms(folder: Path) -> int:
    """How many terms an index knows."""
    with closing(sqlite3.connect(folder / "index.db")) as db:
        return int(db.execute("SELECT value FROM meta WHERE key = 'next_term'").fetchone()[0])


def measure_shards(documents: Sequence[Any], queries: Sequence[str], folder: Path, count: int) -> dict[str, Any]:
    """Split a collection, ask every shard the same queries, and merge what shards with their own statistics find."""
    from vizsla import Index

    folders = [folder / f"shard-{shard}.index" for shard in range(count)]
    for shard, path in enumerate(folders):
        build(documents[shard::count], path)
    indexes = [Index.open(path) for path in folders]
    own, clock = timed([asker(index) for index in indexes], queries)
    found = [
        [[(h.score, h.id) for h in hits] for hits in index.search_many(queries, K, documents=False)]
        for index in indexes
    ]
    for index in indexes:
        index.close()
    with Index.open(folder / f"{len(documents)}.index") as index:
        whole = [{h.id for h in hits} for hits in index.search_many(queries, K, documents=False)]
    merged = [sorted((h for hits in of_query for h in hits), reverse=True)[:K] for of_query in zip(*found, strict=True)]
    pairs = [(ours, theirs) for ours, theirs in zip(merged, whole, strict=True) if theirs]
    shared = [len({i for _, i in ours} & theirs) / len(theirs) for ours, theirs in pairs]
    return {
        "shards": count, "passages": len(documents[::count]), "overlap": float(np.mean(shared)),
        "same": float(np.mean([share == 1 for share in shared])), "times": own.T.tolist(),
        "clock": clock.T.tolist(),
    }  # fmt: skip


def measure_parts(documents: Sequence[Any], folder: Path) -> dict[str, Any]:
    """Encode BM25 parts, and put them together."""
    from vizsla.index import build_from_parts, encode_shard

    parts = folder / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    started = time.process_time()
    for shard in (1, 2):
        encode_shard(iter(documents), parts / f"part-{shard}.parquet", "bm25", f"{shard}/2")
    encoded = time.process_time()
    build_from_parts(parts, folder / "parts.index", overwrite=True)
    built = time.process_time()
    size = sum(file.stat().st_size for file in parts.glob("*.parquet"))
    n = len(documents)
    return {
        "passages": n, "encode_rate": n / (encoded - started), "index_rate": n / (built - encoded), "bytes": size / n,
    }  # fmt: skip


def measure_vectors(sizes: list[int]) -> list[dict[str, Any]]:
    """Exact search of random vectors, in 32 and in 8 bits; every product is made, whatever the vectors say."""
    from vizsla.engine import Query, Segment, Weighting, Weightings, build_segment, convert_rows, search_many

    rng, none = np.random.default_rng(0), np.zeros(0, np.int64)
    weightings = Weightings.pack([Weighting()])
    asked = {str(i): Query(none, none, np.zeros(0), {0: rng.standard_normal(WIDTH)}) for i in range(40)}

    def segments(size: int) -> list[Segment]:
        vectors = rng.standard_normal((size, WIDTH), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = np.zeros(size + 1, np.int64), none, none.astype(np.uint32)
        lengths = np.zeros((1, size), np.int64), np.ones((1, size), np.int64)
        wide = build_segment(np.arange(size), *lengths, *rows, {0: vectors})
        return [wide, replace(wide, dense={0: convert_rows(vectors, "sq8")})]

    def ask(segment: Segment) -> Callable[[str], object]:
        return lambda name: search_many([segment], [asked[name]], weightings, K)

    held = [segments(size) for size in sizes]
    means = timed([ask(segment) for pair in held for segment in pair], list(asked))[0].mean(1).reshape(-1, 2)
    figures = []
    for size, (wide, small), (wide_ms, small_ms) in zip(sizes, held, means.tolist(), strict=True):
        figures.append({
            "passages": size, "float32_ms": wide_ms, "float32_bytes": wide.dense[0].nbytes / size,
            "sq8_ms": small_ms, "sq8_bytes": small.dense[0].nbytes / size,
        })  # fmt: skip
        report(figures[-1])
    return figures


def measure_encoding(documents: Sequence[Any], expression: str) -> dict[str, Any]:
    """How many passages one core encodes in a second."""
    from vizsla.models import DenseComponent, parse_model

    component = parse_model(expression).parts[0].component
    assert isinstance(component, DenseComponent)
    contents = [document.content for document in documents]
    component.document_embeddings(contents[:16])
    started = time.process_time()
    component.document_embeddings(contents)
    return {"model": expression, "passages": len(contents), "rate": len(contents) / (time.process_time() - started)}


# A server of Qdrant


def measure_cluster(o: argparse.Namespace) -> None:
    """Fill a server with more and more passages, ask it, and add what it takes to FOLDER/figures.json."""
    from vizsla import open as open_location
    from vizsla.backends.qdrant.upload import UploadOptions, upload_parts
    from vizsla.datasets import read_documents, read_queries
    from vizsla.index import encode_shard

    file = o.folder / "figures.json"
    figures = json.loads(file.read_text())
    sizes = sorted(int(size) for size in o.sizes.split(","))
    documents = list(islice(read_documents(o.corpus), sizes[-1]))
    queries = [text for text in islice(read_queries(Path(o.queries)).values(), o.asked) if text.strip()]
    figures["cluster"] = [row for row in figures.get("cluster", []) if row["passages"] not in sizes]
    for size in sizes:
        parts = o.folder / f"parts-{size}"
        if not parts.exists():
            parts.mkdir()
            encode_shard(iter(documents[:size]), parts / "part.parquet", "bm25")
        started, own = server_seconds(o.server), time.process_time()
        upload_parts(parts, o.address, options=UploadOptions(shards=1, replicas=1, drop_old=True))
        uploaded, sent = server_seconds(o.server), time.process_time()
        with open_location(o.address) as retriever:
            for _ in range(2):  # the second time counts: term numbers are known, memory is warm
                began = server_seconds(o.server)
                for query in queries:
                    retriever.search_many([query], K)
            searched = server_seconds(o.server)
        figures["cluster"].append({
            "passages": size, "core_ms": (searched - began) / len(queries) * 1000,
            "server_rate": size / (uploaded - started), "client_rate": size / (sent - own),
            "memory_bytes": server_memory(o.server), "disk_bytes": folder_bytes(o.storage),
        })  # fmt: skip
        report(figures["cluster"][-1])
    figures["cluster"].sort(key=lambda row: row["passages"])
    file.write_text(json.dumps(figures) + "\n")


def server_seconds(process: int) -> float:
    """The processor time of a process, all threads together."""
    values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def server_memory(process: int) -> int:
    """The memory of a process that is not the cache of files, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take on disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
