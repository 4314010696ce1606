"""A batch of texts, before it is encoded."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class TrainingBatch(NamedTuple):
    """Texts to encode: queries first, then the document of each query, then perhaps more documents."""

    texts: list[tuple[Tensor, Tensor]]
    """Token ids and mask of each group of texts."""
    false_negatives: Tensor | None = None
    """[queries, documents] True where a document answers a query but is not the one the query is paired with."""
    extra: Any = None
    """What the loss needs and no network encodes: documents as BM25 weighs them, for example."""


class BatchSource(Protocol):
    """Where batches come from: the same seed and step give the same batch."""

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """The batch of a step, with `size` queries."""
