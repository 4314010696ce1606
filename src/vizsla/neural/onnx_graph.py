"""A BERT encoder as an ONNX graph, built by hand so that 8-bit arithmetic is used where it is fast; and its file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.neural.chunks import END
from vizsla.neural.weights import DIVISORS, SCALE, WEIGHTS

Precision = Literal["int8", "float32"]
WORDS = "embeddings.word_embeddings.weight"
_EPSILON = 1e-12  # of BERT's normalisations
_CALM = 2.0  # channels whose peak is more than this many times the median peak are divided


def quantise(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in 8 bits, and the scale of each.

    Processors without VNNI add two neighbouring products in 16 bits and cut off what does not fit. So the positive
    parts of two neighbours add to at most 127, and so do the negative ones, and products are the same on every
    processor.

    >>> quantise(np.array([[0.5, -1.0], [0.0, 0.0], [1.0, 1.0]]))[0].tolist()
    [[64, -127], [0, 0], [64, 64]]
    """
    pairs = np.pad(matrix, ((0, 0), (0, matrix.shape[1] % 2))).reshape(len(matrix), -1, 2)
    highest = np.maximum(np.maximum(pairs, 0).sum(2), np.maximum(-pairs, 0).sum(2)).max(1)
    scale = np.where(highest == 0, 1, highest / 127).astype(np.float32)
    return np.rint(matrix / scale[:, None]).astype(np.int8), scale


def layer_count(weights: Iterable[str], side: str) -> int:
    """How many layers the encoder or the decoder of a network has, by the names of its arrays."""
    return sum(name.startswith(side) and name.endswith(".attention.self.query.weight") for name in weights)


@dataclass(frozen=True)
class Statistics:
    """What was measured while a network read a sample of texts.

    `peaks`: the highest value of each channel that goes into a matrix, by the matrix.
    `moments`: [channels + 1, channels + 1] the sums of products of all pairs of channels, a last one of ones included,
    of the states that a head multiplies by a table, by the table.
    """

    peaks: Mapping[str, np.ndarray] = field(default_factory=dict)
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)


class Graph:
    """Nodes in the order they run. `inside`: small arrays kept in the graph. `stored`: those in the file of weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inside: dict[str, np.ndarray] = {}
        self.stored: dict[str, np.ndarray] = {}

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add an operation; returns the name of its output, or the names if it has several."""
        from onnx import helper

        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        domain = "com.microsoft" if kind == "MatMulIntegerToFloat" else ""
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values: Any, kind: type[np.generic] = np.int64) -> str:
        name = f"constant_{len(self.inside)}"
        self.inside[name] = np.asarray(values, kind)
        return name

    def store(self, name: str, values: np.ndarray) -> str:
        self.stored[name] = np.ascontiguousarray(values)
        return name


class NetworkGraph(Graph):
    """A graph of transformer layers over the arrays of a network, in 8 bits or in floats."""

    def __init__(
        self, weights: Mapping[str, np.ndarray], heads: int, precision: Precision, epsilon: float = _EPSILON
    ) -> None:
        """`heads`: those of attention. `epsilon`: that of normalisations."""
        super().__init__()
        self.weights, self.heads, self.int8, self.epsilon = weights, heads, precision == "int8", epsilon
        self.words, self.hidden = self.array(WORDS).shape

    def transposed(self, table: str) -> str:
        return str(self("Transpose", table, perm=[1, 0]))  # of a constant, so it runs once, when the network is opened

    def norm(self, name: str, states: str) -> str:
        scale, shift = self.vector(name + ".weight"), self.vector(name + ".bias")
        return str(self("LayerNormalization", states, scale, shift, axis=-1, epsilon=self.epsilon))

    def table(self, name: str, divisors: np.ndarray | None = None) -> str:
        """Store a matrix, as int8 if the network is quantised."""
        if not self.int8:
            return self.vector(name)
        matrix = self.array(name)
        if divisors is not None:
            matrix = matrix * self.stored.setdefault(name + DIVISORS, divisors)
        values, scale = quantise(matrix)
        self.store(name + SCALE, scale)
        return self.store(name, values)

    def vector(self, name: str) -> str:
        """Store an array in 32-bit floats."""
        return self.store(name, self.array(name))

    def array(self, name: str) -> np.ndarray:
        try:
            return np.asarray(self.weights[name], np.float32)
        except KeyError:
            raise InputError(f"the weights of this network lack {name}") from None


