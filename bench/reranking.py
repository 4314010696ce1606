"""BM25 and a cross-encoder by depth: what reranking gains, and what a query costs.

    python bench/reranking.py DATASET ... [--reranker reranker-small] [--depths 20,50,100] [--first bm25]
        [--beside bm51] [--length 0] [--most 0] [--timed 10] [--threads 0] [--split test] [--scores FOLDER]
        [--budget 0]

DATASET: folders in BEIR's layout. Prints nDCG@10 of the first stage, of the models beside it, and of the first stage
reranked to each depth, all on the same queries: every n-th of the judged ones, so that there are at most `--most` of
them. Then the milliseconds of a query, over `--timed` queries: median and highest of searching an index and reranking
what it finds, as `vizsla search --rerank` and `RerankedRetriever` do it, after one that is not counted. `--length`: how
many tokens of a pair are read at most. `--threads`: how many pairs are scored at once; by default as many as there are
processors.

Scoring takes hours on few processors. With `--scores` the scores are kept in a folder, ten queries at a time and in
random order: the same command goes on after a stop. With `--budget` no ten are begun after so many seconds for each
data set, and the figures are those of the random part that is scored by then; `--timed 0` times nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.evaluation import evaluate
from vizsla.evaluation.retrieval import evaluate_at_depths, parse_depths
from vizsla.index import Index
from vizsla.models import Reranker
from vizsla.models.reranker import SHIPPED_RERANKER, BertPairs
from vizsla.retrievers import RerankedRetriever, pair_scores
from vizsla.retrievers.reranking import PairScores
from vizsla.runs import Qrels, Retriever, Run

MEASURE, SHOWN = "nDCG@10", 10
TOGETHER = 10  # queries whose scores are kept together


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
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--budget", type=float, default=0.0)
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
            kept = None if options.scores is None else options.scores / f"{dataset.name}-{options.first}.json"
            scores = scored(index, queries, reranker, max(options.depths), kept, options.budget)
            queries = {query: queries[query] for query in scores.scores}
            qrels = Qrels({query: qrels.judgements[query] for query in queries})
            print(f"{len(queries)} queries are scored")
            run = index.run(queries, max(options.depths))
            show(options.first, run, qrels, timed(index, queries, options.timed))
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


def scored(
    index: Index, queries: dict[str, str], reranker: Reranker, depth: int, kept: Path | None, budget: float
) -> PairScores:
    """The scores of queries with the documents of the first stage; those in a file are not computed again."""
    if kept is None:
        return pair_scores(index, [index.run(queries, depth)], queries, reranker, depth)
    kept.parent.mkdir(parents=True, exist_ok=True)
    scores = json.loads(kept.read_text()) if kept.exists() else {}
    names, started = sorted(queries), time.perf_counter()
    random.Random(0).shuffle(names)
    names = [name for name in names if name not in scores]
    for a in range(0, len(names), TOGETHER):
        if budget and time.perf_counter() - started > budget:
            break
        some = {name: queries[name] for name in names[a : a + TOGETHER]}
        new = pair_scores(index, [index.run(some, depth)], some, reranker, depth)
        scores |= {name: new.scores.get(name, {}) for name in some}
        kept.write_text(json.dumps(scores))
    return PairScores({name: own for name, own in scores.items() if name in queries})


def indexed(dataset: BeirDataset, model: str, place: str) -> Index:
    """The documents of a data set, indexed with a model."""
    index = Index.create(Path(place) / "index", model)
    index.add(dataset.documents())
    index.commit()
    return index


def timed(retriever: Retriever, queries: dict[str, str], count: int) -> np.ndarray:
    """Milliseconds of some queries, one after the other."""
    texts = list(queries.values())
    texts = texts[:: max(1, len(texts) // max(count, 1))][:count]
    if not texts:
        return np.zeros(0)
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
    taken = f"   {np.median(times):>8.1f} ms a query, {times.max():>8.1f} at most" if len(times) else ""
    print(f"{name:<30} {figure:.4f}{taken}", flush=True)


if __name__ == "__main__":
    main()
