"""What models speak: sparse vectors over namespaced vocabularies, dense ones, concatenation, scaling, quantisation."""

from __future__ import annotations

from vizsla.vectors.dense import DenseVectors, JoinedVectors, Vectors
from vizsla.vectors.quantise import Quantiser
from vizsla.vectors.sparse import SparseVectors
from vizsla.vectors.vocabulary import Vocabulary

__all__ = ["DenseVectors", "JoinedVectors", "Quantiser", "SparseVectors", "Vectors", "Vocabulary"]
