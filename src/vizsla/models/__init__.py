"""Text to vectors: BM25 and its kin, and sums of models."""

from __future__ import annotations

from vizsla.models.asked import Asked, QueryEncoder, asked_with
from vizsla.models.augmenter import Augmenter
from vizsla.models.balanced import SAMPLE, Balanced
from vizsla.models.bm25 import BM25
from vizsla.models.dense import Dense
from vizsla.models.feedback import RM3
from vizsla.models.given import GivenVectors
from vizsla.models.learned import Learned
from vizsla.models.model import CollectionStatistics, Component, Fields, Model, Part, Reader, Stored, Sum
from vizsla.models.names import MODELS, expression, parse_model, parse_queries
from vizsla.models.network import Network
from vizsla.models.reranker import Reranker
from vizsla.models.sketch import Sketch
from vizsla.models.spar import Spar
from vizsla.models.statistics import CountedStatistics, Statistics, average_length

__all__ = [
    "BM25",
    "MODELS",
    "RM3",
    "SAMPLE",
    "Asked",
    "Augmenter",
    "Balanced",
    "CollectionStatistics",
    "Component",
    "CountedStatistics",
    "Dense",
    "Fields",
    "GivenVectors",
    "Learned",
    "Model",
    "Network",
    "Part",
    "QueryEncoder",
    "Reader",
    "Reranker",
    "Sketch",
    "Spar",
    "Statistics",
    "Stored",
    "Sum",
    "asked_with",
    "average_length",
    "expression",
    "parse_model",
    "parse_queries",
]
