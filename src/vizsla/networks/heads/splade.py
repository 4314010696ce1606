"""SPLADE's head: one weight for each word of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.networks.graph import EncoderGraph
from vizsla.networks.heads.base import HEADS, Head, Output
from vizsla.networks.weights import SCALE

if TYPE_CHECKING:
    from torch import nn

_SLICES = 16  # of the vocabulary, so that the logits of a text stay in the cache until their maximum is taken


@HEADS.register("splade", help="One weight for each word of the vocabulary.")
class SpladeHead(Head):
    """A masked-language head, and the maximum over the tokens of a text."""

    gives: ClassVar[str] = "vectors"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_splade(graph), "vectors", graph.words)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        from vizsla.networks.splade import Splade, TiedHead

        return Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, encoder.hidden))


def _splade(g: EncoderGraph) -> str:
    """One weight a word of the vocabulary."""
    states = g.norm("norm", g("Gelu", g.product("dense", without_padding(g))))
    highest = g("Relu", highest_logits(g, states, g.vector("decoder.bias")))
    return str(g("Log", g("Add", highest, g.constant(1, np.float32))))


def without_padding(g: EncoderGraph) -> str:
    """The states, with those of padding replaced by the first token's, which changes no maximum."""
    return str(g("Where", g("Unsqueeze", g.keep, g.constant([2])), g.states, g.first_state()))


def highest_logits(g: EncoderGraph, states: str, bias: str = "") -> str:
    """[batch, vocabulary] the highest product of each input embedding with the states of a text, plus a bias."""
    table = "embeddings.word_embeddings.weight"
    parts = g("DynamicQuantizeLinear", states, outputs=3) if g.small else ()
    cuts = np.linspace(0, g.words, min(_SLICES, g.words) + 1).astype(int)
    highest = []
    for start, end in pairwise(cuts):
        bounds = (g.constant([start]), g.constant([end]))
        rows, shift = g("Slice", table, *bounds), g("Slice", bias, *bounds) if bias else ""
        if g.small:
            logits = g.multiply(parts, rows, g("Slice", table + SCALE, *bounds), shift)
        else:
            product = g("MatMul", states, g.turned(rows))
            logits = g("Add", product, shift) if bias else product
        highest.append(g("ReduceMax", logits, g.constant([1]), keepdims=0))
    return str(g("Concat", *highest, axis=1))
