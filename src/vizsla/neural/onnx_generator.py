"""A BERT with a decoder in ONNX: written as two graphs, and run by onnxruntime to write texts without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import processors
from vizsla.errors import InputError
from vizsla.neural.beams import BeamStates
from vizsla.neural.network import encoder_statistics
from vizsla.neural.onnx_graph import (
    WORDS,
    EncoderGraph,
    NetworkGraph,
    Port,
    Precision,
    Statistics,
    layer_count,
    need_onnx,
    save_graph,
)
from vizsla.neural.onnx_network import open_graph, side_by_side
from vizsla.neural.weights import SCALE, WEIGHTS, write_arrays

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
FILES = (ENCODER, DECODER, WEIGHTS)
NEW = "new_"
_EPSILON = 1e-5  # of BART's normalisations
_ZERO = 128  # of quantised states
_SMALLEST = 1e-9  # lower bound of the peak of a text's states, to avoid a division by 0


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
    statistics = encoder_statistics(weights, encoder_heads, texts) if texts and precision == "int8" else Statistics()
    reader = PassageGraph(weights, encoder_heads, decoder_heads, precision, statistics)
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
        statistics: Statistics,
    ) -> None:
        super().__init__(weights, heads, precision, statistics, epsilon=_EPSILON)
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
    """The names of the keys and values of the tokens so far; with the prefix `NEW`, those with one more token."""
    return [f"keys_{layer}", f"values_{layer}"]


class StepGraph(NetworkGraph):
    """From the last token of each text to the logits of the next one.

    `tokens`: [texts]. `position`: how many tokens precede each. `grid`: [passages, most] the numbers of the texts of
    each passage, padded with arbitrary ones. `places`: [texts] where in the grid each text is. `lengths`: [passages]
    the tokens of each. `count`: how many of the highest logits are returned.
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
        """[texts, hidden] cross-attention of texts to their passage; with a mask only if there is padding."""
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
        return self("Cast", shifted, to=2), scales  # the cast truncates, so after adding 0.5 it rounds

    def _multiplied(self, quantised: tuple[str, str], table: str) -> str:
        """Multiply quantised states by an int8 table with one row per output."""
        values, scales = quantised
        one, zero = self.constant(1, np.float32), self.constant(_ZERO, np.uint8)
        product = self("MatMulIntegerToFloat", values, self.transposed(table), one, table + SCALE, zero)
        return str(self("Mul", product, scales))


_TEXTS = 64  # written at once on a thread
_LEFT = 7 / 8  # finished texts are removed from the batch once the unfinished ones are at most this share of it


