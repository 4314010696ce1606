"""The head that expands queries: one weight a token, and how much is added of each term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.weights import SCALE

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("augmenter", help="Weights for the tokens of a query, and terms that are added to it.")
class AugmenterHead(Head):
    """The state of the first token says what is added, that of each token how much it weighs."""

    gives: ClassVar[str] = "augmentations"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        weights, added = _augmenter(graph)
        return [Output(weights, "weights", "length"), Output(added, "added", len(graph.array("add.out.bias")))]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.augmenter import Adder, Augmenter

        down = weights.get("add.down.weight")
        tied = None if "add.out.weight" in weights else encoder.embeddings.word_embeddings
        add = Adder(len(weights["add.out.bias"]), encoder.hidden, 0 if down is None else len(down), tied)
        return Augmenter(encoder, add, "weigh.weight" in weights)


def _augmenter(g: EncoderGraph) -> tuple[str, str]:
    """One weight a token, and how much is added of each term, from the state of the first token."""
    zero = g.constant(0, np.float32)
    if "weigh.weight" in g.weights:
        weights = g("MatMul", g.states, g.turned(g.vector("weigh.weight")))
        weights = g("Relu", g("Squeeze", g("Add", weights, g.vector("weigh.bias")), g.constant([2])))
        weights = g("Where", g.keep, weights, zero)
    else:
        weights = g("Cast", g.keep, to=1)
    first = g.first_state()
    first = g("Mul", first, g.vector("add.factor"))
    if "add.down.weight" in g.weights:
        first = g("MatMul", first, g.turned(g.vector("add.down.weight")))
    bias = g.vector("add.out.bias")
    tied = "add.out.weight" not in g.weights
    table = "embeddings.word_embeddings.weight" if tied else g.table("add.out.weight")
    if g.small:
        parts = g("DynamicQuantizeLinear", first, outputs=3)
        added = g.multiply(parts, table, table + SCALE, bias)
    else:
        added = g("Add", g("MatMul", first, g.turned(table)), bias)
    return weights, g("Relu", g("Squeeze", added, g.constant([1])))
