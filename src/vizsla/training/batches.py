"""What a batch is made of, before it is encoded."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Sides(NamedTuple):
    """Token ids and masks of queries, of the document of each, and perhaps of more documents."""

    texts: list[tuple[Tensor, Tensor]]
    forbidden: Tensor | None = None
    """[queries, documents] which documents are not to be held against a query although they are not its own."""
    fixed: Any = None
    """What is not encoded but needed for the loss: vectors of documents that no network makes, for one."""


class Pairs(Protocol):
    """Where batches come from: the same seed and step give the same batch."""

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides: ...
