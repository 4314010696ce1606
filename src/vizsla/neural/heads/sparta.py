"""SPARTA's head: one weight for each word of the vocabulary, from the embeddings that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.heads.splade import highest_logits, without_padding

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("sparta", help="One weight for each word of the vocabulary, from the input embeddings: SPARTA.")
class SpartaHead(Head):
    """The best product of each input embedding with the states of a text."""

    gives: ClassVar[str] = "vectors"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        highest = graph("Add", highest_logits(graph, without_padding(graph)), graph.vector("shift"))
        weights = graph("Log", graph("Add", graph("Relu", highest), graph.constant(1, np.float32)))
        has_weight = np.ones(graph.words, np.float32)
        has_weight[list(silent)] = 0
        return [Output(graph("Mul", weights, graph.constant(has_weight, np.float32)), "vectors", graph.words)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.sparta import Sparta

        return Sparta(encoder)
