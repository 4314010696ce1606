"""A cluster of three nodes, each document on two of them: `make cluster`.

Rankings are held against a local index on SciFact and NFCorpus. Then nodes are killed during searches and during
commits, and clients during commits, each at random moments: nothing that was committed may be lost, nothing found may
be wrong, and no document may be there twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

import qdrant_server
from qdrant_compared import WORDS, differences, documents, queries
from qdrant_server import Node, address, nodes
from scattered import Scattered, ScatteredTokens
from vizsla import BM25, BeirDataset, Document, Index, VizslaError, evaluate_retriever, parse_model
from vizsla.backends.qdrant import QdrantIndex, connection
from vizsla.backends.qdrant import lock as locks
from vizsla.datasets import read_documents, read_queries
from vizsla.index import PartSet, build_from_parts
from vizsla.models import field_text

SHARDS, REPLICAS = 3, 2
MEASURES = "nDCG@10 R@100"


def say(text: str) -> None:
    print(text, flush=True)


def check(wrong: list[str], what: str) -> None:
    """End with what is wrong, if anything is."""
    if wrong:
        sys.exit(f"{what}: {len(wrong)} differences, such as {wrong[:3]}")


def wait_until_whole(node: Node, base: str) -> None:
    """Wait until all replicas of a collection are active again."""
    client = QdrantClient(url=f"http://{node.host}", check_compatibility=False, timeout=10)
    deadline = time.monotonic() + 120
    while True:
        try:
            infos = [client.collection_cluster_info(name) for name in (base, f"{base}.terms")]
            shards = [shard for info in infos for shard in (*info.local_shards, *info.remote_shards)]
            if all(shard.state.value == "Active" for shard in shards):
                break
        except (ResponseHandlingException, UnexpectedResponse):
            pass  # it has just started
        if time.monotonic() > deadline:
            sys.exit("the replicas do not become active again")
        time.sleep(0.2)
    client.close()


# The same rankings as an index


def exactness(cluster: list[Node], folder: Path, dataset: BeirDataset, model: str, parts: Path | None) -> None:
    """All documents of a data set under a model and its parts, searched for all its queries."""
    where = address(cluster, f"exact-{dataset.name}")
    path = folder / f"{dataset.name}.index"
    started = time.perf_counter()
    if parts is None:
        local = Index.create(path, model, store=False)
        local.add(dataset.documents())
        local.commit()
    else:
        build_from_parts(parts, path, store=False)
        local = Index.open(path)
    built = time.perf_counter() - started
    with local, QdrantIndex.create(where, local.model, shards=SHARDS, replicas=REPLICAS, overwrite=True) as index:
        started = time.perf_counter()
        if parts is None:
            index.add(dataset.documents())
            index.commit()
        else:
            found = PartSet(parts)
            with index.writer() as writer:
                writer.add_analysed(lambda max_bytes: found.batches(local.model, max_bytes))
                writer.commit()
        sent = time.perf_counter() - started
        say(f"{dataset.name}: {len(index):,} documents, {built:.0f} s local, {sent:.0f} s to the cluster")
        texts = dataset.queries_of(dataset.qrels("test"))
        for chosen in models_of(model):
            mine, yours = local.with_model(chosen), index.with_model(chosen)
            for k in (10, 100):
                check(differences(mine, yours, texts, k), f"{dataset.name}, {chosen}, k = {k}")
            figures = [
                evaluate_retriever(retriever, dataset, "test", MEASURES, depth=100).evaluation.measures
                for retriever in (mine, yours)
            ]
            four = [{name: f"{value:.4f}" for name, value in each.items()} for each in figures]
            check([] if four[0] == four[1] else [str(four)], f"figures of {chosen}")
            say(f"    {chosen}: {len(texts):,} rankings equal at k = 10 and 100; {four[1]}")


def models_of(model: str) -> list[str]:
    """A model, and what can be searched of its parts."""
    names = [model]
    parts = {part.component.namespace: part.component.name for part in parse_model(model).parts}
    if len(parts) > 1:
        names.insert(0, "bm25")
    if "bm26" in parts:
        names.append("bm51(weight=0.85)")
    dense = next((name for name in parts.values() if name == "minilm" or name.startswith("dense(")), None)
    if dense is not None and len(parts) > 1:
        names += [dense, f"bm25 + 20 * {dense}"]
    return list(dict.fromkeys(names))


DRAWN = {"dense": BM25() + 0.5 * Scattered(), "tokens": BM25() + 0.125 * ScatteredTokens()}


def drawable(corpus: Path) -> Iterator[Document]:
    """Passages without the word whose drawn vector has no numbers."""
    return (d for d in read_documents(corpus) if "nan" not in field_text(d.content, ("title", "text")).lower().split())


def drawn_vectors(cluster: list[Node], folder: Path, names: list[str], corpus: Path, queries: Path, count: int) -> None:
    """Passages under models whose vectors are drawn, a vector or a list of them for each word: no network is needed."""
    texts = dict(islice(read_queries(queries).items(), 100))
    for name in names:
        model = DRAWN[name]
        local = Index.create(folder / f"{name}.index", model, store=False)
        index = QdrantIndex.create(address(cluster, f"drawn-{name}"), model, shards=SHARDS, replicas=REPLICAS)
        with local, index:
            seconds = []
            for one in (local, index):
                started = time.perf_counter()
                one.add(islice(drawable(corpus), count))
                one.commit()
                seconds.append(time.perf_counter() - started)
            say(f"{name}: {len(index):,} passages, {seconds[0]:.0f} s local, {seconds[1]:.0f} s to the cluster")
            for chosen in (*(part.component for part in model.parts), model):
                for k in (10, 100):
                    mine, yours = local.with_model(chosen), index.with_model(chosen)
                    check(differences(mine, yours, texts, k, cancelling=True), f"{chosen.name}, k = {k}")
                say(f"    {chosen.name}: {len(texts)} rankings equal at k = 10 and 100")


# Kills


@contextmanager
def small_collection(cluster: list[Node], folder: Path, name: str, size: int) -> Iterator[tuple[Index, str]]:
    """A collection and an index with the same documents."""
    with Index.create(folder / f"{name}.index", "bm25(b=0)") as local:
        local.add(documents(size))
        local.commit()
        where = address(cluster, name)
        with QdrantIndex.create(where, "bm25(b=0)", shards=SHARDS, replicas=REPLICAS) as index:
            index.add(documents(size))
            index.commit()
        yield local, where


def nodes_killed_while_searching(cluster: list[Node], folder: Path, times: int, rng: random.Random) -> None:
    """Searches go on in four threads while nodes are killed and come back, one at a time."""
    with small_collection(cluster, folder, "searched", 2000) as (local, where):
        texts = queries(200)
        expected = {q: list(local.run({q: text}, 10)[q]) for q, text in texts.items()}
        done, counts, wrong, slowest = threading.Event(), [0] * 4, list[str](), [0.0]

        def search(thread: int) -> None:
            with QdrantIndex(where) as index:
                own = random.Random(thread)
                while not done.is_set():
                    query = own.choice(list(texts))
                    started = time.perf_counter()
                    try:
                        found = list(index.run({query: texts[query]}, 10)[query])
                    except VizslaError as e:
                        wrong.append(str(e))
                        continue
                    slowest[0] = max(slowest[0], time.perf_counter() - started)
                    scores = zip((s for _, s in found), (s for _, s in expected[query]), strict=False)
                    if len(found) != len(expected[query]) or any(abs(a - b) > 1e-6 * b for a, b in scores):
                        wrong.append(f"{query}: {found[:2]}, not {expected[query][:2]}")
                    counts[thread] += 1

        threads = [threading.Thread(target=search, args=(i,)) for i in range(len(counts))]
        for thread in threads:
            thread.start()
        for _ in range(times):
            victim = rng.choice(cluster)
            time.sleep(rng.uniform(0.1, 1.0))
            victim.kill()
            time.sleep(rng.uniform(0.1, 1.0))
            victim.start()
            wait_until_whole(victim, "searched")
        done.set()
        for thread in threads:
            thread.join()
        check(wrong, "searches while nodes were killed")
        count = f"{times} nodes killed during {sum(counts):,} searches"
        say(f"{count}: none failed, none wrong, slowest {slowest[0]:.2f} s")


def changes(number: int, rng: random.Random) -> tuple[list[dict[str, Any]], list[str]]:
    """Documents to add or replace and ids to delete in one commit."""
    added = [{**d, "id": f"d{rng.randrange(400)}"} for d in documents(150, seed=number)]
    unique = {str(d["id"]): {**d, "text": f"{d['text']} round{number}"} for d in added}
    return list(unique.values()), [f"d{rng.randrange(400)}" for _ in range(30)]


def commit(where: str, number: int, seed: int) -> None:
    """One commit; of this process, so that it can be killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection.MAX_POINTS = 20
    added, deleted = changes(number, random.Random(seed))
    with QdrantIndex(where, patience=60) as index:
        index.delete(deleted)
        index.add(added)
        index.commit()


