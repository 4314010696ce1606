"""Indexes and queries for other engines."""

from __future__ import annotations

from vizsla.backends.anserini import write_topics
from vizsla.backends.bulk import ENGINES
from vizsla.backends.dsl import search_bodies, write_bodies
from vizsla.backends.export import FORMATS, export_vectors

__all__ = ["ENGINES", "FORMATS", "export_vectors", "search_bodies", "write_bodies", "write_topics"]
