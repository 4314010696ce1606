"""A BERT with a decoder as two ONNX graphs: one reads passages, the other writes one more token of their texts.

All texts of a passage are written side by side and attend to the same keys and values of the passage, which are worked
out once. In 8 bits each text has scales of its own, so what is written beside it does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.neural.graph import WORDS, EncoderGraph, NetworkGraph, Precision, layer_count
from vizsla.neural.onnx_export import Port, encoder_peaks, need_onnx, save_graph
from vizsla.neural.weights import SCALE, WEIGHTS, write_arrays

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
FILES = (ENCODER, DECODER, WEIGHTS)
NEW = "new_"
_EPSILON = 1e-5  # of BART's normalisations
_ZERO = 128  # of quantised states
_SMALLEST = 1e-9  # peak of a text's states, so that none is divided by 0


def write_seq2seq(
    folder: Path,
    weights: Mapping[str, np.ndarray],
    *,
    encoder_heads: int,
    decoder_heads: int,
    precision: Precision = "int8",
    sample: Sequence[Sequence[int]] = (),
) -> None:
    """Write `encoder.onnx`, `decoder.onnx` and their `weights.safetensors` into a folder.

    `weights`: the arrays of a BERT with a decoder. `sample`: some passages as token ids, special tokens included.
    """
    need_onnx()
    texts = list(sample)
    peaks = encoder_peaks(weights, encoder_heads, texts) if texts and precision == "int8" else {}
    reader = PassageGraph(weights, encoder_heads, decoder_heads, precision, peaks)
    writer = StepGraph(weights, decoder_heads, precision)
    folder.mkdir(parents=True, exist_ok=True)
    places = write_arrays(folder / WEIGHTS, reader.stored | writer.stored)
    about = {"words": str(writer.words), "longest": str(reader.longest), "most": str(writer.longest)}
    about |= {"layers": str(writer.layers), "heads": str(decoder_heads), "size": str(writer.size)}
    passages = {"ids": (np.int64, ["passages", "length"]), "lengths": (np.int64, ["passages"])}
    save_graph(folder / ENCODER, reader, places, passages, reader.outputs, about)
    save_graph(folder / DECODER, writer, places, writer.inputs, writer.outputs, about)


class PassageGraph(EncoderGraph):
    """From `ids` to the keys and values of a passage that each layer of the decoder attends to."""

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        heads: int,
        decoder_heads: int,
        precision: Precision,
        peaks: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(weights, heads, precision, peaks, epsilon=_EPSILON)
        shape = self.constant([0, 0, decoder_heads, self.hidden // decoder_heads])
        layers = range(layer_count(weights, "decoder"))
        matrices = [f"decoder.layer.{i}.crossattention.self.{part}" for i in layers for part in ("key", "value")]
        names = [name for i in layers for name in source_names(i)]
        split = [
            self("Transpose", self("Reshape", product, shape), perm=[0, 2, 1, 3])
            for product in self.products(matrices, self.states)
        ]
        sizes = ["passages", decoder_heads, "length", self.hidden // decoder_heads]
        self.outputs = [(node, name, np.float32, sizes) for node, name in zip(split, names, strict=True)]


def source_names(layer: int) -> list[str]:
    """The keys and values of a passage."""
    return [f"source_keys_{layer}", f"source_values_{layer}"]


def past_names(layer: int) -> list[str]:
    """The keys and values of what was written before; after `NEW`, those with one more token."""
    return [f"keys_{layer}", f"values_{layer}"]


class StepGraph(NetworkGraph):
    """From the last token of each text to the logits of the next one.

    `tokens`: [texts]. `position`: how many tokens stand before each. `grid`: [passages, most] the texts of each passage
    by their number, and any others up to the most that one has. `places`: [texts] where in the grid each is. `lengths`:
    [passages] the tokens of each. `count`: how many of the highest logits are given.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], heads: int, precision: Precision) -> None:
        super().__init__(weights, heads, precision, _EPSILON)
        self.size, self.layers = self.hidden // heads, layer_count(weights, "decoder")
        self.longest = len(self.array("decoder.embeddings.position_embeddings.weight"))
        self.by_passage, self.by_text = self.constant([0, 0, heads, self.size]), self.constant([0, heads, 1, self.size])
        self.flat = self.constant([-1, self.hidden])
        self.mask, self.full = self._padding()
        self.outputs: list[Port] = []
        states = self._embed()
        for layer in range(self.layers):
            states = self._layer(layer, states)
        logits = self._logits(states)
        highest, numbers = self("TopK", logits, "count", outputs=2)
        self.outputs += [
            (logits, "logits", np.float32, ["texts", self.words]),
            (highest, "highest", np.float32, ["texts", "count"]),
            (numbers, "numbers", np.int64, ["texts", "count"]),
        ]

    @property
    def inputs(self) -> dict[str, tuple[type[np.generic], Sequence[Any]]]:
        """The type and shape of each input."""
        given: dict[str, tuple[type[np.generic], Sequence[Any]]] = {
            "tokens": (np.int64, ["texts"]), "position": (np.int64, []), "grid": (np.int64, ["passages", "most"]),
            "places": (np.int64, ["texts"]), "lengths": (np.int64, ["passages"]), "count": (np.int64, [1]),
        }  # fmt: skip
        for layer in range(self.layers):
            given |= dict.fromkeys(source_names(layer), (np.float32, ["passages", self.heads, "length", self.size]))
            given |= dict.fromkeys(past_names(layer), (np.float32, ["texts", self.heads, "past", self.size]))
        return given

    def _padding(self) -> tuple[str, str]:
        """[passages, 1, most, length] which tokens of a passage are not padding, and whether none is."""
        length = self("Shape", source_names(0)[0], start=2, end=3)
        places = self("Range", self.constant(0), self("Squeeze", length), self.constant(1))
        keep = self("Less", places, self("Unsqueeze", "lengths", self.constant([1])))
        most = self("Shape", "grid", start=1, end=2)
        square = self("Concat", self.constant([1, 1]), most, self.constant([1]), axis=0)
        mask = self("Expand", self("Unsqueeze", keep, self.constant([1, 2])), square)
        return mask, self("Equal", self("ReduceMin", "lengths", keepdims=0), self("Squeeze", length))

    def _embed(self) -> str:
        words = self._looked_up(WORDS, "tokens")
        positions = self._looked_up("decoder.embeddings.position_embeddings.weight", "position")
        return self.norm("decoder.embeddings.LayerNorm", self("Add", words, positions))

    def _looked_up(self, name: str, numbers: str) -> str:
        """Rows of a table in floats."""
        table = self.table(name)
        values = self("Gather", table, numbers)
        if not self.int8:
            return str(values)
        scale = self("Unsqueeze", self("Gather", table + SCALE, numbers), self.constant([-1]))
        return str(self("Mul", self("Cast", values, to=1), scale))

    def _layer(self, number: int, states: str) -> str:
        prefix = f"decoder.layer.{number}."
        parts = self._products([f"{prefix}attention.self.{part}" for part in ("query", "key", "value")], states)
        query, key, value = (self("Reshape", part, self.by_text) for part in parts)
        past = past_names(number)
        mixed, *new = self("Attention", query, key, value, "", *past, outputs=3)
        sizes = ["texts", self.heads, "past + 1", self.size]
        self.outputs += [(node, NEW + name, np.float32, sizes) for node, name in zip(new, past, strict=True)]
        states = self._finish(prefix + "attention.output", self("Reshape", mixed, self.flat), states)
        seen = self._attend(self._products([prefix + "crossattention.self.query"], states)[0], source_names(number))
        states = self._finish(prefix + "crossattention.output", seen, states)
        inner = self("Gelu", self._products([prefix + "intermediate.dense"], states)[0])
        return self._finish(prefix + "output", inner, states)

    def _finish(self, name: str, inner: str, states: str) -> str:
        (made,) = self._products([name + ".dense"], inner)
        return self.norm(name + ".LayerNorm", self("Add", made, states))

    def _attend(self, query: str, passage: Sequence[str]) -> str:
        """[texts, hidden] what texts see of their passage; with a mask only if there is padding."""
        from onnx import TensorProto, helper

        query = self("Reshape", self("Gather", query, "grid"), self.by_passage)
        query = self("Transpose", query, perm=[0, 2, 1, 3])
        ways = []
        for name, mask in ((f"full_{len(self.nodes)}", ()), (f"padded_{len(self.nodes)}", (self.mask,))):
            node = helper.make_node("Attention", [query, *passage, *mask], [name])
            shape = ["passages", self.heads, "most", self.size]
            output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            ways.append(helper.make_graph([node], name, [], [output]))
        seen = self("If", self.full, then_branch=ways[0], else_branch=ways[1])
        seen = self("Reshape", self("Transpose", seen, perm=[0, 2, 1, 3]), self.flat)
        return str(self("Gather", seen, "places"))

    def _products(self, names: Sequence[str], states: str) -> list[str]:
        """Linear layers of the same states."""
        if not self.int8:
            made = [self("MatMul", states, self.transposed(self.vector(name + ".weight"))) for name in names]
        else:
            quantised = self._quantised(states)
            made = [self._multiplied(quantised, self.table(name + ".weight")) for name in names]
        return [self("Add", m, self.vector(n + ".bias")) for m, n in zip(made, names, strict=True)]

    def _logits(self, states: str) -> str:
        if self.int8:
            logits = self._multiplied(self._quantised(states), WORDS)
        else:
            logits = self("MatMul", states, self.transposed(WORDS))
        return self("Add", logits, self.vector("decoder.bias")) if "decoder.bias" in self.weights else logits

    def _quantised(self, states: str) -> tuple[str, str]:
        """The states of each text in 8 bits, and the scale of each."""
        peaks = self("ReduceMax", self("Abs", states), self.constant([1]))
        scales = self("Div", self("Max", peaks, self.constant(_SMALLEST, np.float32)), self.constant(127, np.float32))
        shifted = self("Add", self("Div", states, scales), self.constant(_ZERO + 0.5, np.float32))
        return self("Cast", shifted, to=2), scales  # a cast cuts off what comes after the point, so this rounds

    def _multiplied(self, quantised: tuple[str, str], table: str) -> str:
        """Quantised states by a table of 8 bits, its rows the outputs."""
        values, scales = quantised
        one, zero = self.constant(1, np.float32), self.constant(_ZERO, np.uint8)
        product = self("MatMulIntegerToFloat", values, self.transposed(table), one, table + SCALE, zero)
        return str(self("Mul", product, scales))
