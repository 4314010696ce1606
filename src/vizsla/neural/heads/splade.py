"""SPLADE's head: one weight for each word of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.graph import EncoderGraph
from vizsla.neural.heads.base import HEADS, RULED_OUT, Head, Output
from vizsla.neural.weights import SCALE

if TYPE_CHECKING:
    from torch import nn

TABLE = "embeddings.word_embeddings.weight"
_OWN_TABLE = "decoder.weight"  # where the last layer is not the input embeddings again
_SLICE = 2000  # terms whose logits are made together, so that those of a text stay in the cache until their maximum
_ROWS = 16  # tokens that are compared at once: one comparison of many logits is faster than many of one


@HEADS.register("splade", help="One weight for each word of the vocabulary.")
class SpladeHead(Head):
    """A masked-language head, and the maximum or the sum over the tokens of a text.

    `pooling` is `max`, `sum`, `max+log1p` or `sum+log1p`; without a word it is `max`. See `SPLADE_POOLINGS`.
    """

    gives: ClassVar[str] = "vectors"

    def outputs(self, graph: EncoderGraph, *, silent: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_splade(graph, pooling.split("+")), "vectors", graph.words)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:
        from vizsla.neural.splade import Splade, TiedHead

        head = TiedHead(encoder.embeddings.word_embeddings, encoder.hidden, tied=_OWN_TABLE not in weights)
        return Splade(encoder, head, pooling.split("+"))


def _splade(g: EncoderGraph, pooling: Sequence[str]) -> str:
    """One weight a word of the vocabulary."""
    logarithms = 2 if "log1p" in pooling else 1
    table = g.table(_OWN_TABLE) if _OWN_TABLE in g.weights else TABLE
    if "sum" in pooling:
        states = g.norm("norm", g("Gelu", g.product("dense", g.states)))
        present = g("Unsqueeze", g("Cast", g.keep, to=1), g.constant([2]))

        def summed(logits: str) -> str:
            weights = g("Mul", _weights(g, logits, logarithms), present)
            return str(g("ReduceSum", weights, g.constant([1]), keepdims=0))

        return pooled_logits(g, states, summed, g.vector("decoder.bias"), table)
    states = g.norm("norm", g("Gelu", g.product("dense", without_padding(g))))
    return _weights(g, highest_logits(g, states, g.vector("decoder.bias"), table), logarithms)


def _weights(g: EncoderGraph, logits: str, logarithms: int) -> str:
    weights = g("Relu", logits)
    for _ in range(logarithms):
        weights = g("Log", g("Add", weights, g.constant(1, np.float32)))
    return str(weights)


def without_padding(g: EncoderGraph) -> str:
    """The states, with those of padding replaced by the first token's, which changes no maximum."""
    return str(g("Where", g("Unsqueeze", g.keep, g.constant([2])), g.states, g.first_state()))


def highest_logits(g: EncoderGraph, states: str, bias: str = "", table: str = TABLE) -> str:
    """[batch, vocabulary] the highest product of each input embedding with the states of a text, plus a bias.

    Where a bias rules terms out, theirs is their bias.
    """
    whole = g("Shape", states, start=1, end=2)
    missing = g("Sub", g.constant([_ROWS - 1]), g("Mod", g("Add", whole, g.constant([_ROWS - 1])), g.constant([_ROWS])))
    copies = g(
        "Expand", g("Slice", states, g.constant([0]), g.constant([1]), g.constant([1])), _beside(g, states, missing)
    )
    filled = g("Transpose", g("Concat", states, copies, axis=1), perm=[1, 0, 2])  # [tokens, batch, hidden]

    def highest(logits: str) -> str:
        groups = g("Split", logits, outputs=_ROWS, axis=0, num_outputs=_ROWS)
        return str(g("ReduceMax", g("Max", *groups), g.constant([0]), keepdims=0))

    return pooled_logits(g, filled, highest, bias, table)


def _beside(g: EncoderGraph, states: str, count: str) -> str:
    """The shape of some more states for each text."""
    return str(g("Concat", g("Shape", states, end=1), count, g("Shape", states, start=2), axis=0))


def pooled_logits(g: EncoderGraph, states: str, pool: Callable[[str], str], bias: str, table: str) -> str:
    """[batch, vocabulary] what `pool` makes of the products of each row of a table with the states of a text.

    Terms that the bias rules out take no part; they get their bias.
    """
    terms = np.flatnonzero(g.stored[bias] > RULED_OUT / 2) if bias else np.arange(g.words)
    scale = table + SCALE
    if len(terms) < g.words:
        chosen = g.constant(terms, np.int32)
        table, bias, scale = (g("Gather", name, chosen) if name in g.stored else name for name in (table, bias, scale))
    parts = g("DynamicQuantizeLinear", states, outputs=3) if g.small else ()
    cuts = np.linspace(0, len(terms), max(1, len(terms) // _SLICE) + 1).astype(int)
    pooled = []
    for start, end in pairwise(cuts):
        bounds = (g.constant([start]), g.constant([end]))
        rows, shift = g("Slice", table, *bounds), g("Slice", bias, *bounds) if bias else ""
        if g.small:
            logits = g.multiply(parts, rows, g("Slice", scale, *bounds), shift)
        else:
            product = g("MatMul", states, g.turned(rows))
            logits = g("Add", product, shift) if bias else product
        pooled.append(pool(logits))
    return _with_ruled_out(g, g("Concat", *pooled, axis=1), terms)


def _with_ruled_out(g: EncoderGraph, logits: str, terms: np.ndarray) -> str:
    """[batch, vocabulary] from [batch, terms]: the others get the bias of what is ruled out."""
    if len(terms) == g.words:
        return logits
    places = np.full(g.words, len(terms))
    places[terms] = np.arange(len(terms))
    wider = g("Pad", logits, g.constant([0, 0, 0, 1]), g.constant(RULED_OUT, np.float32))
    return str(g("Gather", wider, g.constant(places, np.int32), axis=1))
