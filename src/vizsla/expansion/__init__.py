"""Documents in, documents with a field of generated queries out; the queries filtered."""

from __future__ import annotations

from vizsla.expansion.expanding import PRESETS, ExpansionReport, count_documents, expand
from vizsla.expansion.filtering import (
    FilterReport,
    ModelScorer,
    QueryFilter,
    QueryScorer,
    RerankerScorer,
    filter_queries,
)
from vizsla.expansion.output import ExpansionSettings

__all__ = [
    "PRESETS",
    "ExpansionReport",
    "ExpansionSettings",
    "FilterReport",
    "ModelScorer",
    "QueryFilter",
    "QueryScorer",
    "RerankerScorer",
    "count_documents",
    "expand",
    "filter_queries",
]
