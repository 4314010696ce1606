"""Vectors to the top k: numba kernels over inverted lists. Knows numbers only, never text."""

from __future__ import annotations

from vizsla.engine.merge import Merge, living_frequencies
from vizsla.engine.search import Hits, Query, search
from vizsla.engine.segment import DamagedSegmentError, Segment, build_segment, by_document
from vizsla.engine.weighting import Weighting, Weightings

__all__ = [
    "DamagedSegmentError",
    "Hits",
    "Merge",
    "Query",
    "Segment",
    "Weighting",
    "Weightings",
    "build_segment",
    "by_document",
    "living_frequencies",
    "search",
]