class EncoderGraph(NetworkGraph):
    """The encoder's part of the graph, from `ids` to `states`. `keep`: [batch, length] which tokens are not padding."""

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        heads: int,
        precision: Precision,
        statistics: Statistics,
        *,
        reads_pairs: bool = False,
        reads_first: bool = False,
        epsilon: float = _EPSILON,
    ) -> None:
        """`reads_pairs`: a text is a query and a document, which token types tell apart.

        `reads_first`: only the state of the first token is needed, so the last layer computes no other.
        """
        super().__init__(weights, heads, precision, epsilon)
        self.statistics, self.reads_pairs = statistics, reads_pairs
        self.watched: dict[str, str] = {}  # the states that go into a matrix, by the matrix
        self.compared: dict[str, str] = {}  # the states that a head multiplies by a table, by the table
        self.longest = len(self.array("embeddings.position_embeddings.weight"))
        length = self("Shape", "ids", start=1, end=2)
        places = self("Range", self.constant(0), self("Squeeze", length), self.constant(1))
        self.keep = self("Less", places, self("Unsqueeze", "lengths", self.constant([1])))
        square = self("Concat", self.constant([1, 1]), length, self.constant([1]), axis=0)
        self.mask = self("Expand", self("Unsqueeze", self.keep, self.constant([1, 2])), square)
        self.full = self("Equal", self("ReduceMin", "lengths", keepdims=0), self("Squeeze", length))
        self.states = self.embed(length)
        layers = layer_count(weights, "encoder")
        for layer in range(layers):
            only_first = reads_first and layer == layers - 1
            self.states = self.layer(f"encoder.layer.{layer}.", self.states, only_first=only_first)

    def embed(self, length: str) -> str:
        table = self.table(WORDS)
        words = self("Gather", table, "ids")
        positions = self.table("embeddings.position_embeddings.weight")
        if self.int8:
            scale = self("Unsqueeze", self("Gather", table + SCALE, "ids"), self.constant([2]))
            words = self("Mul", self("Cast", words, to=1), scale)
            scale = self("Unsqueeze", positions + SCALE, self.constant([1]))
            positions = self("Mul", self("Cast", positions, to=1), scale)
        table = self.vector("embeddings.token_type_embeddings.weight")
        if self.reads_pairs:
            words = self("Add", words, self("Gather", table, self.token_types()))
        else:  # of constants, so worked out when the network is opened
            positions = self("Add", positions, self("Gather", table, self.constant(0)))
        here = self("Slice", positions, self.constant([0]), length)
        return self.norm("embeddings.LayerNorm", self("Add", words, here))

    def token_types(self) -> str:
        """[batch, length] 0 up to the first [SEP] of each text, 1 behind it."""
        ends = self("Cast", self("Equal", "ids", self.constant(END)), to=7)
        return str(self("Min", self("CumSum", ends, self.constant(1), exclusive=1), self.constant(1)))

    def layer(self, prefix: str, states: str, *, only_first: bool = False) -> str:
        """The states after a layer; with `only_first` only those of the first tokens, which attend to all tokens."""
        query, *others = [prefix + "attention.self." + part for part in ("query", "key", "value")]
        if only_first:
            read = self.products(others, states)
            states = self.first_state()
            mixed = self.attend([self.product(query, states), *read], only_first=True)
        else:
            mixed = self.attend(self.products([query, *others], states))
        mixed = self.product(prefix + "attention.output.dense", mixed)
        states = self.norm(prefix + "attention.output.LayerNorm", self("Add", mixed, states))
        inner = self("Gelu", self.product(prefix + "intermediate.dense", states))
        inner = self.product(prefix + "output.dense", inner)
        return self.norm(prefix + "output.LayerNorm", self("Add", inner, states))

    def attend(self, parts: Sequence[str], *, only_first: bool = False) -> str:
        """Attention, with a mask only if there is padding: without one it is faster, the more so for long texts."""
        from onnx import TensorProto, helper

        mask = self("Unsqueeze", self.keep, self.constant([1, 2])) if only_first else self.mask
        shape = ["batch", 1 if only_first else "length", self.hidden]
        ways = []
        for name, inputs in ((f"full_{len(self.nodes)}", parts), (f"padded_{len(self.nodes)}", [*parts, mask])):
            node = helper.make_node("Attention", inputs, [name], q_num_heads=self.heads, kv_num_heads=self.heads)
            output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            ways.append(helper.make_graph([node], name, [], [output]))
        return str(self("If", self.full, then_branch=ways[0], else_branch=ways[1]))

    def product(self, name: str, states: str) -> str:
        return self.products([name], states)[0]

    def products(self, names: Sequence[str], states: str) -> list[str]:
        """Linear layers of the same states, which are quantised once for all of them."""
        self.watched[names[0]] = states
        if not self.int8:
            made = [self("MatMul", states, self.transposed(self.vector(name + ".weight"))) for name in names]
            return [self("Add", m, self.vector(n + ".bias")) for m, n in zip(made, names, strict=True)]
        divisors = self.divisors(names[0])
        tables = {name: self.table(name + ".weight", divisors) for name in names}
        if divisors is not None:
            states = self("Mul", states, self("Reciprocal", names[0] + ".weight" + DIVISORS))
        parts = self("DynamicQuantizeLinear", states, outputs=3)
        return [self.multiply(parts, t, t + SCALE, self.vector(name + ".bias")) for name, t in tables.items()]

    def multiply(self, states: Sequence[str], table: str, scale: str, bias: str) -> str:
        """Multiply quantised states (values, scale, zero) by an int8 table with one row per output."""
        values, factor, zero = states
        return str(self("MatMulIntegerToFloat", values, self.transposed(table), factor, scale, zero, "", bias))

    def divisors(self, name: str) -> np.ndarray | None:
        """The divisors of the channels going into a matrix; None for matrices that do not gain enough from it.

        Only feed-forward layers do.
        """
        peaks = self.statistics.peaks.get(name)
        if peaks is None or not name.endswith(("intermediate.dense", "output.dense")) or "attention" in name:
            return None
        return np.maximum(peaks / max(_CALM * float(np.median(peaks)), 1e-6), 1).astype(np.float32)

    def first_state(self) -> str:
        """[batch, 1, hidden] the state of the first token of each text."""
        return str(self("Slice", self.states, self.constant([0]), self.constant([1]), self.constant([1])))


