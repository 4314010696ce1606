"""Documents in, documents with a field of generated queries out; the queries filtered and described."""

from __future__ import annotations

from vizsla.expansion.describing import JudgedQueries, QueryFacts, describe_queries
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
    "JudgedQueries",
    "ModelScorer",
    "QueryFacts",
    "QueryFilter",
    "QueryScorer",
    "RerankerScorer",
    "count_documents",
    "describe_queries",
    "expand",
    "filter_queries",
]
