"""The world's formats: streaming readers, compressed or not."""

from __future__ import annotations

from vizsla.datasets.beir import BeirDataset, read_queries
from vizsla.datasets.document import Document, Origin, documents_from
from vizsla.datasets.sources import read_documents, source_file

__all__ = ["BeirDataset", "Document", "Origin", "documents_from", "read_documents", "read_queries", "source_file"]
