"""Retrievers made from other retrievers, and the way to open one by its location."""

from __future__ import annotations

from vizsla.retrievers.fused import FusedRetriever
from vizsla.retrievers.locations import LOCATIONS, open
from vizsla.retrievers.reranked import RerankedRetriever
from vizsla.retrievers.reranking import PairScorer, PairScores, pair_scores, rerank, rerank_by_scores, rerank_hits

__all__ = [
    "LOCATIONS",
    "FusedRetriever",
    "PairScorer",
    "PairScores",
    "RerankedRetriever",
    "open",
    "pair_scores",
    "rerank",
    "rerank_by_scores",
    "rerank_hits",
]
