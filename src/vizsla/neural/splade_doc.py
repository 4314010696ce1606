"""SPLADE for documents beside a table for queries: no network reads a query."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.neural.chunks import Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import SILENT
from vizsla.neural.splade import Splade, TiedHead

_GAIN = 100.0  # so that a table learns at the learning rate of an encoder


class SpladeDoc(Splade):
    """SPLADE's vectors of documents; a query is the set of its word pieces, each with a weight that is learnt.

    All pieces have the weight 1 at first, which is SPLADE-doc.
    """

    def __init__(self, encoder: PackedBert | Padded, head: TiedHead, silent: Sequence[int] = SILENT) -> None:
        super().__init__(encoder, head)
        self.query_changes = nn.Parameter(torch.zeros(self.vocabulary))
        has_weight = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(silent)), 0.0)
        self.register_buffer("has_weight", has_weight, persistent=False)

    @property
    def query_weights(self) -> Tensor:
        """[vocabulary] the weight of each piece of a query, 0 or more."""
        has_weight: Tensor = self.has_weight  # type: ignore[assignment]
        return torch.relu(1 + _GAIN * self.query_changes) * has_weight

    @torch.no_grad()
    def start_from(self, weights: Tensor) -> None:
        """Give queries these weights."""
        self.query_changes.copy_((weights - 1) / _GAIN)

    @property
    def documents(self) -> Splade:
        """The network that reads documents."""
        return Splade(self.encoder, self.head, self.pooling)

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors."""
        if chunk.side != 0:
            return super().forward(chunk)
        texts = torch.repeat_interleave(chunk.starts.diff())
        # in 32 bits, as the vectors of documents are after their logarithm
        present = torch.zeros(len(chunk.starts) - 1, self.vocabulary, device=chunk.ids.device)
        present[texts, chunk.ids] = 1
        return present * self.query_weights
