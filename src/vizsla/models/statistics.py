"""Statistics of a collection: what BM25 needs to know before a query means anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


class Statistics(Protocol):
    """The statistics of one namespace over the documents that are alive."""

    @property
    def documents(self) -> int:
        """How many documents have at least one term here."""

    @property
    def total_length(self) -> int:
        """How many terms, repeats counted, all documents have here."""

    @property
    def longest(self) -> int:
        """How many terms the longest document has here."""

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        """In how many documents each term occurs; 0 for unknown terms."""


def average_length(statistics: Statistics) -> float:
    """The mean length of the documents that have any term; 1 where there are none."""
    return statistics.total_length / statistics.documents if statistics.documents else 1.0


@dataclass(frozen=True)
class CountedStatistics:
    """Statistics counted in memory.

    >>> s = CountedStatistics(documents=2, total_length=5, longest=3, frequencies={"dog": 2})
    >>> average_length(s), s.document_frequencies(["dog", "cat"]).tolist()
    (2.5, [2, 0])
    """

    documents: int
    total_length: int
    longest: int
    frequencies: Mapping[str, int] = field(repr=False)

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return np.array([self.frequencies.get(t, 0) for t in terms], np.int64)
