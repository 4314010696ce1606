"""What is left of rankings in other engines: an index's vectors as they would store them, searched exhaustively.

    python bench/exported.py DATASET [--model MODEL] [--split SPLIT]

DATASET is a folder in BEIR's layout, MODEL one with sparse and dense parts. Compares, over the queries of the split,
the index's own rankings with those of whole weights (as `anserini` and `ciff` write them) and of weights of 9
significant bits (as Elasticsearch and OpenSearch keep those of `elasticsearch` and `opensearch`). Prints a table in
Markdown: nDCG@10, the share of rankings whose top 10 is the same list, and the largest relative error of a score.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vizsla import Index
from vizsla.backends.impacts import DEFAULT_QUANTISER
from vizsla.datasets import BeirDataset
from vizsla.evaluation import evaluate
from vizsla.index import encoded_queries, exported_documents, facts_for_export
from vizsla.runs import Qrels, Run
from vizsla.vectors import Quantiser

K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--model", default="bm25")
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    dataset = BeirDataset(options.dataset)
    qrels = dataset.qrels(options.split)
    queries = dict(dataset.queries_of(qrels))
    with tempfile.TemporaryDirectory() as folder, Index.create(f"{folder}/index", options.model) as index:
        index.add(dataset.documents())
        index.commit()
        own = index.run(queries, K)
        kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {"9 bits": nine_bits}
        if not facts_for_export(index).dense:
            kinds[f"whole, {DEFAULT_QUANTISER}"] = Quantiser.parse(DEFAULT_QUANTISER).quantise
        print("| weights | nDCG@10 | same top 10 | largest error of a score |\n|---|---|---|---|")
        print(f"| the index's own | {ndcg(own, qrels):.4f} | | |")
        for name, rounded in kinds.items():
            found = searched(index, queries, rounded)
            scale = 100 if name.startswith("whole") else 1
            same = sum([d for d, _ in own[q]] == [d for d, _ in found[q]] for q in queries) / len(queries)
            pairs = [(s, dict(found[q]).get(d, 0) / scale) for q in queries for d, s in own[q] if d in dict(found[q])]
            error = max(abs(a - b) / a for a, b in pairs)
            print(f"| {name} | {ndcg(found, qrels):.4f} | {same:.1%} | {error:.2%} |")


def ndcg(run: Run, qrels: Qrels) -> float:
    return evaluate(run, qrels, "nDCG@10").measures["nDCG@10"]


def nine_bits(weights: np.ndarray) -> np.ndarray:
    """Weights as a feature field of Lucene keeps them: the first bits of 32."""
    return (weights.astype(np.float32).view(np.uint32) >> 15 << 15).astype(np.uint32).view(np.float32)


def searched(index: Index, queries: dict[str, str], rounded: Callable[[np.ndarray], np.ndarray]) -> Run:
    """The top 10 of each query over documents with rounded weights, ties in the order of insertion."""
    ids: list[str] = []
    lists: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    dense: dict[str, list[np.ndarray]] = {}
    for number, document in enumerate(exported_documents(index)):
        ids.append(document.id)
        for namespace, terms in document.terms.items():
            weights = rounded(np.fromiter(terms.values(), np.float64, len(terms))).tolist()
            for term, weight in zip(terms, weights, strict=True):
                places, values = lists.setdefault((namespace, term), ([], []))
                places.append(number)
                values.append(weight)
        for namespace, vector in document.vectors.items():
            dense.setdefault(namespace, []).append(vector)
    matrices = {namespace: np.stack(rows) for namespace, rows in dense.items()}  # all documents have text
    rankings = {}
    for query_id, query in zip(queries, encoded_queries(index, list(queries.values())), strict=True):
        scores = np.zeros(len(ids))
        for namespace, terms in query.terms.items():
            for term, weight in terms.items():
                places, values = lists.get((namespace, term), ([], []))
                scores[places] += weight * np.array(values)
        for namespace, vector in query.vectors.items():
            scores += matrices[namespace] @ vector
        best = np.argsort(-scores, kind="stable")[:K]
        rankings[query_id] = [(ids[i], float(scores[i])) for i in best.tolist() if scores[i]]
    return Run(rankings)


if __name__ == "__main__":
    main()
