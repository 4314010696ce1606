"""One vector a text: the mean of its tokens' states, the state of [CLS], or both."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.errors import UnknownNameError
from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded

POOLINGS = ("mean", "cls", "cls+mean")


class Pooled(nn.Module):
    """Texts as dense vectors, of length 1 with `normalize`. The mean is over all tokens, special ones too.

    Both behind one another are twice as wide, which leaves twice the room for words to be told apart.
    """

    kind = "dense"

    def __init__(self, encoder: PackedBert | Padded, pooling: str = "mean", normalize: bool = False) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UnknownNameError("pooling", pooling, POOLINGS)
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.encoder.hidden * len(self.pooling.split("+"))

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, width]"""
        states = self.encoder(chunk)
        first: Tensor = states[chunk.starts[:-1]]
        if self.pooling == "cls":
            return first
        sizes = chunk.starts.diff()
        texts = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes)
        sums = states.new_zeros(len(sizes), states.shape[1], dtype=torch.float32).index_add(0, texts, states.float())
        mean: Tensor = (sums / sizes[:, None]).to(states.dtype)
        return mean if self.pooling == "mean" else torch.cat([first, mean], 1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from the outputs for the chunks, in the order of the batch."""
        rows = torch.cat(list(outputs))[torch.argsort(batch.order)]
        return torch.nn.functional.normalize(rows, dim=1) if self.normalize else rows
