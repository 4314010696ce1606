"""Vectors to the top k: numba kernels over inverted lists. Knows numbers only, never text."""

from __future__ import annotations

from vizsla.engine.search import Hits, Query, search
from vizsla.engine.segment import Segment, build_segment
from vizsla.engine.weighting import Weighting, Weightings

__all__ = ["Hits", "Query", "Segment", "Weighting", "Weightings", "build_segment", "search"]
