"""A collection on disk: documents, a model and segments; add, search, explain."""

from __future__ import annotations

from vizsla.index.collection import Hit, Index
from vizsla.index.explain import Explanation
from vizsla.index.highlight import Snippet
from vizsla.index.writer import Added

__all__ = ["Added", "Explanation", "Hit", "Index", "Snippet"]
