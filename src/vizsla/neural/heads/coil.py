"""COIL's head: a vector for each token, and perhaps one for the whole text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output

if TYPE_CHECKING:
    from torch import nn

TOKENS, CLS = "tok_proj", "cls_proj"
"""The layers over the states of tokens and of [CLS]; the second is missing in COIL-tok."""


@HEADS.register("coil", help="A vector for each token of the text, and perhaps one for the whole text: COIL.")
class CoilHead(Head):
    """Linear layers with bias over the states of tokens, and over that of [CLS] where there is one."""

    gives: ClassVar[str] = "coil_vectors"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        tokens = _linear(graph, TOKENS, graph.states)
        outputs = [Output(tokens, "token_vectors", len(graph.array(f"{TOKENS}.bias")), per_token=True)]
        if f"{CLS}.weight" in graph.weights:
            first = graph("Squeeze", graph.first_state(), graph.constant([1]))
            outputs.append(Output(_linear(graph, CLS, first), "cls_vectors", len(graph.array(f"{CLS}.bias"))))
        return outputs

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.coil import Coil

        return Coil(encoder, len(weights[f"{TOKENS}.bias"]), len(weights.get(f"{CLS}.bias", ())))


def _linear(graph: EncoderGraph, name: str, states: str) -> str:
    product = graph("MatMul", states, graph.turned(graph.vector(f"{name}.weight")))
    return str(graph("Add", product, graph.vector(f"{name}.bias")))
