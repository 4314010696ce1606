"""BM25 and a cross-encoder by depth: what reranking gains, and what a query costs.

    python bench/reranking.py DATASET ... [--reranker reranker-small] [--depths 20,50,100] [--first bm25]
        [--beside bm51] [--length 0] [--most 0] [--timed 10] [--threads 0] [--split test]

DATASET: folders in BEIR's layout. Prints nDCG@10 of the first stage, of the models beside it, and of the first stage
reranked to each depth, all on the same queries: every n-th of the judged ones, so that there are at most `--most` of
them. Then the milliseconds of a query, over `--timed` queries: median and highest of searching an index and reranking
what it finds, as `vizsla search --rerank` and `RerankedRetriever` do it, after one that is not counted. `--length`: how
many tokens of a pair are read at most. `--threads`: how many pairs are scored at once; by default as many as there are
processors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.evaluation import evaluate
from vizsla.evaluation.rerank_depths import evaluate_at_depths, parse_depths
from vizsla.index import Index
from vizsla.models import Reranker
from vizsla.models.reranker import SHIPPED_RERANKER, BertPairs
from vizsla.retrievers import RerankedRetriever, pair_scores
from vizsla.runs import Qrels, Retriever, Run

MEASURE, SHOWN = "nDCG@10", 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--reranker", default=SHIPPED_RERANKER)
    parser.add_argument("--depths", type=parse_depths, default=[20, 50, 100])
    parser.add_argument("--first", default="bm25")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--timed", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    reranker = Reranker.open(options.reranker, length=options.length)
    if options.threads:
        network: Any = reranker.network
        running = network.network.running if isinstance(network, BertPairs) else network.running
        running.threads = options.threads
    print(f"{reranker.name}, {reranker.length} tokens of a pair")
    for folder in options.datasets:
        dataset = BeirDataset.open(folder)
        qrels, queries = chosen(dataset, options.split, options.most)
        print(f"\n{dataset.name}, {len(queries)} queries, {MEASURE}")
        for name in options.beside or ["bm51"]:
            with tempfile.TemporaryDirectory() as place, indexed(dataset, name, place) as index:
                show(name, index.run(queries, SHOWN), qrels, timed(index, queries, options.timed))
        with tempfile.TemporaryDirectory() as place, indexed(dataset, options.first, place) as index:
            run = index.run(queries, max(options.depths))
            show(options.first, run, qrels, timed(index, queries, options.timed))
            scores = pair_scores(index, [run], queries, reranker, max(options.depths))
            results = evaluate_at_depths({"run": run}, scores, qrels, MEASURE, options.depths)
            for result in results[1:]:
                both = RerankedRetriever(index, reranker, result.depth)
                line = f"{options.first} + CE, depth {result.depth}"
                show_line(line, result.measures[MEASURE], timed(both, queries, options.timed))


def chosen(dataset: BeirDataset, split: str, most: int) -> tuple[Qrels, dict[str, str]]:
    """The judged queries, or every n-th of them."""
    qrels = dataset.qrels(split)
    names = list(dataset.queries_of(qrels))
    names = names[:: -(-len(names) // most)] if most else names
    some = Qrels({name: qrels.judgements[name] for name in names})
    return some, dataset.queries_of(some)


def indexed(dataset: BeirDataset, model: str, place: str) -> Index:
    """The documents of a data set, indexed with a model."""
    index = Index.create(Path(place) / "index", model)
    index.add(dataset.documents())
    index.commit()
    return index


def timed(retriever: Retriever, queries: dict[str, str], count: int) -> np.ndarray:
    """Milliseconds of some queries, one after the other."""
    texts = list(queries.values())
    texts = texts[:: max(1, len(texts) // count)][:count]
    retriever.search(texts[0], SHOWN)  # loads or compiles what others reuse
    times = []
    for text in texts:
        started = time.perf_counter()
        retriever.search(text, SHOWN)
        times.append(1000 * (time.perf_counter() - started))
    return np.array(times)


def show(name: str, run: Run, qrels: Qrels, times: np.ndarray) -> None:
    show_line(name, evaluate(run, qrels, MEASURE).measures[MEASURE], times)


def show_line(name: str, figure: float, times: np.ndarray) -> None:
    print(f"{name:<30} {figure:.4f}   {np.median(times):>8.1f} ms a query, {times.max():>8.1f} at most", flush=True)


if __name__ == "__main__":
    main()
