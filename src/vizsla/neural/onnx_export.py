"""Networks written for onnxruntime.

`write_network` makes a folder of two files: `network.onnx`, the operations, and `weights.safetensors`, the arrays. The
graph records where in the second file each array begins, so onnxruntime can map it and torch can read the same file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.heads import HEADS, Output
from vizsla.neural.onnx_graph import EncoderGraph, Graph, Precision, Statistics
from vizsla.neural.onnx_network import session_options
from vizsla.neural.weights import NETWORK, WEIGHTS, write_arrays

Port = tuple[str, str, type[np.generic], Sequence[Any]]
"""An output of a graph: the node, its name, its type and its shape."""
_PEAKS, _MOMENTS = "peaks.", "moments."  # prefixes of outputs that only measure a sample of texts


def write_network(
    folder: str | Path,
    weights: Mapping[str, np.ndarray],
    head: str,
    *,
    attention_heads: int = 12,
    precision: Precision = "int8",
    special_tokens: Sequence[int] = SPECIAL_TOKENS,
    sample: Iterable[Sequence[int]] = (),
    pooling: str = "",
) -> None:
    """Write a network: an encoder, its arrays named as in transformers, and a head of `HEADS`.

    `pooling`: "mean", "cls" or "cls+mean", for the head "dense".
    `special_tokens`: token ids that the head "unicoil" gives no weight.
    `sample`: some texts as token ids, [CLS] and [SEP] included; thirty are enough to keep 8 bits accurate.
    """
    need_onnx()
    texts = list(sample)
    built = HEADS[head].make()
    measures = bool(texts) and precision == "int8"
    statistics = _measured(weights, head, attention_heads, texts, pooling) if measures else Statistics()
    reads = {"reads_pairs": built.reads_pairs, "reads_first": built.reads_first}
    graph = EncoderGraph(weights, attention_heads, precision, statistics, **reads)
    _write(Path(folder), graph, head, built.outputs(graph, special_tokens=special_tokens, pooling=pooling))


def need_onnx() -> None:
    """Raise an error if onnx is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise VizslaError("writing a network for onnxruntime needs onnx; install it with: pip install onnx")


def _write(folder: Path, graph: EncoderGraph, head: str, outputs: Sequence[Output]) -> None:
    shapes = [_shape(output) for output in outputs]
    folder.mkdir(parents=True, exist_ok=True)
    save_graph(
        folder / NETWORK,
        graph,
        write_arrays(folder / WEIGHTS, graph.stored),
        {"ids": (np.int64, ["batch", "length"]), "lengths": (np.int64, ["batch"])},
        [(o.node, o.name, np.float32, shape) for o, shape in zip(outputs, shapes, strict=True)],
        {"head": head, "longest": str(graph.longest), "words": str(graph.words)},
    )


def _shape(output: Output) -> list[Any]:
    if output.name.startswith(_PEAKS):
        return [None]
    if output.name.startswith(_MOMENTS):
        return [None, None]
    return ["batch", "length", output.width] if output.per_token else ["batch", output.width]


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


def encoder_statistics(weights: Mapping[str, np.ndarray], heads: int, texts: Sequence[Sequence[int]]) -> Statistics:
    """What is measured while an encoder without a head reads some texts."""
    return _measured(weights, "dense", heads, texts, "mean")


def _measured(
    weights: Mapping[str, np.ndarray], head: str, heads: int, texts: Sequence[Sequence[int]], pooling: str
) -> Statistics:
    """The statistics of some texts, computed in 32-bit floats."""
    import onnxruntime

    built_head = HEADS[head].make()
    reads = {"reads_pairs": built_head.reads_pairs, "reads_first": built_head.reads_first}
    graph = EncoderGraph(weights, heads, "float32", Statistics(), **reads)
    outputs = built_head.outputs(graph, special_tokens=SPECIAL_TOKENS, pooling=pooling)
    for matrix, states in graph.watched.items():
        highest = graph("ReduceMax", graph("Abs", states), graph.constant([0, 1]), keepdims=0)
        outputs.append(Output(highest, _PEAKS + matrix, 0))
    for table, states in graph.compared.items():
        rows = graph("Reshape", states, graph.constant([-1, graph.hidden]))
        rows = graph("Pad", rows, graph.constant([0, 0, 0, 1]), graph.constant(1, np.float32))
        outputs.append(Output(graph("MatMul", graph("Transpose", rows, perm=[1, 0]), rows), _MOMENTS + table, 0))
    peaks: dict[str, np.ndarray] = {}
    moments: dict[str, np.ndarray] = {}
    with TemporaryDirectory() as folder:
        _write(Path(folder), graph, head, outputs)
        options = session_options()  # on one thread: several that wait for each other are slow on a busy machine
        session = onnxruntime.InferenceSession(Path(folder) / NETWORK, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs() if o.name.startswith((_PEAKS, _MOMENTS))]
        for text in texts:
            ids = np.asarray(text, np.int64)[None]
            for name, values in zip(
                names, session.run(names, {"ids": ids, "lengths": np.array([ids.size])}), strict=True
            ):
                kind, _, matrix = name.partition(".")
                if kind == _MOMENTS[:-1]:
                    moments[matrix] = moments.get(matrix, 0) + values.astype(np.float64)
                else:
                    peaks[matrix] = np.maximum(peaks.get(matrix, values), values)
    return Statistics(peaks, moments)
