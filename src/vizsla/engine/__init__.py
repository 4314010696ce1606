"""Vectors to the top k: numba kernels over inverted lists. Knows numbers only, never text."""

from __future__ import annotations

from vizsla.engine.kinds import KINDS, STORES, VectorIndex
from vizsla.engine.lists import DamagedSegmentError, Lists
from vizsla.engine.merge import Merge, MergedLists, living_frequencies
from vizsla.engine.nearest import Structure, build_structure, check_gpu, faiss_for
from vizsla.engine.query import Query
from vizsla.engine.rows import Rows, Scaled, form_of, stored
from vizsla.engine.search import Hits, search, search_among, search_many
from vizsla.engine.segment import Segment, build_segment, by_document, fits_a_segment
from vizsla.engine.weighting import Weighting, Weightings

__all__ = [
    "KINDS",
    "STORES",
    "DamagedSegmentError",
    "Hits",
    "Lists",
    "Merge",
    "MergedLists",
    "Query",
    "Rows",
    "Scaled",
    "Segment",
    "Structure",
    "VectorIndex",
    "Weighting",
    "Weightings",
    "build_segment",
    "build_structure",
    "by_document",
    "check_gpu",
    "faiss_for",
    "fits_a_segment",
    "form_of",
    "living_frequencies",
    "search",
    "search_among",
    "search_many",
    "stored",
]
