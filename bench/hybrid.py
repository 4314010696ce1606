"""How long a hybrid takes beside its parts, other rules of combination and other indexes, one question at a time.

    python bench/hybrid.py queries.jsonl sum.index [spar.index ...] [--questions 300] [--rounds 3] [-k 10]

The first index holds a sum of models, as `minilm + 0.025 * bm25`; the others are asked as they are. Ways take turns
within each round, in one thread; times are those of the best round, as shares of the sum's, with and without what it
takes to encode the questions.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from vizsla.index import Index
from vizsla.models import DenseComponent, Model


def asked(index: Index, texts: list[str], k: int, **told: str | Model) -> Callable[[], None]:
    def search() -> None:
        for text in texts:
            index.search(text, k, **told)  # type: ignore[arg-type]

    return search


def encoded(model: Model, texts: list[str]) -> Callable[[], None]:
    """What making the dense vectors of questions takes."""

    def encode() -> None:
        for part in model.parts:
            if isinstance(part.component, DenseComponent):
                for text in texts:
                    part.component.query_embeddings([text])

    return encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", type=Path)
    parser.add_argument("indexes", type=Path, nargs="+")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-k", type=int, default=10)
    options = parser.parse_args()
    with options.queries.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, options.questions)]
    first, *others = [Index.open(folder) for folder in options.indexes]
    if len(first.model.parts) < 2:
        parser.error(f"{options.indexes[0]} holds {first.model.name}, which is no sum")
    whole, parts = first.model.name, [part.component for part in first.model.parts]
    ways = {whole: (asked(first, texts, options.k), encoded(first.model, texts))}
    for part in parts:
        ways[f"{part.name} alone"] = asked(first, texts, options.k, model=part), encoded(part, texts)
    for rule in ("union", "rrf"):
        ways[f"--combine {rule}"] = asked(first, texts, options.k, combine=rule), encoded(first.model, texts)
    for index in others:
        ways[f"{index.path.name}: {index.model.name}"] = asked(index, texts, options.k), encoded(index.model, texts)
    best = {way: [float("inf"), float("inf")] for way in ways}
    for _ in range(options.rounds):
        for way, does in ways.items():
            for i, do in enumerate(does):
                started = time.perf_counter()
                do()
                best[way][i] = min(best[way][i], time.perf_counter() - started)
    print(f"{len(texts)} questions; {whole}: {1000 * best[whole][0] / len(texts):.2f} ms each")
    for way, (total, encoding) in best.items():
        rest = (total - encoding) / (best[whole][0] - best[whole][1])
        print(f"{way:<70} {total / best[whole][0]:>6.2f} {rest:>6.2f} without encoding")


if __name__ == "__main__":
    main()
