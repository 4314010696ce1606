"""What models make of texts: sparse, dense and token vectors, their concatenation, scaling and quantisation."""

from __future__ import annotations

from vizsla.vectors.dense import DenseVectors, JoinedVectors, Vectors
from vizsla.vectors.quantise import Quantiser
from vizsla.vectors.sparse import SparseVectors, Vocabulary
from vizsla.vectors.token import MatchTexts, TokenMatchVectors, TokenVectors

__all__ = [
    "DenseVectors",
    "JoinedVectors",
    "MatchTexts",
    "Quantiser",
    "SparseVectors",
    "TokenMatchVectors",
    "TokenVectors",
    "Vectors",
    "Vocabulary",
]
