"""Documents in, documents with a field of generated queries out; the queries filtered."""

from __future__ import annotations

from vizsla.expansion.expanding import ExpansionReport, count_documents, expand
from vizsla.expansion.filtering import FilterReport, QueryFilter, filter_queries
from vizsla.expansion.presets import PRESETS
from vizsla.expansion.scoring import ModelScorer, QueryScorer, RerankerScorer
from vizsla.expansion.settings import ExpansionSettings

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
