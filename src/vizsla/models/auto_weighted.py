"""Sums whose weight is fitted to the documents: BM51, which is BM25 and BM26 at the same strength."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vizsla.models.model import Component, Fields, Model, Part, Sum, counted, field_text
from vizsla.vectors import SparseVectors

SAMPLE = 400
"""So many documents a weight is fitted on."""
LEAST = 50  # documents long enough to ask about
_QUERIES = 200
_WORDS = (4, 12)  # in a pseudo-query


@dataclass(frozen=True)
class AutoWeightedSum(Sum):
    """A sum whose second part is weighed so that both say equally loudly where a few words came from.

    Pseudo-queries are stretches of four to twelve words of the documents. Each part lifts the document they came from
    above the mean of all others by some score; the weight makes these the same on average. It sits on the query side,
    so it can be fitted when documents are there already. No query of a user or of a test set is looked at.
    """

    @property
    def needs_fit(self) -> bool:
        return True

    def fit(self, documents: Sequence[Fields]) -> Model:
        """The sum with its weight fitted; too few documents leave it as it is, to be fitted when there are more."""
        first, *others = self.parts
        queries, sources = _pseudo_queries(documents, self.fields)
        if len(queries) < LEAST:
            return self
        wanted = _lift(first.component, documents, queries, sources) * first.weight
        parts = [first]
        for part in others:
            lift = _lift(part.component, documents, queries, sources)
            fitted = float(f"{wanted / lift:.4g}") if lift > 0 < wanted else part.weight
            parts.append(Part(fitted, part.component))
        return Sum(tuple(parts), self.name)

    def describe(self, folder: Any) -> dict[str, Any]:
        return {**super().describe(folder), "balanced": True}


def _pseudo_queries(documents: Sequence[Fields], fields: Sequence[str]) -> tuple[list[str], list[int]]:
    """Stretches of documents and which document each is from; the same documents give the same."""
    dice = random.Random(0)
    texts = [(i, words) for i, d in enumerate(documents) if len(words := field_text(d, fields).split()) >= _WORDS[1]]
    chosen = dice.sample(texts, min(_QUERIES, len(texts)))
    queries = []
    for _, words in chosen:
        size = dice.randint(*_WORDS)
        start = dice.randint(0, len(words) - size)
        queries.append(" ".join(words[start : start + size]))
    return queries, [i for i, _ in chosen]


def _lift(component: Component, documents: Sequence[Fields], queries: list[str], sources: list[int]) -> float:
    """By how much a query's own document scores above the mean of all."""
    stored = component.reader().read(documents)  # once: a network is slow
    statistics = counted(stored)
    asked, rows = component.query_vectors(queries, statistics), component.weighed(stored, statistics)
    assert isinstance(asked, SparseVectors)
    names = [rows.vocabulary[i] for i in range(len(rows.vocabulary))]
    known = {name: i for i, name in enumerate(names)}
    places = np.array([known.get(asked.vocabulary[i], -1) for i in range(len(asked.vocabulary))], np.int64)
    weights, lifts = np.zeros(len(names)), []
    for (a, z), source in zip(pairwise(asked.pointers.tolist()), sources, strict=True):
        terms = places[asked.indices[a:z]]
        weights[terms[terms >= 0]] = asked.values[a:z][terms >= 0]
        scores = np.add.reduceat(np.append(weights[rows.indices] * rows.values, 0.0), rows.pointers[:-1])
        scores[np.diff(rows.pointers) == 0] = 0.0
        lifts.append(scores[source] - scores.mean())
        weights[:] = 0.0
    return float(np.mean(lifts))
