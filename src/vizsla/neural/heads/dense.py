"""The head of dense models: one vector a text, pooled from the states of its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("dense", help="One vector for the text, pooled from the states of its tokens.")
class DenseHead(Head):
    """Pools states: `cls`, `mean`, or both behind one another as `cls+mean`."""

    gives: ClassVar[str] = "embeddings"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(pooled(graph, pooling), "vectors", graph.hidden * len(pooling.split("+")))]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.pooled import Pooled

        return Pooled(encoder, pooling)


def pooled(g: EncoderGraph, pooling: str) -> str:
    """[batch, width] one vector a text."""
    if "+" in pooling:
        return str(g("Concat", *(pooled(g, part) for part in pooling.split("+")), axis=1))
    if pooling == "cls":
        return str(g("Squeeze", g.first_state(), g.constant([1])))
    kept = g("Where", g("Unsqueeze", g.keep, g.constant([2])), g.states, g.constant(0, np.float32))
    sizes = g("Unsqueeze", g("Cast", "lengths", to=1), g.constant([1]))
    return str(g("Div", g("ReduceSum", kept, g.constant([1]), keepdims=0), sizes))
