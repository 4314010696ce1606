"""Vectors of packed texts, as a network makes them while it is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from vizsla.neural.chunks import packed
from vizsla.training.arrays.dev_set import Assemble, Encode
from vizsla.training.arrays.special_tokens import with_special_tokens
from vizsla.training.arrays.token_corpus import TokenCorpus

_TOKENS = 65_536  # encoded at once
_BLOCK = 4096  # texts whose vectors are made at once


@torch.no_grad()
def text_vectors(
    texts: TokenCorpus, side: int, max_length: int, encode: Encode, assemble: Assemble, device: torch.device
) -> Iterator[Any]:
    """What `assemble` makes of texts in order, block by block; `side`: 0 for queries, 1 for documents."""
    for first in range(0, len(texts), _BLOCK):
        chosen = range(first, min(first + _BLOCK, len(texts)))
        batch = packed(*with_special_tokens(texts, chosen, device, max_length=max_length), _TOKENS, side)
        yield assemble([encode(chunk) for chunk in batch.chunks], batch)
