"""One weight a token, the maximum over its repeats: uniCOIL's head, and with it BM26's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.networks.chunks import Batch, Chunk
from vizsla.networks.encoder import PackedBert, Padded

BERT_SPECIALS = (0, 101, 102, 103)
"""[PAD], [CLS], [SEP] and [MASK] of BERT's uncased vocabulary: they weigh nothing."""
ALIVE = 0.5  # the bias of the head at first, so that few weights are cut off at 0 before anything is learnt


class UniCoil(nn.Module):
    """Weighs the tokens of texts; a vector has at most as many terms as its text has tokens."""

    kind = "unicoil"

    def __init__(self, encoder: PackedBert | Padded, silent: Sequence[int] = BERT_SPECIALS) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(encoder.hidden, 1)
        nn.init.constant_(self.weigh.bias, ALIVE)
        self.vocabulary = encoder.vocabulary
        self.width = encoder.width
        speaks = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(silent)), 0.0)
        self.register_buffer("speaks", speaks, persistent=False)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens] the weight of each token, 0 where it is silent."""
        weights = torch.relu(self.weigh(self.encoder(chunk)).squeeze(-1))
        speaks: Tensor = self.speaks  # type: ignore[assignment]
        return weights * speaks.to(weights.dtype)[chunk.ids]

    def vectors(self, made: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from what was made of the chunks: never [texts, length, vocabulary].

        The maximum is taken over the repeats of a token in a text, among as many numbers as there are tokens; only
        then does each go to its place.
        """
        weights = torch.cat(list(made))
        places, repeats = torch.unique(batch.texts * self.width + batch.ids, return_inverse=True)
        highest = weights.new_zeros(len(places)).scatter_reduce(0, repeats, weights, "amax")
        spread = weights.new_zeros(len(batch.order) * self.width)
        return spread.index_copy(0, places, highest).view(len(batch.order), self.width)
