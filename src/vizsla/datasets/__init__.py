"""The world's formats: streaming readers, compressed or not."""

from __future__ import annotations

from vizsla.datasets.beir import BeirDataset, read_queries
from vizsla.datasets.document import Document, FieldNames, Origin
from vizsla.datasets.passages import Splitter, document_of
from vizsla.datasets.sources import RawLines, Source, documents_from, read_documents

__all__ = [
    "BeirDataset",
    "Document",
    "FieldNames",
    "Origin",
    "RawLines",
    "Source",
    "Splitter",
    "document_of",
    "documents_from",
    "read_documents",
    "read_queries",
]
