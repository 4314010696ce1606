"""The models by name."""

from __future__ import annotations

from vizsla.models.model import Model
from vizsla.spec import Registry

MODELS: Registry[Model] = Registry(
    "model", package="vizsla.models", example='"bm25", "bm25(k1=1.2, b=0.75)" or "bm25 + 0.5 * bm25-wp"',
    first=(
        "bm25", "learned_sparse", "augmenter", "auto_weighted", "coil", "colbert", "counts", "deepct", "splade", "gar",
        "precomputed", "rm3", "sketch", "spar", "sparta", "bm51", "dense_models", "presets",
    ),
)  # fmt: skip
"""Everything that `parse_model` knows by name. A model of your own registers itself in the same way."""
