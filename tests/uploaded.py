"""What a collection in Qdrant holds, in a form that does not depend on the numbers of its terms."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vizsla import Model
from vizsla.backends.qdrant.connection import Address, Connection
from vizsla.backends.qdrant.points import all_points
from vizsla.backends.qdrant.state import read_state
from vizsla.datasets import documents_from
from vizsla.index import Shard, encode_shard

WORDS = [f"word{i}" for i in range(80)]


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents, some of them empty."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    return [
        {
            "id": f"d{i}",
            "title": " ".join(rng.choices(WORDS, weights, k=rng.randrange(3))),
            "text": " ".join(rng.choices(WORDS, weights, k=rng.randrange(40))),
            "year": 1990 + i % 30,
        }
        for i in range(count)
    ]


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
