"""What a batch is made of, before it is encoded."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Sides(NamedTuple):
    """Token ids and masks of queries, of the document of each, and perhaps of more documents."""

    texts: list[tuple[Tensor, Tensor]]
    forbidden: Tensor | None = None
    """[queries, documents] which documents are not to be held against a query although they are not its own."""


class Pairs(Protocol):
    """Where batches come from: the same seed and step give the same batch."""

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides: ...
