"""A collection on disk: documents, a model and segments; add, search, explain."""

from __future__ import annotations

from vizsla.index.collection import Index, TermStatistics
from vizsla.index.folder import replace_index
from vizsla.index.highlight import Snippet
from vizsla.index.pooling import Pool
from vizsla.index.verify import verify
from vizsla.index.writer import Added
from vizsla.runs import Explanation, Filter, Hit

__all__ = [
    "Added",
    "Explanation",
    "Filter",
    "Hit",
    "Index",
    "Pool",
    "Snippet",
    "TermStatistics",
    "replace_index",
    "verify",
]
