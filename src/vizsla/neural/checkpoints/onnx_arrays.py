"""The arrays of a BERT that others exported to ONNX, under the names they have in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.onnx_export import need_onnx

_QUANTISED = "_quantized", "_scale", "_zero_point"
_PASSING = ("Cast", "Mul")  # between an 8-bit product and its bias
_PRODUCTS = ("MatMul", "MatMulInteger")


def onnx_arrays(file: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays in an ONNX file, and the names of its outputs; arrays in 8 bits become floats again.

    Exporters keep the names of tables and biases, and transpose matrices and number them. A matrix gets the name of the
    bias that is added to its product. What cannot be named so is left out.
    """
    need_onnx()
    import onnx

    try:
        graph = onnx.load(file).graph
        arrays = {array.name: onnx.numpy_helper.to_array(array, str(file.parent)) for array in graph.initializer}
    except Exception as e:  # protobuf's own, and those of the system
        reason = " ".join(str(e).split())[:200]
        raise InputError(f"this is not an ONNX file, or it is damaged ({reason})", file=str(file)) from None
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in arrays:  # equal arrays are stored once
            arrays[node.output[0]] = arrays[node.input[0]]
        for name in node.input:
            readers.setdefault(name, []).append(node)
    named = {name: _floats(name, arrays) for name in map(_plain, arrays) if "." in name}
    for node in graph.node:
        matrix = next((name for name in node.input if name in arrays and arrays[name].ndim == 2), None)
        if node.op_type in _PRODUCTS and matrix is not None:
            bias = _bias(node.output[0], readers, arrays)
            if bias.endswith(".bias"):
                named[bias.removesuffix("bias") + "weight"] = _floats(_plain(matrix), arrays).T
    floats = {name: np.ascontiguousarray(array, np.float32) for name, array in named.items() if array.dtype.kind == "f"}
    return floats, [output.name for output in graph.output]


def _plain(name: str) -> str:
    return next((name.removesuffix(end) for end in _QUANTISED if name.endswith(end)), name)


def _floats(name: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """An array by its name, dequantised where it is in 8 bits. Scales are one, or one for each column."""
    if name in arrays:
        return arrays[name]
    values, scale, zero = (arrays.get(name + end) for end in _QUANTISED)
    if values is None or scale is None:
        return np.zeros(0, np.int8)
    return np.asarray((values.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))) * scale)


def _bias(output: str, readers: dict[str, list[Any]], arrays: dict[str, np.ndarray]) -> str:
    """The name of the array that is added to a product; empty where there is none."""
    while len(followers := readers.get(output, [])) == 1:
        node = followers[0]
        if node.op_type == "Add":
            return next((name for name in node.input if name in arrays and arrays[name].ndim == 1), "")
        if node.op_type not in _PASSING:
            return ""
        output = node.output[0]
    return ""
