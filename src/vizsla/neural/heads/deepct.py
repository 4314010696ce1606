"""DeepCT's head: one number a token, learnt by regression: how much the token matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import Module, nn, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("deepct", help="How much each token of the text matters: DeepCT.")
class DeepCTHead(Head):
    """A linear layer over each state."""

    gives: ClassVar[str] = "weights"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        weights = graph("MatMul", graph.states, graph.transposed(graph.vector("weigh.weight")))
        weights = graph("Squeeze", graph("Add", weights, graph.vector("weigh.bias")), graph.constant([2]))
        return [Output(graph("Where", graph.keep, weights, graph.constant(0, np.float32)), "weights", "length")]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return TermRegression(encoder)


class TermRegression(Module):
    """A linear layer over each state. A negative weight means the same as 0; callers clip weights at 0."""

    kind = "deepct"

    def __init__(self, encoder: PackedBert | Padded) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(encoder.hidden, 1)
        nn.init.zeros_(self.weigh.bias)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens] the weight of each token."""
        weights: Tensor = self.weigh(self.encoder(chunk)).squeeze(-1)
        return weights

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, length] the weights of each text's tokens, in the order of the batch, padded with 0."""
        weights = torch.cat(list(outputs))
        longest = max(int(chunk.starts.diff().max()) for chunk in batch.chunks)
        positions = torch.cat([chunk.positions for chunk in batch.chunks])
        spread = weights.new_zeros(len(batch.order) * longest)
        return spread.index_copy(0, batch.texts * longest + positions, weights).view(-1, longest)
