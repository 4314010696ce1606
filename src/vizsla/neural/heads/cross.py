"""The head of cross-encoders: one score for a query and a document that are read as one text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.heads.dense import pooled

if TYPE_CHECKING:
    from torch import nn


@HEADS.register("cross", help="One score for a query and a document that are read together.")
class CrossHead(Head):
    """A layer with tanh and a linear one over the state of the first token."""

    gives: ClassVar[str] = "scores"
    reads_pairs: ClassVar[bool] = True
    reads_first: ClassVar[bool] = True

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_cross(graph), "scores", 1)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.neural.cross import Cross

        return Cross(encoder)


def _cross(g: EncoderGraph) -> str:
    """One score a text, from the state of its first token; in 32-bit floats, since it costs next to nothing."""
    first = pooled(g, "cls")
    for name in ("pooler.dense", "classifier"):
        layer = g("Add", g("MatMul", first, g.turned(g.vector(name + ".weight"))), g.vector(name + ".bias"))
        first = g("Tanh", layer) if name == "pooler.dense" else layer
    return first
