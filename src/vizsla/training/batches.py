"""What a batch is made of, before it is encoded."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
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


class Ahead:
    """Pairs whose next batch is drawn in a thread while the one before is learnt from."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[Any, Future[Sides]] | None = None

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        asked = size, seed, step, device
        drawn = self._next[1] if self._next is not None and self._next[0] == asked else None
        drawn = drawn or self._thread.submit(self.pairs.sides, *asked)
        following = size, seed, step + 1, device
        self._next = following, self._thread.submit(self.pairs.sides, *following)
        return drawn.result()
