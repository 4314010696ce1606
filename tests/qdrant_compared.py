"""Collections in Qdrant beside indexes of the same documents, and what a collection holds.

Rankings are equal, except inside ties of rounding. What a collection holds is told in a form that does not depend on
the numbers of its terms.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vizsla import Index, Model, Retriever
from vizsla.backends.qdrant import QdrantIndex
from vizsla.backends.qdrant.connection import Address, Connection
from vizsla.backends.qdrant.points import all_points
from vizsla.backends.qdrant.state import read_state
from vizsla.datasets import documents_from
from vizsla.index import Shard, encode_shard

ROUNDING = 1e-6
WORDS = [f"word{i}" for i in range(60)]


def documents(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents, some of them empty."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    return [
        {
            "id": f"d{i}",
            "title": " ".join(rng.choices(WORDS, weights, k=rng.randrange(4))),
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


def encode(some: Sequence[dict[str, Any]], folder: Path, model: str | Model, shards: int = 3, batch: int = 20) -> Path:
    """All parts."""
    folder.mkdir()
    for number in range(1, shards + 1):
        file = folder / f"part-{number}.parquet"
        encode_shard(documents_from(some), file, model, Shard(number, shards), batch=batch)  # type: ignore[arg-type]
    return folder


def contents(where: str) -> dict[str, Any]:
    """All documents with their vectors, all terms, and the statistics of a collection."""
    place = Address.parse(where)
    connection = Connection(place.servers)
    try:
        state = read_state(connection, place.name)
        terms = {entry.number: entry for entry in state.terms(connection).all()}
        found: dict[str, Any] = {}
        for page in all_points(connection, state.base, vectors=True):
            for point in page:
                assert point.doc_id not in found, f"{point.doc_id} is there twice"
                named = [(terms[n].namespace, terms[n].term) for n in point.terms.tolist()]
                found[point.doc_id] = {
                    "number": point.number,
                    "lengths": point.lengths,
                    "content": point.content,
                    "counts": {terms[n].term: value for n, value in point.counts.items()},
                    "terms": dict(sorted(zip(named, point.weights.tolist(), strict=True))),
                    "vectors": {name: rows.tolist() for name, rows in sorted(point.vectors.items())},
                }
        counted = {(e.namespace, e.term): (e.documents, e.occurrences) for e in terms.values() if e.documents}
        facts = {"documents": state.documents, "namespaces": state.namespaces, "status": state.status}
        return {"documents": found, "terms": counted, **{f"state.{k}": v for k, v in facts.items()}}
    finally:
        connection.close()
