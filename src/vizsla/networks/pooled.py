"""One vector a text: the mean of its tokens' states, or the state of the first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.networks.chunks import Batch, Chunk
from vizsla.networks.encoder import PackedBert, Padded

POOLINGS = ("mean", "first")


class Pooled(nn.Module):
    """Texts as dense vectors. The mean is over all tokens, special ones too."""

    kind = "dense"

    def __init__(self, encoder: PackedBert | Padded, pooling: str = "mean") -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"states are pooled by {' or '.join(POOLINGS)}, not by {pooling!r}")
        self.encoder, self.pooling = encoder, pooling

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, hidden]"""
        states = self.encoder(chunk)
        if self.pooling == "first":
            first: Tensor = states[chunk.starts[:-1]]
            return first
        sizes = chunk.starts.diff()
        texts = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes)
        sums = states.new_zeros(len(sizes), states.shape[1], dtype=torch.float32).index_add(0, texts, states.float())
        mean: Tensor = (sums / sizes[:, None]).to(states.dtype)
        return mean

    def vectors(self, made: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, hidden] from what was made of the chunks, in the order of the batch."""
        return torch.cat(list(made))[torch.argsort(batch.order)]