def agree(local: Index, index: QdrantIndex) -> list[str]:
    """What differs between a collection and an index of the documents that the collection has."""
    there = list(index.documents())
    ids = [d.id for d in there]
    wrong = [] if len(set(ids)) == len(ids) == len(index) else [f"{len(ids)} documents, {len(index)} counted"]
    local.delete([d.id for d in local.documents()])
    local.add([{"id": d.id, **d.content} for d in there])
    local.commit()
    text = " ".join([*WORDS, *(f"round{i}" for i in range(60))])
    if local.term_statistics(text) != index.term_statistics(text):
        wrong.append("other term statistics")
    return wrong + differences(local, index, queries(30), 20)


def killed_while_committing(cluster: list[Node], folder: Path, times: int, rng: random.Random, *, client: bool) -> None:
    """A node, or the client itself, is killed at a random moment of a commit; all must be well after the next one."""
    name = "client-killed" if client else "node-killed"
    context = multiprocessing.get_context("spawn")
    with small_collection(cluster, folder, name, 300) as (local, where):
        interrupted = 0
        for number in range(times):
            committed = {d.id: d.content for d in QdrantIndex(where).documents()}
            seed = rng.randrange(1 << 30)
            added, deleted = changes(number, random.Random(seed))
            process = context.Process(target=commit, args=(where, number, seed))
            process.start()
            wait_for_writer(where, process)
            time.sleep(rng.uniform(0.0, 0.6))
            victim = rng.choice(cluster)
            if client:
                if process.is_alive():
                    os.kill(process.pid or 0, signal.SIGKILL)
                    interrupted += 1
            else:
                victim.kill()
            process.join()
            if not client:
                interrupted += 1
                if process.exitcode != 0:
                    sys.exit(f"a commit failed when a node was killed (exit code {process.exitcode})")
                victim.start()
                wait_until_whole(victim, name)
            with QdrantIndex(where, patience=60) as index:
                changed = {str(d["id"]) for d in added} | set(deleted)
                after = {d.id: d.content for d in index.documents()}
                lost = [i for i in committed.keys() - changed if after.get(i) != committed[i]]
                check([f"{len(lost)} untouched documents are lost or changed: {lost[:3]}"] if lost else [], name)
                index.add([{"id": "last", "text": f"round{number}"}])
                index.commit()
                check(agree(local, index), f"{name}, time {number}")
        what = "clients" if client else "nodes"
        say(f"{interrupted} {what} killed during {times} commits: nothing lost, nothing wrong, no document twice")


