"""DeepCT's head: how much each token matters, a number that was learnt by regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("deepct", help="How much each token of the text matters: DeepCT.")
class DeepCTHead(Head):
    """A linear layer over each state."""

    gives: ClassVar[str] = "weights"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        weights = graph("MatMul", graph.states, graph.turned(graph.vector("weigh.weight")))
        weights = graph("Squeeze", graph("Add", weights, graph.vector("weigh.bias")), graph.constant([2]))
        return [Output(graph("Where", graph.keep, weights, graph.constant(0, np.float32)), "weights", "length")]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.deepct import TermRegression

        return TermRegression(encoder)
