"""Indexes and queries for other engines."""

from __future__ import annotations

from vizsla.backends.anserini import write_topics
from vizsla.backends.elasticsearch import ENGINES, search_bodies, write_bodies
from vizsla.backends.export import FORMATS, export_vectors

__all__ = ["ENGINES", "FORMATS", "export_vectors", "search_bodies", "write_bodies", "write_topics"]
