"""The life of a large collection, measured: build, memory, updates, compaction, filters.

    python bench/updates.py corpus.jsonl FOLDER [--memory 512MB] [--rounds 20]

Builds an index in a process of its own and reports its peak memory; opens it in another and answers one query; then
replaces 1% of the documents, round after round, with the search latency before, after and after compaction, and at
last the size of the index beside that of a fresh one.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from vizsla.cli.console import parse_size
from vizsla.datasets import Document, read_documents
from vizsla.index import Index, verify

QUERIES = 200


def resident() -> float:
    """This process's memory in MB, now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    return 0.0


def build(corpus: str, folder: str, memory: str) -> None:
    started = time.perf_counter()
    with Index.create(folder, memory=parse_size(memory), overwrite=True) as index:
        index.add(read_documents(corpus))
        index.commit()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps({"build_seconds": round(time.perf_counter() - started, 1), "peak_mb": round(peak)}))


def open_once(folder: str) -> None:
    from vizsla.text import Analyzer

    warm = Path(folder).with_name("warm.index")
    with Index.create(warm, overwrite=True) as small:  # load code and kernels, so that only the index is measured
        small.add([{"id": "1", "text": "dog"}])
        small.commit()
        small.search("dog")
    Analyzer.parse("lucene-english")("warm")
    before = resident()
    with Index.open(folder) as index:
        index.search("the history of the roman empire")
        after = resident()
        facts = index.info()
    size = (facts["index_bytes"] + facts["document_bytes"]) / 1e6
    shutil.rmtree(warm)
    added = after - before
    print(json.dumps({"open_adds_mb": round(added, 1), "index_mb": round(size), "share": round(added / size, 4)}))


def latency(index: Index, queries: list[str]) -> float:
    """Mean milliseconds a query at k = 10."""
    for query in queries[:20]:
        index.search(query)
    started = time.perf_counter()
    for query in queries:
        index.search(query)
    return (time.perf_counter() - started) / len(queries) * 1000


def sizes(index: Index) -> float:
    facts = index.info()
    return float(facts["index_bytes"] + facts["document_bytes"]) / 1e6


def updates(corpus: str, folder: str, memory: str, rounds: int) -> None:
    rng = random.Random(0)
    documents = list(islice(read_documents(corpus), 700_000))
    queries = [str(d["text"]).split(".")[0][:80] or "dog" for d in rng.sample(documents, QUERIES)]
    share = max(len(documents) // 100, 1)
    with Index.open(folder, memory=parse_size(memory)) as index:
        fresh, before = sizes(index), latency(index, queries)
        for n in range(rounds):
            started = time.perf_counter()
            index.add(Document(d.id, {**d.content, "round": n}) for d in rng.sample(documents, share))
            index.commit()
            took = time.perf_counter() - started
            if n == 0:
                print(f"updating 1% ({share:,} documents): {took:.1f} s")
                print(f"latency before {before:.2f} ms, after {latency(index, queries):.2f} ms", end="")
                started = time.perf_counter()
                index.compact()
                print(f", after compaction ({time.perf_counter() - started:.1f} s) {latency(index, queries):.2f} ms")
                started = time.perf_counter()
                found = index.search(queries[0], filter="round = 0")
                print(f"first search with a filter: {(time.perf_counter() - started) * 1000:.0f} ms, {len(found)} hits")
                started = time.perf_counter()
                index.search(queries[1], filter="round = 0")
                print(f"second search with the same filter: {(time.perf_counter() - started) * 1000:.1f} ms")
        index.compact()
        grown = sizes(index)
        print(f"size fresh {fresh:.0f} MB, after {rounds} rounds and compaction {grown:.0f} MB: {grown / fresh:.3f}")
        print("verify:", verify(index.path) or "all is well")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("folder", help="where to build the index; replaced if it is one")
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--step", choices=["build", "open", "updates"], help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.step == "build":
        build(o.corpus, o.folder, o.memory)
    elif o.step == "open":
        open_once(o.folder)
    elif o.step == "updates":
        updates(o.corpus, o.folder, o.memory, o.rounds)
    else:
        for step in ("build", "open", "updates"):
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--step", step], check=True)


if __name__ == "__main__":
    main()
