"""Queries for documents: generated, filtered, or drawn from the documents themselves."""

from __future__ import annotations

from vizsla.expansion.drawing import DEFAULT_STYLES, STYLES, DrawingSettings, DrawnDataset, draw_queries
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
    "DEFAULT_STYLES",
    "PRESETS",
    "STYLES",
    "DrawingSettings",
    "DrawnDataset",
    "ExpansionReport",
    "ExpansionSettings",
    "FilterReport",
    "ModelScorer",
    "QueryFilter",
    "QueryScorer",
    "RerankerScorer",
    "count_documents",
    "draw_queries",
    "expand",
    "filter_queries",
]
