"""ColBERT's head: one vector a token, projected from its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("colbert", help="One vector for each token of the text, projected from its state: ColBERT.")
class ColbertHead(Head):
    """A linear layer without bias over each state, padding included: the vectors have any length."""

    gives: ClassVar[str] = "token_vectors"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        vectors = graph("MatMul", graph.states, graph.turned(graph.vector("linear.weight")))
        return [Output(vectors, "token_vectors", len(graph.array("linear.weight")), per_token=True)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.colbert import TokenProjection

        return TokenProjection(encoder, len(weights["linear.weight"]))
