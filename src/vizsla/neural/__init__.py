"""Token ids to vectors: the networks behind learned models, in torch to be trained, in ONNX to be run without it.

Names are imported when they are first used, since most of them need torch and `graph` and `session` do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.lazy import lazy_names

if TYPE_CHECKING:
    from vizsla.neural.augmenter import Adder, AugmentedQueries, Augmenter
    from vizsla.neural.chunks import Batch, Chunk, packed
    from vizsla.neural.coil import Coil, CoilVectors
    from vizsla.neural.cross import Cross, cross_encoder
    from vizsla.neural.deepct import TermRegression
    from vizsla.neural.encoder import PackedBert, Padded, encoder_of, forward_operations
    from vizsla.neural.pooled import Pooled
    from vizsla.neural.sparta import Sparta
    from vizsla.neural.splade import Splade, TiedHead
    from vizsla.neural.splade_doc import SpladeDoc
    from vizsla.neural.towers import Towers, WithFrozenCompanion
    from vizsla.neural.unicoil import UniCoil

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
