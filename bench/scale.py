"""A plan to internet scale: figures of shards at four sizes, a model fitted to them, and machines and money from it.

    python bench/scale.py measure FOLDER --corpus corpus.jsonl --queries queries.jsonl [--sizes 25000,50000,...]
    python bench/scale.py cluster FOLDER ADDRESS --corpus ... --queries ... --server PID --storage DIR
    python bench/scale.py check FOLDER          # the model against what was measured
    python bench/scale.py plan FOLDER [--node-price 2.0 ...]

`measure` builds BM25 indexes of the first passages of a collection, by size, and asks each the same queries; it splits
the largest into shards as `vizsla encode` does and asks every one of them; it times exact search of random vectors,
parts, and a network that encodes passages. Times are those of the processor, since others may work on the machine; a
query's is the shortest of five rounds, in which all sizes take turns. What the clock showed in
the last round is kept beside them, hiccups included.

`cluster` does the same with a Qdrant server that runs on this machine, BM25 alone: what its process takes in memory,
in processor time and on disk. A server keeps memory that it has had, so start a new one for each size, and measure them
one by one; what was measured before is kept. Collections of that name are removed.

`check` fits lines to all sizes but the largest and compares the largest with what they say, and simulates the slowest
of all shards from the times of half of them. `plan` prints the table of docs/scale.md. Prices are assumptions.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
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

sys.path.insert(0, str(Path(__file__).parent))
from scale_model import DAY, GB, Limit, Line, Machines, Plan, Power, System, independent, plan, slowest

GPU_RATE = 50_000
"""Wikipedia passages that MiniLM's shape encodes on one H200 in a second: docs/dense.md, "Encoding speed"."""
READ_RATE = 30_000
"""Passages that a core reads and skips in a second: docs/scale.md, "Encoding on many machines"."""
HNSW_MS, HNSW_BYTES, HNSW_SECONDS = 0.44, 656, 188 / 200_000
"""Of 200,000 vectors in one graph: docs/dense.md, "Approximate search"; a query, bytes and seconds a vector."""
SIZES = (10e6, 1e9, 100e9)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    measuring = steps.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--corpus", required=True)
    measuring.add_argument("--queries", required=True)
    measuring.add_argument("--sizes", default="25000,50000,100000,200000")
    measuring.add_argument("--shards", type=int, default=8, help="that the largest size is split into")
    measuring.add_argument("--asked", type=int, default=500)
    measuring.add_argument("--vectors", default="", help="sizes of the dense search; default: as --sizes")
    measuring.add_argument("--encoder", default="minilm", help="a dense model by expression; empty: none")
    measuring.add_argument("--encoded", type=int, default=300)
    asking = steps.add_parser("cluster")
    asking.add_argument("folder", type=Path)
    asking.add_argument("address")
    asking.add_argument("--corpus", required=True)
    asking.add_argument("--queries", required=True)
    asking.add_argument("--sizes", default="10000,20000,40000,80000")
    asking.add_argument("--asked", type=int, default=200)
    asking.add_argument("--server", type=int, required=True, help="the number of the server's process")
    asking.add_argument("--storage", type=Path, required=True, help="the folder of its data")
    checking = steps.add_parser("check")
    checking.add_argument("folder", type=Path)
    planning = steps.add_parser("plan")
    planning.add_argument("folder", type=Path)
    standard = Machines()
    for name, what in PRICES.items():
        planning.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(standard, name), help=what)
    o = parser.parse_args()
    if o.step == "measure":
        measure(o)
    elif o.step == "cluster":
        measure_cluster(o)
    elif o.step == "check":
        check(json.loads((o.folder / "figures.json").read_text()))
    else:
        figures = json.loads((o.folder / "figures.json").read_text())
        print_plans(figures, Machines(**{name: type(getattr(standard, name))(getattr(o, name)) for name in PRICES}))


PRICES = {
    "cores": "of a machine",
    "memory": "bytes of a machine",
    "disk": "bytes of a machine",
    "price": "dollars an hour of a machine",
    "gpu_price": "dollars an hour of a GPU",
    "replicas": "copies of every passage",
    "queries": "a second",
    "budget_ms": "milliseconds a search may take",
}


# Checking


def fitted(figures: dict[str, Any], key: str, among: str = "sparse", sizes: int | None = None) -> Line:
    """The line of a figure over the first so many sizes."""
    rows = figures[among][:sizes]
    return Line.fit([row["passages"] for row in rows], [row[key] for row in rows])


