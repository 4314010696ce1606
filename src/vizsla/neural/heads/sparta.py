"""SPARTA's head: how well each word of the vocabulary fits the best token of a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.chunks import SPECIAL_TOKENS, Batch, Chunk
from vizsla.neural.encoder import PackedBert
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.heads.splade import highest_logits, onnx_highest_logits, without_padding
from vizsla.neural.lazy_torch import Module, nn, no_grad, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("sparta", help="One weight for each word of the vocabulary, from the input embeddings: SPARTA.")
class SpartaHead(Head):
    """The best product of each input embedding with the states of a text."""

    gives: ClassVar[str] = "vectors"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        highest = graph("Add", onnx_highest_logits(graph, without_padding(graph)), graph.vector("shift"))
        weights = graph("Log", graph("Add", graph("Relu", highest), graph.constant(1, np.float32)))
        has_weight = np.ones(graph.words, np.float32)
        has_weight[list(special_tokens)] = 0
        return [Output(graph("Mul", weights, graph.constant(has_weight, np.float32)), "vectors", graph.words)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return Sparta(encoder)


class Sparta(Module):
    """log(1 + ReLU(b + max_i E_v . h_i)) for each term v of a document; a query is its word pieces, without weights.

    E are the input embeddings, h the states of the document's tokens, and b is one number for all terms.
    """

    kind = "sparta"

    def __init__(self, encoder: PackedBert, special_tokens: Sequence[int] = SPECIAL_TOKENS) -> None:
        super().__init__()
        self.encoder = encoder
        self.shift = nn.Parameter(torch.zeros(1))
        self.vocabulary = encoder.vocabulary
        has_weight = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(special_tokens)), 0.0)
        self.register_buffer("has_weight", has_weight, persistent=False)

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors."""
        if chunk.side == 0:
            return self._pieces(chunk)
        weights = torch.log1p(torch.relu(self.highest(chunk)))  # autocast computes logarithms in 32 bits
        return (weights * self._mask.to(weights.dtype)).to(self._precision(chunk))

    def highest(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] how well each term fits the best token, the shift included."""
        weight: Tensor = self.encoder.embeddings.word_embeddings.weight
        return highest_logits(self.encoder(chunk), weight, self.shift.expand(self.vocabulary), chunk.starts)

    def head(self, states: Tensor) -> Tensor:
        """[..., vocabulary] how well each term fits each state: the logits of a masked-language-model stage."""
        weight: Tensor = self.encoder.embeddings.word_embeddings.weight
        return nn.functional.linear(states, weight)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] in the order of the batch."""
        rows = torch.cat(list(outputs))[torch.argsort(batch.order)]
        return nn.functional.pad(rows, (0, self.encoder.width - self.vocabulary))

    @no_grad
    def sparsify(self, chunks: Sequence[Chunk], terms: int = 2000) -> float:
        """Set the shift so that about `terms` terms of a document are above 0; returns the change."""
        count = min(terms, self.vocabulary)
        best = torch.cat([self.highest(chunk).float().topk(count, 1).values[:, -1] for chunk in chunks])
        change = best.median()
        self.shift.sub_(change)
        return float(change)

    @property
    def _mask(self) -> Tensor:
        has_weight: Tensor = self.has_weight  # type: ignore[assignment]
        return has_weight

    def _pieces(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] 1 for each word piece of a text."""
        texts = torch.repeat_interleave(chunk.starts.diff())
        precision = self._precision(chunk)
        rows = torch.zeros(len(chunk.starts) - 1, self.vocabulary, dtype=precision, device=chunk.ids.device)
        rows[texts, chunk.ids] = 1
        return rows * self._mask.to(precision)

    def _precision(self, chunk: Chunk) -> torch.dtype:
        """The precision of query and document vectors, and of their products."""
        device = chunk.ids.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.shift.dtype
