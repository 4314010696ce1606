"""What query expansion costs, beside a plain search of the same index.

    python bench/query_expansion.py INDEX QUESTIONS [-m MODEL ...] [-k 20] [--most 500] [--rounds 5]

One question after the other, on one thread: making the query, then finding its k best documents. Models take turns,
round by round, so that a busy machine is busy for all of them. The ratios, of the search alone and of all, are to the
index's own model. Of the questions (.jsonl with texts, or .tsv) every n-th is taken.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from vizsla.datasets import read_queries
from vizsla.index import Index
from vizsla.models import parse_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("-m", "--model", action="append", default=[])
    parser.add_argument("-k", type=int, default=20)
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts = list(read_queries(options.questions).values())
    texts = texts[:: max(1, len(texts) // options.most)][: options.most]
    with Index.open(options.index) as index, index._reading() as searcher:
        models = {"(plain)": index.model} | {name: parse_model(name) for name in options.model}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
        terms: dict[str, float] = {}
        for turn in range(options.rounds + 1):
            for name, model in models.items():
                bound = searcher.bind(model)
                begin = time.perf_counter()
                queries = [searcher.encode([text], bound)[0] for text in texts]
                encoded = time.perf_counter()
                for query in queries:
                    searcher.top_k([query], bound, options.k)
                found = time.perf_counter()
                terms[name] = terms.get(name) or np.mean(
                    [sum(map(len, bound.query_weights(text, searcher.context(None)).values())) for text in texts[:200]]
                )
                if turn:  # the first one compiles and fills caches
                    times[name].append((1000 * (encoded - begin) / len(texts), 1000 * (found - encoded) / len(texts)))
    plain = np.array(times["(plain)"])
    print(f"{len(texts)} questions, k = {options.k}, milliseconds a question, median of {options.rounds} rounds\n")
    print(f"{'model':<50} {'terms':>6} {'encode':>8} {'search':>8} {'to plain':>8} {'in all':>8}")
    for name, rows in times.items():
        encode, search = np.median(rows, 0)
        ratio, whole = np.median(np.array(rows)[:, 1] / plain[:, 1]), np.median(np.sum(rows, 1) / plain.sum(1))
        print(f"{name[-50:]:<50} {terms[name]:>6.1f} {encode:>8.3f} {search:>8.3f} {ratio:>8.2f} {whole:>8.2f}")


if __name__ == "__main__":
    main()
