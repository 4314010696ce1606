"""Two retrievers of the same documents beside each other: rankings are equal, except inside ties of rounding."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vizsla import Index, Model, Retriever
from vizsla.backends.qdrant import QdrantIndex

ROUNDING = 1e-6
WORDS = [f"word{i}" for i in range(60)]


def documents(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    return [
        {
            "id": f"d{i}",
            "title": " ".join(rng.choices(WORDS, weights, k=3)),
            "text": " ".join(rng.choices(WORDS, weights, k=rng.randrange(0, 40))),
            "year": 1990 + i % 30,
            "tags": rng.sample(["a", "b", "c"], rng.randrange(3)),
        }
        for i in range(count)
    ]


def queries(count: int, seed: int = 1) -> dict[str, str]:
    rng = random.Random(seed)
    return {f"q{i}": " ".join(rng.choices(WORDS, k=rng.randrange(1, 6))) for i in range(count)}


def differences(
    expected: Retriever,
    other: Retriever,
    queries: Mapping[str, str],
    k: int,
    filter: str | None = None,
    *,
    cancelling: bool = False,
) -> list[str]:
    """What is wrong with the other's rankings: another number of documents, another score, another order of scores.

    `cancelling`: products of vectors add up numbers far larger than their sum, so that rounding is relative to the
    largest scores there are, not to each.
    """
    deep, found = expected.run(queries, k + 50, filter), other.run(queries, k, filter)
    wrong = []
    for query in queries:
        scores = dict(deep[query])
        first, second = list(deep[query])[:k], list(found[query])
        if len(first) != len(second):
            wrong.append(f"{query}: {len(second)} documents, not {len(first)}")
            continue
        if len({doc_id for doc_id, _ in second}) < len(second):
            wrong.append(f"{query}: a document twice")
        largest = max(map(abs, scores.values()), default=0.0)
        for rank, ((mine, score), (yours, its)) in enumerate(zip(first, second, strict=True), 1):
            margin = ROUNDING * (4 * largest if cancelling else max(abs(score), abs(its)))
            if abs(score - its) > margin:
                wrong.append(f"{query}: rank {rank} has the score {its}, not {score}")
            elif mine != yours and (yours not in scores or abs(scores[yours] - score) > margin):
                wrong.append(f"{query}: rank {rank} is {yours}, not {mine}")
    return wrong


def both(tmp_path: Path, where: str, model: Model | str, some: list[dict[str, Any]]) -> tuple[Index, QdrantIndex]:
    """An index and a collection with the same documents."""
    local, cluster = Index.create(tmp_path / "i", model), QdrantIndex.create(where, model)
    for retriever in (local, cluster):
        added = retriever.add(some)
        assert added.documents == len(some)
        retriever.commit()
    return local, cluster
