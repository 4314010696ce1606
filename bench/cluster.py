"""A collection in Qdrant, measured beside a local index and beside Qdrant asked directly with ready vectors.

    VIZSLA_QDRANT_SERVER=qdrant python bench/cluster.py corpus.jsonl queries.jsonl [--documents 100000] [--nodes 3]

All are asked the same queries, one after the other in each round, so that a busy machine is busy for all. Qdrant is
asked directly in two ways: by its client's own method, and by the requests that Vizsla sends, with ready vectors. Our
share of a search's time is what passes outside of sending requests and reading answers as JSON, in the same run; the
share outside of HTTP has these, too. Uploading is measured beside the client's own upload of the same points. Rankings
are held against those of the index.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from qdrant_client import models

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from qdrant_compared import differences
from qdrant_server import address, nodes, program
from vizsla.backends.qdrant import layout, searching
from vizsla.backends.qdrant.connection import Json, query_batch
from vizsla.backends.qdrant.index import QdrantIndex
from vizsla.backends.qdrant.points import all_points
from vizsla.datasets import read_documents, read_queries
from vizsla.index import Index

UPLOADED = 5000  # points for the comparison of uploads
BATCH = 200


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ready_requests(index: QdrantIndex, texts: list[str], k: int, batch: int) -> list[list[Json]]:
    """What the first requests for these queries are, ready to be sent."""
    reader = index.reader
    top_k = searching.TopK(reader.connection, reader.state.base, documents=False)
    pending = [top_k.first(i, parts, k) for i, parts in enumerate(reader.encode(texts, reader.own, None)) if parts]
    requests = [top_k.requests(one, None) for one in pending]
    return [[r for some in requests[a : a + batch] for r in some] for a in range(0, len(requests), batch)]


class Stopwatch:
    """How long, and how much of this process's CPU, calls of a method take."""

    def __init__(self, owner: Any, method: str) -> None:
        self.seconds = self.cpu = 0.0
        call = getattr(owner, method)

        def timed(*arguments: Any, **options: Any) -> Any:
            started, before = time.perf_counter(), time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started
                self.cpu += time.process_time() - before

        setattr(owner, method, timed)

    def reset(self) -> None:
        self.seconds = self.cpu = 0.0


def measure_searches(
    local: Index, index: QdrantIndex, watches: list[Stopwatch], texts: list[str], k: int, batch: int, rounds: int
) -> dict[str, Any]:
    """Queries a second of each, the median of some rounds, and our share of the time.

    `watches`: of the connection, and of HTTP.
    """
    base, client = index.reader.state.base, index.reader.connection._client(0)
    ready = ready_requests(index, texts, k, batch)
    objects = [[models.QueryRequest.model_validate(request) for request in some] for some in ready]
    batches = [texts[a : a + batch] for a in range(0, len(texts), batch)]

    def ours() -> None:
        for some in batches:
            index.search_many(some, k, documents=False)

    others: dict[str, Callable[[], Any]] = {
        "index": lambda: [local.search_many(some, k, documents=False, threads=1) for some in batches],
        "Qdrant's client": lambda: [client.query_batch_points(base, some) for some in objects],
        "ready vectors": lambda: [query_batch(client, base, some) for some in ready],
    }
    ours()  # what is loaded once is loaded, and terms are known
    times: dict[str, list[float]] = {"cluster": [], **{name: [] for name in others}}
    shares, cpu = [], []
    for _ in range(rounds):
        for watch in watches:
            watch.reset()
        before = time.process_time()
        whole = seconds(ours)
        cpu.append(1000 * (time.process_time() - before - watches[0].cpu) / len(texts))
        times["cluster"].append(whole)
        shares.append([1 - watch.seconds / whole for watch in watches])
        for name, way in others.items():
            times[name].append(seconds(way))
    rates = {name: round(len(texts) / statistics.median(some)) for name, some in times.items()}
    outside = [round(statistics.median(some), 3) for some in zip(*shares, strict=True)]
    own = {"our_share": outside[0], "outside_of_http": outside[1], "our_cpu_ms": round(statistics.median(cpu), 3)}
    return {"k": k, "batch": batch, "queries_a_second": rates, **own}


def measure_upload(index: QdrantIndex, where: str, documents: list[Any]) -> dict[str, Any]:
    """Documents a second of a commit, texts to points, and of the client's own upload of the same points."""
    with QdrantIndex.create(where, index.model, overwrite=True) as other:
        analysing = seconds(lambda: other.add(documents))
        committing = seconds(other.commit)
        base, client = other.reader.state.base, other.reader.connection._client(0)
        records = [p for some in all_points(other.reader.connection, base, vectors=True) for p in some]
        ids = [layout.point_id(p.doc_id) for p in records]
        stored = {str(r.id): r for r in client.retrieve(base, ids, with_vectors=True)}
        points = [models.PointStruct(id=i, vector=stored[i].vector or {}, payload=stored[i].payload) for i in ids]
        layout.create_collections(other.reader.connection, f"{base}-direct", index.model)
        batches = [points[a : a + BATCH] for a in range(0, len(points), BATCH)]
        direct = seconds(lambda: [client.upsert(f"{base}-direct", some, wait=True) for some in batches])
    rates = {"analysis": analysing, "commit": committing, "client's own upload": direct}
    return {"documents": len(points), "documents_a_second": {n: round(len(points) / s) for n, s in rates.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--count", type=int, default=500, help="queries")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--model", default="bm25")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if isinstance(program(), str):
        sys.exit(str(program()))
    texts = list(islice(read_queries(options.queries).values(), options.count))
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        nodes(Path(folder, "nodes"), options.nodes) as cluster,
    ):
        some = {"shards": options.nodes, "replicas": min(2, options.nodes)}
        where = address(cluster, "bench")
        with (
            Index.create(Path(folder, "index"), options.model, store=False) as local,
            QdrantIndex.create(where, options.model, **some) as index,
        ):
            facts: dict[str, Any] = {"nodes": options.nodes, "model": options.model}
            for name, one in (("index", local), ("cluster", index)):
                documents = islice(read_documents(options.corpus), options.documents)
                facts[f"{name}_seconds"] = round(seconds(lambda one=one, d=documents: (one.add(d), one.commit())), 1)  # type: ignore[misc]
            facts["documents"] = len(index)
            print(json.dumps(facts), flush=True)
            asked = {str(i): text for i, text in enumerate(texts)}
            for k in (10, 100):
                wrong = differences(local, index, asked, k)
                print(
                    json.dumps({"k": k, "rankings": len(asked), "wrong": len(wrong), "such_as": wrong[:2]}), flush=True
                )
            connection = index.reader.connection
            http = connection._client(0).http.client._client
            watches = [Stopwatch(connection, "call"), Stopwatch(http, "send")]
            for k, batch in ((10, 1), (10, 50), (100, 50)):
                print(json.dumps(measure_searches(local, index, watches, texts, k, batch, options.rounds)), flush=True)
            few = list(islice(read_documents(options.corpus), min(UPLOADED, options.documents)))
            print(json.dumps(measure_upload(index, address(cluster, "upload"), few)), flush=True)


if __name__ == "__main__":
    main()
