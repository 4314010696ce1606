"""All points of a collection, some at a time; and the statistics counted again from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant.connection import Connection
from vizsla.backends.qdrant.layout import COUNTS, DOCUMENT, ID, LENGTHS, NUMBER, SPARSE, point_id
from vizsla.backends.qdrant.points import StoredPoint
from vizsla.backends.qdrant.state import CollectionState
from vizsla.backends.qdrant.terms import all_terms, store_terms
from vizsla.models import Model, SparseComponent

BATCH = 500
"""Points that are read at once."""


def find_points(
    connection: Connection, base: str, ids: Sequence[str], *, vectors: bool | list[str] = False, document: bool = True
) -> list[StoredPoint]:
    """The points of documents by their ids; documents that are not there are left out."""
    found = []
    for first in range(0, len(ids), BATCH):
        wanted = [point_id(doc_id) for doc_id in ids[first : first + BATCH]]
        records = connection.call(QdrantClient.retrieve, base, wanted, _payload(document), vectors)
        found += [StoredPoint.of(record) for record in records]
    return found


def all_points(
    connection: Connection,
    base: str,
    *,
    vectors: bool | list[str] = False,
    document: bool = True,
    condition: models.Filter | None = None,
) -> Iterator[list[StoredPoint]]:
    """All points that meet a condition, in any order, some at a time."""
    wanted: dict[str, Any] = {"with_payload": _payload(document), "with_vectors": vectors}
    offset = None
    while True:
        records, offset = connection.call(QdrantClient.scroll, base, condition, BATCH, offset=offset, **wanted)
        if records:
            yield [StoredPoint.of(record) for record in records]
        if offset is None:
            return


def _payload(document: bool) -> list[str]:
    return [ID, NUMBER, LENGTHS, COUNTS, *([DOCUMENT] if document else [])]


def sparse_components(model: Model) -> dict[str, SparseComponent]:
    """The sparse components of a model by namespace."""
    return {c.namespace: c for _, c in model.parts if isinstance(c, SparseComponent)}


def recount(connection: Connection, state: CollectionState, model: Model) -> CollectionState:
    """The state with all statistics counted again from the points, which also corrects the terms: after a crash."""
    components, frozen = sparse_components(model), state.frozen_statistics()
    terms = {entry.number: entry for entry in all_terms(connection, state.base)}
    spaces = {number: entry.namespace for number, entry in terms.items()}
    frequencies: Counter[int] = Counter()
    occurrences: Counter[int] = Counter()
    lengths: dict[str, list[np.ndarray]] = {name: [np.zeros(0, np.int64)] for name in state.namespaces}
    documents, last = 0, -1
    vectors = [SPARSE] if components else False
    for points in all_points(connection, state.base, vectors=vectors, document=False):
        for point in points:
            documents, last = documents + 1, max(last, point.number)
            frequencies.update(point.terms.tolist())
            values = point.values(components, frozen, spaces).tolist()
            for number, value in zip(point.terms.tolist(), values, strict=True):
                occurrences[number] += value
        for name, known in lengths.items():
            known.append(np.array([point.lengths.get(name, 0) for point in points], np.int64))
    wrong = [
        entry
        for number, entry in terms.items()
        if entry.documents != frequencies[number] or entry.occurrences != occurrences[number]
    ]
    for entry in wrong:
        entry.documents, entry.occurrences = frequencies[entry.number], float(occurrences[entry.number])
    store_terms(connection, state.base, wrong)
    namespaces = {}
    for name, space in state.namespaces.items():
        here = np.concatenate(lengths[name])
        counted = int(np.count_nonzero(here)), int(here.sum()), max(space.longest, int(here.max(initial=0)))
        namespaces[name] = replace(space, documents=counted[0], total_length=counted[1], longest=counted[2])
    return replace(
        state,
        namespaces=namespaces,
        documents=documents,
        next_number=max(state.next_number, last + 1),
        next_term=max([state.next_term, *(number + 1 for number in terms)]),
    )


def points_in_order(connection: Connection, base: str) -> Iterator[list[StoredPoint]]:
    """All points in the order of their insertion, some at a time, without vectors."""
    first = 0
    while True:
        order = models.OrderBy(key=NUMBER, direction=models.Direction.ASC, start_from=first)
        records, _ = connection.call(QdrantClient.scroll, base, None, BATCH, order, with_payload=_payload(True))
        if not records:
            return
        points = [StoredPoint.of(record) for record in records]
        yield points
        first = points[-1].number + 1