CHECKED = (
    ("sparse", "index_bytes", "BM25 index", 1e-6, "MB"),
    ("sparse", "document_bytes", "stored documents", 1e-6, "MB"),
    ("sparse", "build_seconds", "build", 1.0, "core s"),
    ("sparse", "ms", "BM25, k = 10, mean", 1.0, "ms"),
    ("sparse", "p99", "BM25, k = 10, 99th percentile", 1.0, "ms"),
    ("dense", "float32_ms", "exact vectors, 32 bits", 1.0, "ms"),
    ("dense", "sq8_ms", "exact vectors, 8 bits", 1.0, "ms"),
    ("cluster", "core_ms", "Qdrant, BM25, k = 10, core", 1.0, "ms"),
    ("cluster", "memory_bytes", "Qdrant, memory", 1e-6, "MB"),
    ("cluster", "disk_bytes", "Qdrant, disk", 1e-6, "MB"),
)


def check(figures: dict[str, Any]) -> None:
    """Print how far the model is from what was measured."""
    sizes = [row["passages"] for row in figures["sparse"]]
    print(f"| | {' | '.join(f'{n:,}' for n in sizes)} | model at {sizes[-1]:,} | error |")
    print("|---|" + "---|" * (len(sizes) + 2))
    for among, key, name, scale, unit in CHECKED:
        rows = figures.get(among)
        if not rows:
            continue
        name += "" if rows[-1]["passages"] == sizes[-1] else f", {' '.join(amount(r['passages']) for r in rows)}"
        said = fitted(figures, key, among, len(rows) - 1).at(rows[-1]["passages"])
        cells = " | ".join(f"{row[key] * scale:,.3g}" for row in rows)
        print(f"| {name}, {unit} | {cells} | {said * scale:,.3g} | {said / rows[-1][key] - 1:+.1%} |")
    vocabulary = Power.fit(sizes[:-1], [row["terms"] for row in figures["sparse"][:-1]])
    counted = [row["terms"] for row in figures["sparse"]]
    said = vocabulary.at(sizes[-1])
    cells = " | ".join(f"{n:,}" for n in counted)
    print(f"| terms (growth n^{vocabulary.exponent:.2f}) | {cells} | {said:,.0f} | {said / counted[-1] - 1:+.1%} |")
    print()
    check_fan_out(figures)


def check_fan_out(figures: dict[str, Any]) -> None:
    """Print the time of the slowest shard: measured, simulated from half of the shards, and simulated for more."""
    shards, rng = figures["shards"], np.random.default_rng(0)
    count = shards["shards"]
    print(f"| slowest of S shards of {shards['passages']:,} passages, ms | p50 | p99 |\n|---|---|---|")

    def row(name: str, times: np.ndarray) -> None:
        print(f"| {name} | {np.quantile(times, 0.5):.3f} | {np.quantile(times, 0.99):.3f} |")

    for kind, key in (("processor", "times"), ("clock", "clock")):
        times = np.array(shards[key])
        half = times[:, ::2]
        row(f"{kind}: one shard", times)
        row(f"{kind}: S = {count}, measured", times.max(1))
        row(f"{kind}: S = {count}, simulated from {half.shape[1]}", slowest(half, count, rng))
        row(f"{kind}: S = {count}, as if shards were independent", independent(half, count, rng))
        for more in (64, 512, 4096):
            row(f"{kind}: S = {more}, simulated", slowest(times, more, rng))
    print(
        f"\nMerged from {count} shards with their own statistics: {shards['overlap']:.1%} of the top {K} are those of "
        f"one index, and {shards['same']:.1%} of the queries have the same {K}."
    )


# Planning


def systems(figures: dict[str, Any]) -> list[System]:
    """The systems that are planned, from what was measured."""
    sparse, parts = figures["sparse"], figures["parts"]
    search = fitted(figures, "ms")
    index = fitted(figures, "index_bytes").each
    text = fitted(figures, "document_bytes").each
    exact, eight = fitted(figures, "float32_ms", "dense"), fitted(figures, "sq8_ms", "dense")
    last = figures["dense"][-1]
    rate = sparse[-1]["passages"] / sparse[-1]["build_seconds"]

    def both(dense: Line) -> Line:
        return Line(search.fixed + max(dense.fixed, 0.0), search.each + dense.each)

    def hybrid(name: str, ms: Line, size: float, seconds: float = 0.0, *, is_exact: bool = True) -> System:
        index_rate = 1 / (1 / parts["index_rate"] + seconds)
        return System(name, ms, index + size, index + size + text, index_rate, GPU_RATE, is_exact)

    wide, small = last["float32_bytes"], last["sq8_bytes"]
    graph = Line(search.fixed + HNSW_MS, search.each)
    return [
        System("`bm25`", search, index, index + text, rate),
        *cluster_systems(figures),
        hybrid("`bm25 + 20 * minilm`, exact, 32 bits", both(exact), wide),
        hybrid("the same, 8 bits", both(eight), small),
        hybrid("union of `bm25` and HNSW in 8 bits", graph, small + HNSW_BYTES, HNSW_SECONDS, is_exact=False),
    ]


