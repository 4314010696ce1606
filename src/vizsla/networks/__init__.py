"""Token ids to vectors: the networks behind learned models, in torch to be trained, in ONNX to be run without it.

Names are imported when they are first used, since most of them need torch and `graph` and `session` do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.lazy import lazy_names

if TYPE_CHECKING:
    from vizsla.networks.augmenter import Adder, AugmentedQueries, Augmenter
    from vizsla.networks.chunks import Batch, Chunk, packed
    from vizsla.networks.coil import Coil, CoilVectors
    from vizsla.networks.cross import Cross, cross_encoder
    from vizsla.networks.deepct import TermRegression
    from vizsla.networks.encoder import PackedBert, Padded, encoder_of, forward_operations
    from vizsla.networks.pooled import Pooled
    from vizsla.networks.sparta import Sparta
    from vizsla.networks.splade import Splade, TiedHead
    from vizsla.networks.splade_doc import SpladeDoc
    from vizsla.networks.towers import Towers, WithFrozenCompanion
    from vizsla.networks.unicoil import UniCoil

_HOMES = {
    "Adder": "augmenter",
    "AugmentedQueries": "augmenter",
    "Augmenter": "augmenter",
    "Batch": "chunks",
    "Chunk": "chunks",
    "Coil": "coil",
    "CoilVectors": "coil",
    "Cross": "cross",
    "PackedBert": "encoder",
    "Padded": "encoder",
    "Pooled": "pooled",
    "Sparta": "sparta",
    "Splade": "splade",
    "SpladeDoc": "splade_doc",
    "TermRegression": "deepct",
    "TiedHead": "splade",
    "Towers": "towers",
    "UniCoil": "unicoil",
    "WithFrozenCompanion": "towers",
    "cross_encoder": "cross",
    "encoder_of": "encoder",
    "forward_operations": "encoder",
    "packed": "chunks",
}

__all__ = [
    "Adder",
    "AugmentedQueries",
    "Augmenter",
    "Batch",
    "Chunk",
    "Coil",
    "CoilVectors",
    "Cross",
    "PackedBert",
    "Padded",
    "Pooled",
    "Sparta",
    "Splade",
    "SpladeDoc",
    "TermRegression",
    "TiedHead",
    "Towers",
    "UniCoil",
    "WithFrozenCompanion",
    "cross_encoder",
    "encoder_of",
    "forward_operations",
    "packed",
]

__getattr__ = lazy_names(__name__, _HOMES)
