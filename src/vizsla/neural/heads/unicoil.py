"""uniCOIL's head: one weight a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("unicoil", help="One weight for each token of the text.")
class UniCoilHead(Head):
    """A linear layer and ReLU over each state."""

    gives: ClassVar[str] = "weights"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_unicoil(graph, silent), "weights", "length")]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.unicoil import UniCoil

        return UniCoil(encoder)


def _unicoil(g: EncoderGraph, silent: Sequence[int]) -> str:
    """One weight a token."""
    weights = g("MatMul", g.states, g.turned(g.vector("weigh.weight")))
    weights = g("Squeeze", g("Add", weights, g.vector("weigh.bias")), g.constant([2]))
    same = g("Equal", g("Unsqueeze", "ids", g.constant([2])), g.constant(silent))
    quiet = g("Cast", g("ReduceSum", g("Cast", same, to=1), g.constant([2]), keepdims=0), to=9)
    has_weight = g("And", g.keep, g("Not", quiet))
    return str(g("Where", has_weight, g("Relu", weights), g.constant(0, np.float32)))
