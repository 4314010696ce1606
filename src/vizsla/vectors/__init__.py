"""What models speak: sparse vectors over namespaced vocabularies, concatenation, scaling, quantisation."""

from __future__ import annotations

from vizsla.vectors.quantise import Quantiser
from vizsla.vectors.sparse import SparseVectors
from vizsla.vectors.vocabulary import Vocabulary

__all__ = ["Quantiser", "SparseVectors", "Vocabulary"]
