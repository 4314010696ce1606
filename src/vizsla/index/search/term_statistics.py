"""How common the terms of a text are in an index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.searcher import Searcher
from vizsla.models.components import typed_terms


class TermStatistics(NamedTuple):
    """How common a term is in the live documents."""

    namespace: str
    term: str
    documents: int
    occurrences: float
    words: tuple[str, ...] = ()
    """The words of the text that make the term."""
    is_piece: bool = False
    """Whether it is a piece of these words only."""


def term_statistics(searcher: Searcher, text: str) -> list[TermStatistics]:
    """For each term of a text, in each namespace: in how many documents and how often it occurs."""
    found = []
    for part in searcher.own.sparse:
        typed = typed_terms(text, part.component.tokens(text))
        terms = list(typed)
        numbers, frequencies = part.statistics.terms.lookup(part.space, terms)
        counts = frequencies.tolist(), _occurrences(searcher.snapshot, numbers)
        found += [
            TermStatistics(part.component.namespace, *row)
            for row in zip(terms, *counts, *zip(*typed.values(), strict=True), strict=True)
        ]
    return found


def _occurrences(snapshot: Snapshot, numbers: np.ndarray) -> list[float]:
    """How often terms occur in live documents, or the sums of their weights."""
    totals = np.zeros(len(numbers))
    with snapshot.naming_damage():
        for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
            for i, number in enumerate(numbers.tolist()):
                documents, values = segment.list_of(number)
                totals[i] += values.sum() if alive is None else values[alive[documents]].sum()
    return totals.tolist()
