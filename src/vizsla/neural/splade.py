"""Weights for the whole vocabulary: SPLADE's maximum pooling over a masked-language head, and with it BM26e's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vizsla.neural.chunks import Batch, Chunk, packed, pieces_apart
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import RULED_OUT
from vizsla.neural.joint import START

_TOGETHER = 16_384  # tokens whose logits are there at the same time: a gigabyte in 16 bits
_PIECES = 256  # word pieces whose vectors are made at the same time
_ENTRIES = 1 << 20  # gradients of single terms that go back at the same time


class TiedHead(nn.Module):
    """A masked-language head for an encoder that came without one: a dense layer, then the input embeddings again.

    `shift` is taken from every logit at first, so that few terms are active before the head has learnt anything.
    Where not `tied`, its last layer has weights of its own.
    """

    def __init__(self, embeddings: nn.Embedding, hidden: int, shift: float = 0.0, *, tied: bool = True) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(
            hidden, eps=1e-12
        )  # that of BERT, with which the network is written and opened by others
        self.decoder = nn.Linear(hidden, embeddings.num_embeddings)
        if tied:
            self.decoder.weight = embeddings.weight  # the same parameter, not a copy
        nn.init.constant_(self.decoder.bias, -shift)

    def transform(self, states: Tensor) -> Tensor:
        """What the decoder reads."""
        normed: Tensor = self.norm(nn.functional.gelu(self.dense(states)))
        return normed

    def forward(self, states: Tensor) -> Tensor:
        """[..., vocabulary] the logits."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits


