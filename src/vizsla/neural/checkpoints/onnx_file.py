"""An ONNX file that others exported: its folder and tokenizer, running it by onnxruntime as it is, and its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import processors
from vizsla.errors import InputError
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.checkpoints.tokenizers import MAX_LENGTH, bert_tokenizer, positions
from vizsla.neural.device import Device, onnx_device, providers
from vizsla.neural.onnx_graph import Precision, need_onnx
from vizsla.neural.onnx_network import check_runs_on, installed_onnxruntime, session_options
from vizsla.neural.weights import WEIGHTS, has_weights
from vizsla.text.tokenizers import tokenizers_library

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The inputs a network may have, named as in transformers; the first is required."""
LOGITS = "logits"
"""The usual name of a classifier's output, such as a cross-encoder's scores."""
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_FILES: dict[Precision, str] = {"int8": "model_quantized.onnx", "float32": "model.onnx"}
TOKENIZER, WORDS = "tokenizer.json", "vocab.txt"


class OnnxFile:
    """An open network that reads token ids, one text or pair at a time, on one thread each.

    Quantised networks often derive their scales from the whole batch, so a text's numbers would depend on the other
    texts in it. Reading each by itself avoids that.

    `threads`: how many texts at once; by default as many as there are processors. It changes no result.
    `longest`: how many tokens a graph with a fixed shape reads; 0 where its shape is free.
    """

    what = "an encoder"
    reads = "a text"

    def __init__(self, file: str | Path, threads: int | None = None, device: str = "") -> None:
        self.file, place = Path(file), onnx_device(device)
        self.threads = 1 if place.is_gpu else threads or processors()
        self.session = _open(self.file, place)
        self._types = self._input_types()
        self.longest = self._fixed_length()

    def run(self, output: str, ids: Sequence[int], attended: int, token_types: Sequence[int]) -> np.ndarray:
        """An output for a text of these ids, of which the first `attended` are attended to."""
        size = self.longest or len(ids)
        mask = [1] * attended + [0] * (len(ids) - attended)
        rows = dict(zip(INPUTS, (ids, mask, token_types), strict=True))
        feed = {name: np.zeros((1, size), kind) for name, kind in self._types.items()}
        for name, row in feed.items():
            row[0, : len(ids)] = rows[name]
        try:
            return np.asarray(self.session.run([output], feed)[0])
        except Exception as e:  # onnxruntime's exceptions have no common base class but this
            reason = " ".join(str(e).split())
            raise self.error(f"this network does not read {self.reads} of {len(ids)} tokens ({reason})") from None

    def _input_types(self) -> dict[str, Any]:
        inputs = {i.name: i for i in self.session.get_inputs()}
        foreign = [name for name in inputs if name not in INPUTS]
        if INPUTS[0] not in inputs or foreign:
            raise self.error(
                f"{self.what} reads {INPUTS[0]}, and perhaps {INPUTS[1]} and {INPUTS[2]}, and this network reads "
                f"{', '.join(inputs) or 'nothing'}"
            )
        several = self.reads.removeprefix("a ") + "s"
        for name, i in inputs.items():
            if i.type not in _TYPES or len(i.shape) != 2:
                raise self.error(f"{name} must be rows of whole numbers, and here it is {i.type} of shape {i.shape}")
            if isinstance(i.shape[0], int) and i.shape[0] != 1:
                raise self.error(f"this network reads {i.shape[0]} {several} at once; export it with a free batch size")
        return {name: _TYPES[i.type] for name, i in inputs.items()}

    def _fixed_length(self) -> int:
        sizes = {i.shape[1] for i in self.session.get_inputs() if isinstance(i.shape[1], int)}
        if len(sizes) > 1 or (sizes and INPUTS[1] not in self._types):
            several = self.reads.removeprefix("a ") + "s"
            raise self.error(f"this network reads {several} of one fixed length only; export it with a free length")
        return sizes.pop() if sizes else 0

    def error(self, message: str) -> InputError:
        return InputError(message, file=str(self.file))


def _open(file: Path, device: Device) -> Any:
    if device.is_gpu and in_8_bits(file):
        raise InputError(
            f"this network is in 8 bits, which onnxruntime computes on processors only; on {device} open one in floats "
            "(model.onnx), or its weights with torch",
            file=str(file),
        )
    onnxruntime = installed_onnxruntime()
    try:
        # All of onnxruntime's optimisations are on, as by default: an int8 network computes differently with others.
        session = onnxruntime.InferenceSession(file, session_options(), providers=providers(device))
    except Exception as e:  # onnxruntime's exceptions have no common base class but this
        reason = " ".join(str(e).split())
        raise InputError(f"onnxruntime cannot open this file ({reason})", file=str(file)) from None
    check_runs_on(session, device)
    return session


_OF_8_BITS = (b"MatMulInteger", b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"QLinearMatMul")
"""Operations of quantised networks, by their names in the file; a GPU has none of them."""


def in_8_bits(file: Path) -> bool:
    """Whether a network computes in 8 bits."""
    content = file.read_bytes()
    return any(name in content for name in _OF_8_BITS)


