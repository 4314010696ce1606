"""Text to vectors: BM25 and its kin, and sums of models."""

from __future__ import annotations

from vizsla.encoders.network import Network
from vizsla.models.augmenter import Augmenter
from vizsla.models.auto_weighted import SAMPLE, AutoWeightedSum
from vizsla.models.bm25 import BM25
from vizsla.models.dense import Dense
from vizsla.models.expansion import ExpandedBM25, QueryExpander, with_expansion
from vizsla.models.feedback import RM3
from vizsla.models.learned_sparse import LearnedSparse
from vizsla.models.model import CollectionStatistics, Component, Fields, Model, Part, Reader, Stored, Sum
from vizsla.models.names import MODELS, expression, parse_expander, parse_model
from vizsla.models.precomputed import PrecomputedVectors
from vizsla.models.reranker import Reranker
from vizsla.models.sketch import Sketch
from vizsla.models.spar import Spar
from vizsla.models.statistics import CountedStatistics, Statistics, average_length

__all__ = [
    "BM25",
    "MODELS",
    "RM3",
    "SAMPLE",
    "Augmenter",
    "AutoWeightedSum",
    "CollectionStatistics",
    "Component",
    "CountedStatistics",
    "Dense",
    "ExpandedBM25",
    "Fields",
    "LearnedSparse",
    "Model",
    "Network",
    "Part",
    "PrecomputedVectors",
    "QueryExpander",
    "Reader",
    "Reranker",
    "Sketch",
    "Spar",
    "Statistics",
    "Stored",
    "Sum",
    "average_length",
    "expression",
    "parse_expander",
    "parse_model",
    "with_expansion",
]
