"""Text to vectors: BM25 and its kin, and sums of models."""

from __future__ import annotations

from vizsla.models.bm25 import BM25
from vizsla.models.given import GivenVectors
from vizsla.models.model import CollectionStatistics, Component, Fields, Model, Part, Reader, Stored, Sum
from vizsla.models.names import MODELS, expression, parse_model
from vizsla.models.statistics import CountedStatistics, Statistics, average_length

__all__ = [
    "BM25",
    "MODELS",
    "CollectionStatistics",
    "Component",
    "CountedStatistics",
    "Fields",
    "GivenVectors",
    "Model",
    "Part",
    "Reader",
    "Statistics",
    "Stored",
    "Sum",
    "average_length",
    "expression",
    "parse_model",
]