def onnx_files(folder: Path) -> list[Path]:
    """The ONNX files of a model, in its folder and in the folder onnx there."""
    return [*sorted(folder.glob("*.onnx")), *sorted(folder.glob("onnx/*.onnx"))]


def is_exported(folder: Path) -> bool:
    """Whether a folder has a third-party network in an ONNX file, and no weights from which it could be made."""
    return not has_weights(folder) and not (folder / WEIGHTS).is_file() and bool(onnx_files(folder))


def find_onnx(which: Path, precision: Precision | None = None) -> Path:
    """The ONNX file to use: the only one, or of several the one with the usual name for a precision.

    That is model_quantized.onnx for 8 bits and model.onnx for floats; without a precision the first one that exists.
    """
    if which.suffix == ".onnx" and not which.is_dir():
        if not which.is_file():
            raise InputError("this file does not exist", file=str(which))
        files = [which]
    else:
        files = onnx_files(which)
    if len(files) == 1 and precision is None:
        return files[0]
    wanted = [_FILES[precision]] if precision else list(_FILES.values())
    usual = [file for name in wanted for file in files if file.name == name]
    places = ", ".join(file.relative_to(which).as_posix() for file in files) if len(files) > 1 else files[0].name
    if len(files) == 1:
        raise InputError(
            f"{places} has its precision already, so {precision} cannot be chosen; leave the precision out",
            file=str(which),
        )
    if not usual or sum(file.name == usual[0].name for file in files) > 1:
        raise InputError(f"there are several ONNX files here, so give the path of one: {places}", file=str(which))
    return usual[0]


def choose_onnx(files: Sequence[Path], precision: Precision) -> Path:
    """The only file, or the one with the usual name for a precision; with that of the other where it is missing."""
    names = [_FILES[precision], *(name for name in _FILES.values() if name != _FILES[precision])]
    usual = [file for name in names for file in files if file.name == name]
    if len(files) > 1 and (not usual or sum(file.name == usual[0].name for file in files) > 1):
        places = ", ".join(file.name if file.parent.name != "onnx" else f"onnx/{file.name}" for file in files)
        raise InputError(
            f"there are several ONNX files here, so give the path of one: {places}", file=str(files[0].parent)
        )
    return usual[0] if usual else files[0]


def parts_of(file: Path) -> list[Path]:
    """The files that an ONNX file is made of: itself, and its arrays beside it."""
    return [part for part in sorted(file.parent.glob(f"{file.name}*")) if part.is_file()]


def tokenizer_of(file: Path) -> tuple[Path, Path]:
    """The folder of a model and its tokenizer, beside the ONNX file or, where that is in the folder onnx, above it."""
    folders = [file.parent, *([file.parent.parent] if file.parent.name == "onnx" else [])]
    for folder in folders:
        for name in (TOKENIZER, WORDS):
            if (folder / name).is_file():
                return folder, folder / name
    raise InputError(f"there is no tokenizer here (no {TOKENIZER})", file=str(folders[-1]))


def open_tokenizer(file: Path) -> Any:
    """A tokenizer of the library tokenizers that neither cuts nor pads, from its file or a list of word pieces."""
    content = bert_tokenizer(file) if file.name == WORDS else file.read_bytes()
    try:
        tokenizer = tokenizers_library().Tokenizer.from_buffer(content)
    except Exception as e:  # the library raises plain Exception
        raise InputError(f"this is not a tokenizer.json ({e})", file=str(file)) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_length(folder: Path, tokenizer: Path) -> int:
    """How many tokens are read: what the tokenizer's files say, and no more than the model has positions."""

    def known(name: str) -> dict[str, Any]:
        return read_json(folder / name) if (folder / name).is_file() else {}

    truncation = (known(TOKENIZER).get("truncation") or {}) if tokenizer.name == TOKENIZER else {}
    lengths = [known("tokenizer_config.json").get("model_max_length"), truncation.get("max_length")]
    limits = [int(n) for n in lengths if isinstance(n, int | float) and 0 < n < 1 << 30]
    length = limits[0] if limits else MAX_LENGTH
    return min(length, positions(known("config.json")) or length)


def valid_texts(texts: Sequence[str]) -> list[str]:
    """The texts with lone surrogates replaced."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]


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
    named = {name: _dequantised(name, arrays) for name in map(_plain, arrays) if "." in name}
    for node in graph.node:
        matrix = next((name for name in node.input if name in arrays and arrays[name].ndim == 2), None)
        if node.op_type in _PRODUCTS and matrix is not None:
            bias = _bias(node.output[0], readers, arrays)
            if bias.endswith(".bias"):
                named[bias.removesuffix("bias") + "weight"] = _dequantised(_plain(matrix), arrays).T
    floats = {name: np.ascontiguousarray(array, np.float32) for name, array in named.items() if array.dtype.kind == "f"}
    return floats, [output.name for output in graph.output]


def _plain(name: str) -> str:
    return next((name.removesuffix(end) for end in _QUANTISED if name.endswith(end)), name)


def _dequantised(name: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
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
