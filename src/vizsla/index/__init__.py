"""A collection on disk: documents, a model and segments; add, search, explain."""

from __future__ import annotations

from vizsla.index.collection import Index, TermStatistics
from vizsla.index.folder import replace_index
from vizsla.index.highlight import Snippet
from vizsla.index.pooling import Pool
from vizsla.index.reranking import PairScores, check_texts, pair_scores, rerank, rerank_hits, reranked
from vizsla.index.verify import verify
from vizsla.index.writer import Added
from vizsla.runs import Explanation, Filter, Hit

__all__ = [
    "Added",
    "Explanation",
    "Filter",
    "Hit",
    "Index",
    "PairScores",
    "Pool",
    "Snippet",
    "TermStatistics",
    "check_texts",
    "pair_scores",
    "replace_index",
    "rerank",
    "rerank_hits",
    "reranked",
    "verify",
]
