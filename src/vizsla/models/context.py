"""What a model may look at while it turns queries into vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vizsla.models.model import Component
from vizsla.models.statistics import Statistics


class SearchContext(Protocol):
    """The documents a query is searched in, only those that pass its filter: for pseudo-relevance feedback."""

    def top_documents(
        self, component: Component, queries: Sequence[Mapping[str, float]], k: int
    ) -> list[dict[int, float]]:
        """For queries given as weighted terms: the numbers of the best k documents and their scores."""

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of documents by their numbers."""

    def statistics_of(self, component: Component) -> Statistics:
        """The statistics of a component's terms."""
