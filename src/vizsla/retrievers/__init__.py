"""Retrievers made from other retrievers, and the way to open one by its location."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.retrievers.fused import FusedRetriever
    from vizsla.retrievers.locations import LOCATIONS, open
    from vizsla.retrievers.reranking import (
        PairScorer,
        PairScores,
        RerankedRetriever,
        pair_scores,
        rerank,
        rerank_by_scores,
        rerank_hits,
    )

_HOMES = {
    "LOCATIONS": "locations",
    "FusedRetriever": "fused",
    "PairScorer": "reranking",
    "PairScores": "reranking",
    "RerankedRetriever": "reranking",
    "open": "locations",
    "pair_scores": "reranking",
    "rerank": "reranking",
    "rerank_by_scores": "reranking",
    "rerank_hits": "reranking",
}

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

__getattr__ = lazy_names(__name__, _HOMES)
