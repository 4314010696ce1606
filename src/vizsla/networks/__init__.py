"""Token ids to vectors in torch: the networks behind learned models. Needs the extra `train`."""

from __future__ import annotations

from vizsla.networks.chunks import Batch, Chunk, packed
from vizsla.networks.encoder import PackedBert, Padded, encoder_of, forward_operations
from vizsla.networks.splade import Splade, TiedHead
from vizsla.networks.unicoil import UniCoil

__all__ = [
    "Batch",
    "Chunk",
    "PackedBert",
    "Padded",
    "Splade",
    "TiedHead",
    "UniCoil",
    "encoder_of",
    "forward_operations",
    "packed",
]
