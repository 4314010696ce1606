"""What each part of a model finds, with the scores of all parts: enough to try any weights without searching again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.combining import parts_of, union_of
from vizsla.index.searching import at_least_one
from vizsla.index.snapshot import Snapshot
from vizsla.models import Model
from vizsla.runs.retriever import check_queries

_TOGETHER = 512  # queries that are encoded and searched at once


@dataclass(frozen=True)
class Pool:
    """The best documents of each part for a query, in the order of insertion, and their scores by each part.

    Weights of parts are in the scores. A part that knows nothing of a document gives it 0.
    """

    documents: Sequence[str]
    scores: np.ndarray
    """[parts, documents]"""


def pools_of(snapshot: Snapshot, queries: Sequence[str], depth: int, model: Model | None) -> list[Pool]:
    """The pool of each query, from the best `depth` documents of each part."""
    if snapshot.splitter is not None:
        raise VizslaError(f"{snapshot.path}: the index holds passages of documents, whose scores cannot be pooled")
    queries = check_queries(queries)
    depth = at_least_one(depth, "the depth of a pool")
    asking = snapshot.asking if model is None else snapshot.bind(model)
    spaces = [space for space, _ in asking.parts]
    pools = []
    for first in range(0, len(queries), _TOGETHER):
        encoded = snapshot.encode_queries(queries[first : first + _TOGETHER], asking)
        asked = [parts_of(query, spaces) for query in encoded]
        found = [snapshot.search(part, asking, depth, None, 1.0) for part in map(list, zip(*asked, strict=True))]
        for parts, best in zip(asked, zip(*found, strict=True), strict=True):
            numbers = union_of([hits.numbers for hits in best])
            scores = np.zeros((len(parts), len(numbers)))
            for row, part in zip(scores, parts, strict=True):
                hits = snapshot.search_among(part, asking, numbers, len(numbers)) if len(numbers) else best[0]
                row[np.searchsorted(numbers, hits.numbers)] = hits.scores
            ids = snapshot.ids(numbers.tolist())
            pools.append(Pool([ids[n] for n in numbers.tolist()], scores))
    return pools
