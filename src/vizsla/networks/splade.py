"""Weights for the whole vocabulary: SPLADE's maximum pooling over a masked-language head, and with it BM26e's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.networks.chunks import Batch, Chunk
from vizsla.networks.encoder import PackedBert, Padded


class TiedHead(nn.Module):
    """A masked-language head for an encoder that came without one: a dense layer, then the input embeddings again.

    `shift` is taken from every logit at first, so that few terms are active before the head has learnt anything.
    """

    def __init__(self, embeddings: nn.Embedding, hidden: int, shift: float = 0.0) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.decoder = nn.Linear(hidden, embeddings.num_embeddings)
        self.decoder.weight = embeddings.weight  # the same parameter, not a copy
        nn.init.constant_(self.decoder.bias, -shift)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.norm(nn.functional.gelu(self.dense(states))))
        return logits


class Splade(nn.Module):
    """The highest log(1 + ReLU(logit)) of each term over the positions of a text."""

    kind = "splade"

    def __init__(self, encoder: PackedBert | Padded, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.vocabulary = encoder.vocabulary

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors."""
        _, mask = chunk.padded()
        states = self.encoder(chunk)
        rows = states.new_zeros(*mask.shape, states.shape[1])
        rows[mask] = states
        logits = self.head(rows).masked_fill(~mask[..., None], 0.0)
        return torch.log1p(torch.relu(logits.amax(1)))  # the logarithm after the maximum: the same, and cheaper

    def vectors(self, made: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] in the order of the batch."""
        rows = torch.cat(list(made))[torch.argsort(batch.order)]
        return nn.functional.pad(rows, (0, self.encoder.width - self.vocabulary))
