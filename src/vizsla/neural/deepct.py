"""One number a token, learnt by regression: DeepCT's head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded


class TermRegression(nn.Module):
    """A linear layer over each state. Below 0 it says no more than 0 does; who uses its weights cuts them off there."""

    kind = "deepct"

    def __init__(self, encoder: PackedBert | Padded) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(encoder.hidden, 1)
        nn.init.zeros_(self.weigh.bias)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens] the weight of each token."""
        weights: Tensor = self.weigh(self.encoder(chunk)).squeeze(-1)
        return weights

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, length] the weights of each text's tokens, in the order of the batch, and 0 behind its last token."""
        weights = torch.cat(list(outputs))
        longest = max(int(chunk.starts.diff().max()) for chunk in batch.chunks)
        positions = torch.cat([chunk.positions for chunk in batch.chunks])
        spread = weights.new_zeros(len(batch.order) * longest)
        return spread.index_copy(0, batch.texts * longest + positions, weights).view(-1, longest)