def cluster_systems(figures: dict[str, Any]) -> list[System]:
    """BM25 on Qdrant, where that was measured."""
    if not figures.get("cluster"):
        return []
    memory, disk = (fitted(figures, key, "cluster").each for key in ("memory_bytes", "disk_bytes"))
    last = figures["cluster"][-1]
    return [System("`bm25` on Qdrant", fitted(figures, "core_ms", "cluster"), memory, disk, last["server_rate"])]


def amount(value: float, units: str = " KMBT") -> str:
    """A number in few characters.

    >>> amount(25_000_000), amount(1.5e12), amount(7)
    ('25 M', '1.5 T', '7')
    """
    power = min(int(np.log10(value) // 3), len(units) - 1) if value >= 1000 else 0
    return f"{value / 1000**power:,.3g} {units[power]}".strip()


def print_plans(figures: dict[str, Any], machines: Machines) -> None:
    """Print the table of plans, and what breaks first."""
    print(
        f"{machines.queries:,.0f} queries a second within {machines.budget_ms:.0f} ms, {machines.replicas} replicas; a "
        f"machine has {machines.cores} cores, {machines.memory / GB:,.0f} GB of memory, {machines.disk / GB:,.0f} GB "
        f"of disk, and costs ${machines.price:.2f} an hour; a GPU ${machines.gpu_price:.2f}.\n"
    )
    print(
        "| passages | system | machines | decided by | memory, TB | disk, TB | core s a query | ms | GPU hours | "
        "indexing, hours | build, $ | month, $ |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    made = systems(figures)
    for passages in SIZES:
        for system in made:
            print(plan_row(plan(system, passages, machines)))
    print("\n| from passages on | breaks | instead |\n|---|---|---|")
    for limit in sorted(limits(figures, machines)):
        print(f"| {amount(limit.passages)} | {limit.what} | {limit.instead} |")


def plan_row(p: Plan) -> str:
    """A plan as a row of the table."""
    cells = [
        amount(p.passages), p.system.name, f"{p.nodes:,}", p.decided_by, f"{p.memory / 1e12:,.3g}",
        f"{p.disk / 1e12:,.3g}", f"{p.core_seconds:,.2g}" if p.core_seconds < 100 else f"{p.core_seconds:,.0f}",
        f"{p.search_ms:,.2g}" if p.search_ms < 100 else f"{p.search_ms:,.0f}",
        f"{p.gpu_hours:,.3g}" if p.gpu_hours else "", f"{p.index_hours:,.2g}", amount(p.build), amount(p.month),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def limits(figures: dict[str, Any], machines: Machines) -> list[Limit]:
    """What breaks, and from how many passages on."""
    one = [system for system in systems(figures) if "Qdrant" not in system.name]
    memory = machines.memory * machines.memory_share
    postings = (1 << 32) / figures["sparse"][-1]["postings"]
    terms = Power.fit([r["passages"] for r in figures["sparse"]], [r["terms"] for r in figures["sparse"]])
    parts = figures["parts"]
    return [
        Limit(one[1].search_ms.reach(machines.budget_ms), "exact vectors by one core within the time", "shards"),
        Limit(memory / one[1].memory, "vectors in 32 bits in one machine's memory", "8 bits, or several machines"),
        Limit(postings, "32-bit places of postings in one segment", "several segments, which the writer makes"),
        Limit(one[0].search_ms.reach(machines.budget_ms), "BM25 by one core within the time", "shards"),
        Limit(memory / one[0].memory, "the postings in one machine's memory", "several machines"),
        Limit(parts["index_rate"] * DAY, "one writer of one index, a day", "`vizsla qdrant upload`, several processes"),
        Limit(READ_RATE * DAY, "every machine reads all sources, a day", "parts of several sources (not yet)"),
        Limit(((1 << 32) / terms.factor) ** (1 / terms.exponent), "32-bit numbers of terms", "word pieces"),
    ]


if __name__ == "__main__":
    main()
