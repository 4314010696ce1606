"""Auto-weighted sums: a weight is fitted to the documents, so that both parts count equally. BM51 is one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import Model, Part, Sum
from vizsla.models.sparse_component import SparseComponent, count_statistics
from vizsla.vectors import SparseVectors

SAMPLE = 400
"""How many documents a weight is fitted on."""
MIN_QUERIES = 50
_QUERIES = 200
_WORDS = (4, 12)  # in a pseudo-query


@dataclass(frozen=True)
class AutoWeightedSum(Sum):
    """A sum whose further parts get weights that make them as strong as the first.

    Pseudo-queries are passages of four to twelve words from the documents. Each part scores the document a passage
    came from above the mean of all documents; the weight makes these margins equal on average. It sits on the query
    side, so it can be fitted after documents are indexed. No query of a user or of a test set is used.
    """

    kind: ClassVar[str] = "balanced"

    @property
    def needs_fit(self) -> bool:
        return True

    def fit(self, documents: Sequence[Fields]) -> Model:
        """The sum with its weights fitted. With too few documents it stays as it is, to be fitted later."""
        first, *others = self.parts
        queries, sources = _pseudo_queries(documents, self.fields)
        if len(queries) < MIN_QUERIES:
            return self
        target = _margin(_sparse(first), documents, queries, sources) * first.weight
        parts = [first]
        for part in others:
            margin = _margin(_sparse(part), documents, queries, sources)
            fitted = float(f"{target / margin:.4g}") if margin > 0 < target else part.weight
            parts.append(Part(fitted, part.component))
        return Sum(tuple(parts), self.name)

    def describe(self, folder: Any) -> dict[str, Any]:
        return {**super().describe(folder), self.kind: True}


def _sparse(part: Part) -> SparseComponent:
    if not isinstance(part.component, SparseComponent):
        raise VizslaError(f"weights are fitted for lexical models, and {part.component.name} is dense; give the weight")
    return part.component


def _pseudo_queries(documents: Sequence[Fields], fields: Sequence[str]) -> tuple[list[str], list[int]]:
    """Passages of documents, and the number of the document each is from; the same for the same documents."""
    rng = random.Random(0)
    texts = [(i, words) for i, d in enumerate(documents) if len(words := field_text(d, fields).split()) >= _WORDS[1]]
    chosen = rng.sample(texts, min(_QUERIES, len(texts)))
    queries = []
    for _, words in chosen:
        size = rng.randint(*_WORDS)
        start = rng.randint(0, len(words) - size)
        queries.append(" ".join(words[start : start + size]))
    return queries, [i for i, _ in chosen]


def _margin(component: SparseComponent, documents: Sequence[Fields], queries: list[str], sources: list[int]) -> float:
    """By how much a query's own document scores above the mean of all."""
    encoded = component.document_encoder().encode(documents)  # once: a network is slow
    statistics = count_statistics(encoded)
    query_rows, rows = component.query_vectors(queries, statistics), component.weigh(encoded, statistics)
    assert isinstance(query_rows, SparseVectors)
    names = [rows.vocabulary[i] for i in range(len(rows.vocabulary))]
    column = {name: i for i, name in enumerate(names)}
    columns = np.array([column.get(query_rows.vocabulary[i], -1) for i in range(len(query_rows.vocabulary))], np.int64)
    weights, margins = np.zeros(len(names)), []
    for (a, z), source in zip(pairwise(query_rows.pointers.tolist()), sources, strict=True):
        terms = columns[query_rows.indices[a:z]]
        weights[terms[terms >= 0]] = query_rows.values[a:z][terms >= 0]
        scores = np.add.reduceat(np.append(weights[rows.indices] * rows.values, 0.0), rows.pointers[:-1])
        scores[np.diff(rows.pointers) == 0] = 0.0
        margins.append(scores[source] - scores.mean())
        weights[:] = 0.0
    return float(np.mean(margins))