class Splade(nn.Module):
    """The highest log(1 + ReLU(logit)) of each term over the positions of a text; `pooling`: see `SPLADE_POOLINGS`.

    `by_pieces`: while it is trained, every second query is read piece by piece, each as a text of its own. For queries,
    a table of its pieces' vectors can then replace the network (`piece_vectors`).
    """

    kind = "splade"

    def __init__(self, encoder: PackedBert | Padded, head: TiedHead, pooling: Sequence[str] = ("max",)) -> None:
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, tuple(pooling)
        self.vocabulary = encoder.vocabulary
        self.by_pieces = False

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors; the logarithm after the maximum: the same, and cheaper."""
        if "sum" in self.pooling:
            return self._sums(chunk)
        return pooled_logits(self.highest(chunk)[:, None], self.pooling)

    def _sums(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the sums over positions."""
        states = self.head.transform(self.encoder(chunk))
        sums = []
        for rows, lengths in _groups(states, chunk.starts):
            present = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
            sums.append(pooled_logits(self.head.decoder(rows) * present[:, :, None], self.pooling))
        return torch.cat(sums)

    def highest(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the highest logit of each term."""
        starts = chunk.starts
        if self.by_pieces and self.training and chunk.side == 0:
            every_second = torch.arange(len(starts) - 1, device=starts.device) % 2 == 1
            chunk, starts = pieces_apart(chunk, every_second)
        states = self.head.transform(self.encoder(chunk))
        return highest_logits(states, self.head.decoder.weight, self.head.decoder.bias, starts)

    @torch.inference_mode()
    def piece_vectors(self, most: int) -> tuple[Tensor, Tensor]:
        """[vocabulary, most] the heaviest terms of each word piece by itself, heaviest first, and their weights."""
        decoder = self.head.decoder
        kept = (decoder.bias > RULED_OUT / 2).nonzero()[:, 0]
        table, bias = decoder.weight[kept], decoder.bias[kept]
        terms, weights = [], []
        for pieces in torch.arange(self.vocabulary, device=kept.device).tensor_split(-(-self.vocabulary // _PIECES)):
            text = nn.functional.pad(pieces, (1, 1), value=START)[None]
            together = packed(text, torch.ones_like(text, dtype=torch.bool), text.numel()).chunks[0]
            apart, _ = pieces_apart(together, torch.ones(1, dtype=torch.bool, device=kept.device))
            logits = nn.functional.linear(self.head.transform(self.encoder(apart)), table, bias)
            vectors = pooled_logits(logits.view(len(pieces), -1, len(kept)), self.pooling).float()
            heaviest = vectors.topk(min(most, len(kept)), 1)
            terms.append(kept[heaviest.indices])
            weights.append(heaviest.values)
        return torch.cat(terms), torch.cat(weights)

    @torch.no_grad()
    def keep_terms(self, terms: Tensor) -> None:
        """Rule out all other terms, by a bias that no logit overcomes: [kept] the numbers of those that stay."""
        ruled_out = torch.ones(self.vocabulary, dtype=torch.bool, device=self.head.decoder.bias.device)
        ruled_out[terms] = False
        self.head.decoder.bias.masked_fill_(ruled_out, RULED_OUT)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] in the order of the batch."""
        rows = torch.cat(list(outputs))[torch.argsort(batch.order)]
        return nn.functional.pad(rows, (0, self.encoder.width - self.vocabulary))

    @torch.no_grad()
    def sparsify(self, chunks: Sequence[Chunk], terms: int = 100, highest: float = 2.0) -> float:
        """Shift and shrink all logits: about so many terms of a text above 0, the highest at so much; gives the shift.

        A masked-language head only learns which logits are higher than others, so their level means nothing and may
        leave every term of the vocabulary active, and their range makes scores of hundreds that a contrastive loss
        would spend its first steps on bringing down.
        """
        best = torch.cat([self.highest(chunk).float().topk(terms, 1).values for chunk in chunks])
        shift = best[:, -1].median()
        share = highest / (best[:, 0].median() - shift).clamp(min=1e-6)
        self.head.decoder.bias.sub_(shift)
        for part in (self.head.norm.weight, self.head.norm.bias, self.head.decoder.bias):
            part.mul_(share)
        return float(shift)


def pooled_logits(logits: Tensor, pooling: Sequence[str]) -> Tensor:
    """[texts, vocabulary] weights from [texts, tokens, vocabulary] logits, which are 0 for padding.

    >>> pooled_logits(torch.tensor([[[1.0, -1.0], [3.0, 0.0]]]), ("sum",)).exp().tolist()
    [[8.0, 1.0]]
    """
    weights = torch.log1p(torch.relu(logits))
    if "log1p" in pooling:
        weights = torch.log1p(weights)
    return weights.sum(1) if "sum" in pooling else weights.amax(1)


def highest_logits(states: Tensor, weight: Tensor, bias: Tensor, starts: Tensor) -> Tensor:
    """[texts, vocabulary] the highest of `states @ weight.T + bias` in each packed text, in 16 bits under autocast."""
    if torch.is_autocast_enabled(states.device.type):
        kind = torch.get_autocast_dtype(states.device.type)
        states, weight, bias = (x.to(kind) for x in (states, weight, bias))
    logits: Tensor = _HighestLogits.apply(states, weight, bias, starts)  # type: ignore[no-untyped-call]
    return logits


class _HighestLogits(torch.autograd.Function):
    """The highest of `states @ weight.T + bias` in each text, without the logits of all tokens in memory.

    Only where the maximum was is kept for the way back. There most gradients are 0, since ReLU cuts off most terms, and
    a few hundred terms a text go to the states and the embeddings one by one: far less work than two products with the
    whole vocabulary.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, starts: Tensor) -> Tensor:
        highest, where = [], []
        for rows, lengths in _groups(states, starts):
            best = nn.functional.linear(rows, weight, bias).max(1)
            highest.append(best.values)
            where.append(torch.where(best.indices < lengths[:, None], best.indices, 0).to(torch.int16))
            del best  # before the next logits are made
        ctx.save_for_backward(states, weight, bias, starts, torch.cat(where))
        return torch.cat(highest)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        states, weight, bias, starts, where = ctx.saved_tensors
        to_states, to_weight = (torch.zeros_like(x, dtype=_wide(x)) for x in (states, weight))
        texts, terms = gradients[0].nonzero(as_tuple=True)
        for part in range(0, len(texts), _ENTRIES):
            text, term = texts[part : part + _ENTRIES], terms[part : part + _ENTRIES]
            flow = gradients[0][text, term][:, None]
            token = starts[text] + where[text, term]
            to_states.index_add_(0, token, (flow * weight[term]).to(to_states.dtype))
            to_weight.index_add_(0, term, (flow * states[token]).to(to_weight.dtype))
        to_bias = gradients[0].sum(0, dtype=_wide(bias)).to(bias.dtype)
        return to_states.to(states.dtype), to_weight.to(weight.dtype), to_bias, None


def _groups(states: Tensor, starts: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some texts at a time: [texts, length, hidden] states, and the lengths; a text's first state fills it up.

    So the highest logit over a row is that of its text, and none has to be masked.
    """
    bounds = starts.tolist()
    first = 0
    while first < len(bounds) - 1:
        last = first + 1
        while last < len(bounds) - 1 and bounds[last + 1] - bounds[first] <= _TOGETHER:
            last += 1
        lengths = starts[first : last + 1].diff()
        at = torch.arange(int(lengths.max()), device=states.device).expand(last - first, -1)
        yield states[starts[first:last, None] + torch.where(at < lengths[:, None], at, 0)], lengths
        first = last


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