class OnnxGenerator:
    """A generator in a folder. Passages of similar length are processed together, each group on one thread.

    `start`: the token that texts begin with. `ends`: those that end a text. `threads`: how many groups at once; by
    default as many as there are processors. It changes no text.
    """

    def __init__(self, folder: str | Path, start: int, ends: Sequence[int], threads: int | None = None) -> None:
        self.folder, self.start, self.ends = Path(folder), start, np.array(ends, np.int64)
        self.threads = threads or processors()
        self.encoder, self.decoder = (open_graph(self.folder, name) for name in (ENCODER, DECODER))
        about = self.decoder.get_modelmeta().custom_metadata_map
        try:
            self.words, self.longest, self.most = (int(about[name]) for name in ("words", "longest", "most"))
            self.layers, self.heads, self.size = (int(about[name]) for name in ("layers", "heads", "size"))
        except (KeyError, ValueError):
            raise InputError("this generator was not written by Vizsla", file=str(self.folder / DECODER)) from None

    def generate(
        self, inputs: Sequence[np.ndarray], uniform: np.ndarray, *, top_k: int, top_p: float, temperature: float
    ) -> list[list[list[int]]]:
        """The tokens of several texts for each input.

        `uniform`: [inputs, texts, tokens] the random numbers to sample with; its shape decides how many texts are
        generated and how long they may be.
        """
        self._check(inputs, uniform.shape[2])
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]), reverse=True)
        size = max(1, _TEXTS // uniform.shape[1])
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        sampling = _Sampling(top_k if 0 < top_k < self.words else 0, top_p, temperature)

        def work(group: list[int]) -> list[list[list[int]]]:
            return self._write([inputs[i] for i in group], uniform[group], sampling)

        written: list[list[list[int]]] = [[] for _ in inputs]
        for group, texts in zip(groups, side_by_side(work, groups, self.threads), strict=True):
            for i, own in zip(group, texts, strict=True):
                written[i] = own
        return written

    def beams(self, inputs: Sequence[np.ndarray], beam: int, steps: int) -> BeamStates:
        """The states of some inputs for a beam search of so many steps; see `together` for how many at once."""
        self._check(inputs, steps)
        return _OnnxBeams(_States(self, inputs), len(inputs), beam, self.start)

    def together(self, beam: int) -> int:  # noqa: ARG002 (other generators ask)
        """How many inputs are best searched at once."""
        return 1

    def _check(self, inputs: Sequence[np.ndarray], tokens: int) -> None:
        longest = max(map(len, inputs), default=0)
        if longest > self.longest:
            raise InputError(
                f"an input has {longest} tokens, and this generator reads at most {self.longest}", file=str(self.folder)
            )
        if any(ids.max(initial=0) >= self.words for ids in inputs):
            raise InputError(
                f"a token of an input is outside of this generator's vocabulary of {self.words}", file=str(self.folder)
            )
        if tokens > self.most:
            raise InputError(
                f"texts of {tokens} tokens were requested, but this generator writes at most {self.most}",
                file=str(self.folder),
            )

    def _write(self, inputs: list[np.ndarray], uniform: np.ndarray, sampling: _Sampling) -> list[list[list[int]]]:
        """The tokens of the texts of some inputs, without end tokens."""
        count, texts, steps = uniform.shape
        written: list[list[list[int]]] = [[[] for _ in range(texts)] for _ in range(count)]
        states = _States(self, inputs)
        logits, numbers = states.step(np.full(count, self.start), sampling)
        rows, slots = np.repeat(np.arange(count), texts), np.tile(np.arange(texts), count)
        states.keep(rows)
        logits, numbers = logits[rows], numbers[rows]
        live = np.ones(len(rows), bool)
        for step in range(steps):
            tokens = sampling.tokens(logits, numbers, uniform[rows, slots, step])
            live &= ~np.isin(tokens, self.ends)
            for row, slot, token in zip(rows[live].tolist(), slots[live].tolist(), tokens[live].tolist(), strict=True):
                written[row][slot].append(token)
            if step + 1 == steps or not live.any():
                break
            if live.mean() <= _LEFT:
                states.keep(np.flatnonzero(live))
                rows, slots, tokens, live = rows[live], slots[live], tokens[live], live[live]
            logits, numbers = states.step(tokens, sampling)
        return written


class _OnnxBeams(BeamStates):
    """The states of some inputs and of the beam of texts of each, see `neural.beams`."""

    def __init__(self, states: _States, inputs: int, beam: int, start: int) -> None:
        self._states, self._inputs, self._beam, self._start = states, inputs, beam, start
        self._is_first = True

    def start(self) -> np.ndarray:
        """[inputs, vocabulary] the logits of the first token."""
        return self._states.step(np.full(self._inputs, self._start), _ALL_TOKENS)[0]

    def step(self, parents: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """[inputs, beam, vocabulary] the logits after one more token of each text."""
        each = 1 if self._is_first else self._beam
        self._states.keep((np.arange(self._inputs)[:, None] * each + parents).ravel())
        self._is_first = False
        logits, _ = self._states.step(tokens.ravel(), _ALL_TOKENS)
        return logits.reshape(*tokens.shape, -1)


@dataclass(frozen=True)
class _Sampling:
    """How tokens are drawn; `top_k` 0 is no limit."""

    top_k: int
    top_p: float
    temperature: float

    def count(self, words: int) -> int:
        """How many of the highest logits are needed, in descending order; 0 for all, in the vocabulary's order."""
        if self.temperature == 0:
            return 1
        return self.top_k or (words if self.top_p < 1 else 0)

    def tokens(self, logits: np.ndarray, numbers: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """[texts] the next token of each text, drawn by one uniform random number a text.

        `logits`: [texts, tokens] of the candidate tokens, whose ids are in `numbers`. With a top_p below 1 the
        likeliest must come first, and only the likeliest that together have this probability can be drawn.

        >>> sampling = _Sampling(top_k=2, top_p=1.0, temperature=1.0)
        >>> logits, numbers = np.array([[3.0, 2.0], [9.0, 0.0]], np.float32), np.array([[1, 2], [0, 1]])
        >>> sampling.tokens(logits, numbers, np.array([0.9, 0.2], np.float32)).tolist()
        [2, 0]
        """
        if self.temperature == 0:
            return np.asarray(numbers[:, 0])
        probabilities = np.exp((logits - logits.max(1, keepdims=True)) / self.temperature)
        probabilities /= probabilities.sum(1, keepdims=True)
        if self.top_p < 1:
            before = probabilities.cumsum(1) - probabilities
            probabilities *= before < self.top_p
        cumulative = probabilities.cumsum(1)
        drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(1)
        drawn = np.minimum(drawn, probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(1))
        return np.asarray(numbers[np.arange(len(drawn)), drawn])


_ALL_TOKENS = _Sampling(0, 1.0, 1.0)


class _States:
    """The cached keys and values of some inputs and of the texts generated for them; at first one text per input."""

    def __init__(self, generator: OnnxGenerator, inputs: Sequence[np.ndarray]) -> None:
        self.generator, self.position = generator, 0
        self.lengths = np.array([len(ids) for ids in inputs])
        layers = range(generator.layers)
        self._sources = dict(zip([name for i in layers for name in source_names(i)], self._read(inputs), strict=True))
        nothing = np.zeros((len(inputs), generator.heads, 0, generator.size), np.float32)
        self._past = {name: nothing for i in layers for name in past_names(i)}
        self._inputs = np.arange(len(inputs))  # of each text
        self._arrange()

    def _read(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The keys and values of inputs, each encoded by itself so that in 8 bits they do not depend on each other."""
        padded: list[np.ndarray] = []
        for number, ids in enumerate(inputs):
            given = {"ids": ids[None], "lengths": np.array([len(ids)])}
            for place, values in enumerate(self.generator.encoder.run(None, given)):
                if not number:
                    shape = (len(inputs), *values.shape[1:2], int(self.lengths.max()), values.shape[3])
                    padded.append(np.zeros(shape, np.float32))
                padded[place][number, :, : len(ids)] = values[0]
        return padded

    def step(self, tokens: np.ndarray, sampling: _Sampling) -> tuple[np.ndarray, np.ndarray]:
        """Feed one more token of each text; returns the logits of the tokens that can follow, and their ids."""
        count = sampling.count(self.generator.words)
        given = {"tokens": tokens, "position": np.array(self.position), "count": np.array([max(count, 1)])}
        given |= {"grid": self._grid, "places": self._places, "lengths": self.lengths}
        wanted = ["highest", "numbers"] if count else ["logits"]
        made: list[Any] = self.generator.decoder.run(
            [*wanted, *(NEW + name for name in self._past)], given | self._sources | self._past
        )
        self._past = dict(zip(self._past, made[len(wanted) :], strict=True))
        self.position += 1
        if count:
            return made[0], made[1]
        return made[0], np.broadcast_to(np.arange(self.generator.words), made[0].shape)

    def keep(self, texts: np.ndarray) -> None:
        """Keep only these texts, in the order of their inputs; a text may be listed several times."""
        self._past = {name: values[texts] for name, values in self._past.items()}
        kept, self._inputs = np.unique(self._inputs[texts], return_inverse=True)
        if len(kept) < len(self.lengths):
            self.lengths = self.lengths[kept]
            self._sources = {name: values[kept, :, : self.lengths.max()] for name, values in self._sources.items()}
        self._arrange()

    def _arrange(self) -> None:
        """Assign each text a place in the grid of its input's texts."""
        counts = np.bincount(self._inputs, minlength=len(self.lengths))
        firsts = np.cumsum(counts) - counts
        self._places = self._inputs * counts.max() + np.arange(len(self._inputs)) - firsts[self._inputs]
        self._grid = np.zeros(len(counts) * counts.max(), np.int64)
        self._grid[self._places] = np.arange(len(self._inputs))
        self._grid = self._grid.reshape(len(counts), -1)
