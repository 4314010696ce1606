"""A collection of documents on disk: write, search, explain."""

from __future__ import annotations

from vizsla.index.index import Index
from vizsla.index.inspection import (
    bytes_of,
    document_vectors,
    measure_recall,
    pools,
    term_statistics,
    trust_vector_indexes,
)
from vizsla.index.search.ann_recall import Recall
from vizsla.index.search.highlight import Highlighter, Snippet
from vizsla.index.search.pooling import Pool
from vizsla.index.search.statistics import TermStatistics
from vizsla.index.storage.folder import replace_index
from vizsla.index.storage.verify import verify
from vizsla.index.view import IndexView
from vizsla.index.writing.transaction import Added
from vizsla.index.writing.writer import Writer
from vizsla.runs import Explanation, Filter, Hit

__all__ = [
    "Added",
    "Explanation",
    "Filter",
    "Highlighter",
    "Hit",
    "Index",
    "IndexView",
    "Pool",
    "Recall",
    "Snippet",
    "TermStatistics",
    "Writer",
    "bytes_of",
    "document_vectors",
    "measure_recall",
    "pools",
    "replace_index",
    "term_statistics",
    "trust_vector_indexes",
    "verify",
]
