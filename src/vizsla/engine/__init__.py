"""Vectors to the top k: numba kernels over inverted lists. Knows numbers only, never text."""

from __future__ import annotations

from vizsla.engine.lists import DamagedSegmentError, Lists
from vizsla.engine.merge import Merge, MergedLists, living_frequencies
from vizsla.engine.query import Query
from vizsla.engine.search import Hits, search, search_many
from vizsla.engine.segment import Segment, build_segment, by_document
from vizsla.engine.weighting import Weighting, Weightings

__all__ = [
    "DamagedSegmentError",
    "Hits",
    "Lists",
    "Merge",
    "MergedLists",
    "Query",
    "Segment",
    "Weighting",
    "Weightings",
    "build_segment",
    "by_document",
    "living_frequencies",
    "search",
    "search_many",
]
