"""One weight a token, the maximum over its repeats: uniCOIL's head, and with it BM26's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

BERT_SPECIALS = (0, 101, 102, 103)
"""[PAD], [CLS], [SEP] and [MASK] of BERT's uncased vocabulary: they weigh nothing."""
ALIVE = 0.5  # the bias of the head at first, so that few weights are cut off at 0 before anything is learnt


class UniCoil(nn.Module):
    """Weighs the tokens of a text; the vector has at most as many terms as the text has tokens.

    `encoder`: anything that gives hidden states for `input_ids` and an `attention_mask`, as transformers' models do.
    """

    def __init__(self, encoder: nn.Module, hidden: int, vocabulary: int, silent: Sequence[int] = BERT_SPECIALS) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(hidden, 1)
        nn.init.constant_(self.weigh.bias, ALIVE)
        self.vocabulary = vocabulary
        speaks = torch.ones(vocabulary).index_fill_(0, torch.tensor(list(silent)), 0.0)
        self.register_buffer("speaks", speaks, persistent=False)

    def token_weights(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[batch, length] the weight of each token, 0 where it is silent or padding."""
        states: Any = self.encoder(input_ids=ids, attention_mask=mask.long())
        weights = torch.relu(self.weigh(states.last_hidden_state).squeeze(-1))
        speaks: Tensor = self.speaks.to(weights.dtype)  # type: ignore[assignment]
        return weights * mask * speaks[ids]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[batch, vocabulary] the vectors: a scatter by maximum, never [batch, length, vocabulary]."""
        weights = self.token_weights(ids, mask)
        empty = weights.new_zeros(len(ids), self.vocabulary)
        return empty.scatter_reduce(1, ids, weights, "amax", include_self=True)
