"""One weight a token, the maximum over its repeats: uniCOIL's head, and with it BM26's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import SILENT

ALIVE = 0.5  # the bias of the head at first, so that few weights are cut off at 0 before anything is learnt


class UniCoil(nn.Module):
    """Weighs the tokens of texts; a vector has at most as many terms as its text has tokens."""

    kind = "unicoil"

    def __init__(self, encoder: PackedBert | Padded, silent: Sequence[int] = SILENT) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(encoder.hidden, 1)
        nn.init.constant_(self.weigh.bias, ALIVE)
        self.vocabulary = encoder.vocabulary
        self.width = encoder.width
        has_weight = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(silent)), 0.0)
        self.register_buffer("has_weight", has_weight, persistent=False)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens] the weight of each token, 0 where it is silent."""
        weights = torch.relu(self.weigh(self.encoder(chunk)).squeeze(-1))
        has_weight: Tensor = self.has_weight  # type: ignore[assignment]
        return weights * has_weight.to(weights.dtype)[chunk.ids]

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from the weights of the chunks: never [texts, length, vocabulary].

        The maximum is taken over the repeats of a token in a text, among as many numbers as there are tokens; only
        then does each go to its place.
        """
        weights = torch.cat(list(outputs))
        places, repeats = torch.unique(batch.texts * self.width + batch.ids, return_inverse=True)
        highest = weights.new_zeros(len(places)).scatter_reduce(0, repeats, weights, "amax")
        spread = weights.new_zeros(len(batch.order) * self.width)
        return spread.index_copy(0, places, highest).view(len(batch.order), self.width)
