"""Weights for the whole vocabulary: SPLADE's maximum pooling over a masked-language head, and with it BM26e's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
    """The highest log(1 + ReLU(logit)) of each term over the positions of a text.

    >>> import torch
    >>> network = Splade(torch.nn.Identity(), torch.nn.Identity())
    >>> network.pool(torch.tensor([[[1.0, -2.0], [0.0, 3.0]]]), torch.tensor([[True, False]])).tolist()
    [[0.6931471824645996, 0.0]]
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[batch, vocabulary] the vectors."""
        states: Any = self.encoder(input_ids=ids, attention_mask=mask.long())
        return self.pool(self.head(states.last_hidden_state), mask)

    @staticmethod
    def pool(logits: Tensor, mask: Tensor) -> Tensor:
        """Padding counts for nothing; the logarithm is taken after the maximum, which is the same and cheaper."""
        highest = logits.masked_fill(~mask[..., None], 0.0).amax(1)
        return torch.log1p(torch.relu(highest))