Port = tuple[str, str, type[np.generic], Sequence[Any]]
"""An output of a graph: the node, its name, its type and its shape."""


def need_onnx() -> None:
    """Raise an error if onnx is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise VizslaError("writing a network for onnxruntime needs onnx; install it with: pip install onnx")


def save_graph(
    file: Path,
    graph: Graph,
    places: Mapping[str, int],
    inputs: Mapping[str, tuple[type[np.generic], Sequence[Any]]],
    outputs: Sequence[Port],
    properties: Mapping[str, str],
) -> None:
    """Write a graph whose arrays are in the weight file beside it.

    `places`: where in that file each array begins. `inputs`: the type and shape of each.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kinds: dict[type[np.generic], int] = {np.int64: TensorProto.INT64, np.float32: TensorProto.FLOAT}
    given = [helper.make_tensor_value_info(name, kinds[kind], shape) for name, (kind, shape) in inputs.items()]
    described = []
    for node, name, kind, shape in outputs:
        graph.nodes.append(helper.make_node("Identity", [node], [name]))
        described.append(helper.make_tensor_value_info(name, kinds[kind], shape))
    arrays = [numpy_helper.from_array(values, name) for name, values in graph.inside.items()]
    for name, values in graph.stored.items():
        stored = TensorProto.INT8 if values.dtype == np.int8 else TensorProto.FLOAT
        array = TensorProto(name=name, data_type=stored, dims=values.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", WEIGHTS), ("offset", places[name]), ("length", values.nbytes)):
            array.external_data.add(key=key, value=str(value))
        arrays.append(array)
    operations = helper.make_graph(graph.nodes, "vizsla", given, described, arrays)
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(operations, opset_imports=versions, ir_version=10, producer_name="vizsla")
    helper.set_model_props(model, dict(properties))
    onnx.save_model(model, file)
