"""The hybrid of words and vectors by name."""

from __future__ import annotations

from typing import Any

from vizsla.models.auto_weighted import auto
from vizsla.models.bm25 import BM25, BM25_OPTIONS
from vizsla.models.expressions import parse_model
from vizsla.models.model import Model
from vizsla.models.registry import MODELS
from vizsla.spec import Option


@MODELS.register(
    "hybrid",
    help="BM25 plus a dense model, with weights fitted to the documents: auto(bm25, minilm).",
    options=(Option("dense", "str", "minilm", "the dense model, as an expression"), *BM25_OPTIONS),
    needs=("onnxruntime|torch",),
)
def hybrid(dense: str = "minilm", **options: Any) -> Model:
    """BM25 with these options, and a dense model."""
    return auto(BM25(**options), parse_model(dense)).with_name("hybrid")