def wait_for_writer(where: str, process: Any) -> None:
    """Wait until a commit has begun."""
    with QdrantIndex(where) as index:
        while process.is_alive() and index.info()["writer"] is None:
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="kills of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=os.environ.get("VIZSLA_DATA"), help="folder of data sets")
    parser.add_argument("--datasets", default="scifact,nfcorpus")
    parser.add_argument("--model", default="bm25", help="the model of the collections; its parts are searched, too")
    parser.add_argument("--parts", type=Path, help="folder with parts of that model, in a folder for each data set")
    parser.add_argument("--only", choices=("exactness", "drawn", "searches", "nodes", "clients"))
    parser.add_argument("--drawn", nargs="+", choices=DRAWN, default=list(DRAWN), help="models with drawn vectors")
    parser.add_argument("--corpus", type=Path, help="passages to which vectors are drawn, as JSON lines")
    parser.add_argument("--questions", type=Path, help="queries for them")
    parser.add_argument("--count", type=int, default=100_000, help="how many of the passages")
    options = parser.parse_args()
    qdrant_server.real_command()  # ends where there is no server
    locks.DEAD, locks.BEAT = 3.0, 0.3
    rng = random.Random(options.seed)
    steps: dict[str, Callable[[list[Node], Path], None]] = {
        "searches": lambda cluster, folder: nodes_killed_while_searching(cluster, folder, options.times, rng),
        "nodes": lambda cluster, folder: killed_while_committing(cluster, folder, options.times, rng, client=False),
        "clients": lambda cluster, folder: killed_while_committing(cluster, folder, options.times, rng, client=True),
    }
    with tempfile.TemporaryDirectory(prefix="vizsla-") as temporary, nodes(Path(temporary, "nodes"), 3) as cluster:
        folder = Path(temporary)
        if options.only in (None, "exactness"):
            if options.data is None:
                say("no data sets: name their folder with --data, or in VIZSLA_DATA")
            for name in options.datasets.split(",") if options.data is not None else ():
                dataset = BeirDataset.open(Path(options.data) / name)
                exactness(cluster, folder, dataset, options.model, options.parts and options.parts / name)
        if options.only in (None, "drawn") and options.corpus is not None:
            drawn_vectors(cluster, folder, options.drawn, options.corpus, options.questions, options.count)
        for name, step in steps.items():
            if options.only in (None, name):
                step(cluster, folder)


if __name__ == "__main__":
    main()
