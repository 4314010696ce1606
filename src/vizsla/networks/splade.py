"""Weights for the whole vocabulary: SPLADE's maximum pooling over a masked-language head, and with it BM26e's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vizsla.networks.chunks import Batch, Chunk
from vizsla.networks.encoder import PackedBert, Padded

_TOGETHER = 16_384  # tokens whose logits are there at the same time: a gigabyte in 16 bits


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

    def transform(self, states: Tensor) -> Tensor:
        """What the decoder reads."""
        made: Tensor = self.norm(nn.functional.gelu(self.dense(states)))
        return made

    def forward(self, states: Tensor) -> Tensor:
        """[..., vocabulary] the logits."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits


class Splade(nn.Module):
    """The highest log(1 + ReLU(logit)) of each term over the positions of a text."""

    kind = "splade"

    def __init__(self, encoder: PackedBert | Padded, head: TiedHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.vocabulary = encoder.vocabulary

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors; the logarithm after the maximum: the same, and cheaper."""
        return torch.log1p(torch.relu(self.highest(chunk)))

    def highest(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the highest logit of each term."""
        states = self.head.transform(self.encoder(chunk))
        weight: Tensor = self.head.decoder.weight
        bias: Tensor = self.head.decoder.bias
        if torch.is_autocast_enabled(states.device.type):
            kind = torch.get_autocast_dtype(states.device.type)
            states, weight, bias = (x.to(kind) for x in (states, weight, bias))
        made: Tensor = _HighestLogits.apply(states, weight, bias, chunk.starts)  # type: ignore[no-untyped-call]
        return made

    def vectors(self, made: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] in the order of the batch."""
        rows = torch.cat(list(made))[torch.argsort(batch.order)]
        return nn.functional.pad(rows, (0, self.encoder.width - self.vocabulary))

    @torch.no_grad()
    def calm(self, chunks: Sequence[Chunk], terms: int = 100) -> float:
        """Shift all logits so that about so many terms of a text are above 0; gives by how much.

        A masked-language head only learns which logits are higher than others, so their level means nothing and may
        leave every term of the vocabulary active.
        """
        least = torch.cat([self.highest(chunk).float().topk(terms, 1).values[:, -1] for chunk in chunks])
        shift = least.median()
        self.head.decoder.bias.sub_(shift)
        return float(shift)


class _HighestLogits(torch.autograd.Function):
    """The highest of `states @ weight.T + bias` in each text, without the logits of all tokens in memory.

    Only where the maximum was is kept for the way back.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, starts: Tensor) -> Tensor:
        made, where = [], []
        for _, rows, mask in _groups(states, starts):
            logits = rows @ weight.T
            logits += bias
            logits.masked_fill_(~mask[..., None], -torch.inf)
            best = logits.max(1)
            made.append(best.values)
            where.append(best.indices.to(torch.int16))
            del logits  # before the next ones are made
        ctx.save_for_backward(states, weight, bias, starts, torch.cat(where))
        return torch.cat(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        states, weight, bias, starts, where = ctx.saved_tensors
        to_states, to_weight = torch.zeros_like(states), torch.zeros_like(weight, dtype=_wide(weight))
        first = 0
        for begin, rows, mask in _groups(states, starts):
            part = slice(first, first + len(rows))
            spread = rows.new_zeros(*rows.shape[:2], len(weight))
            spread.scatter_(1, where[part].long()[:, None], gradients[0][part].to(rows.dtype)[:, None])
            back = spread @ weight
            size = int(mask.sum())
            to_states[begin : begin + size] = back[mask]
            to_weight += spread.flatten(0, 1).T @ rows.flatten(0, 1)
            first += len(rows)
        return to_states, to_weight.to(weight.dtype), gradients[0].sum(0, dtype=_wide(bias)).to(bias.dtype), None


def _groups(states: Tensor, starts: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Some texts at a time: their first token, [texts, length, hidden] padded states, and which are there."""
    bounds = starts.tolist()
    first = 0
    while first < len(bounds) - 1:
        last = first + 1
        while last < len(bounds) - 1 and bounds[last + 1] - bounds[first] <= _TOGETHER:
            last += 1
        lengths = starts[first : last + 1].diff()
        mask = torch.arange(int(lengths.max()), device=states.device) < lengths[:, None]
        rows = states.new_zeros(*mask.shape, states.shape[1])
        rows[mask] = states[bounds[first] : bounds[last]]
        yield bounds[first], rows, mask
        first = last


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
