"""A network of ours in a folder: written for onnxruntime, identified by its digest, opened when it is first used.

The folder has `network.onnx`, the operations, `weights.safetensors`, the arrays, and `network.json`, which describes
it. The graph records where in the second file each array begins, so onnxruntime can map it and torch can read it, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.device import device_of_opening, place_of
from vizsla.neural.heads import HEADS, Output, coil
from vizsla.neural.once import once
from vizsla.neural.onnx_graph import EncoderGraph, Precision, Statistics, need_onnx, save_graph
from vizsla.neural.onnx_network import session_options
from vizsla.neural.weights import NETWORK, WEIGHTS, copy_weights, in_8_bits, read_weights, write_arrays
from vizsla.plain_data import DescriptionError, fields_from_data, parse_settings

ABOUT = "network.json"
_PEAKS, _MOMENTS = "peaks.", "moments."  # prefixes of outputs that only measure a sample of texts


def reads_of(folder: Path) -> str:
    """What an encoder saved in a folder reads, by its description: word pieces (a `Network`), texts, or neither."""
    try:
        return str(parse_settings((folder / ABOUT).read_text("utf-8")).get("reads", ""))
    except (OSError, ValueError, AttributeError):
        return ""  # whoever opens it raises a better error


class Running(Protocol):
    """An open network: token ids of concatenated texts to weights."""

    def weights(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray: ...
    def vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
    def augmentations(self, ids: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]: ...
    def embeddings(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray: ...
    def scores(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray: ...
    def token_vectors(self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None) -> np.ndarray: ...
    def coil_vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Network:
    """A network that reads word pieces; it is opened when it is first used.

    `kind`: the name of its head in `vizsla.neural.heads.HEADS`. `heads`: attention heads of the encoder. `length`:
    how many tokens it reads, between the special tokens `start` and `end`. `max_weight`: the weight that becomes 255
    when documents are stored in 8 bits. `pooling`: how a dense vector is made from the states of tokens, or
    SPLADE's from their logits.
    """

    folder: Path = field(compare=False)
    digest: str
    kind: str = "unicoil"
    heads: int = 12
    length: int = 512
    max_weight: float = 5.0
    start: int = 101
    end: int = 102
    pooling: str = ""
    width: int = 0
    """How many numbers a dense vector, or that of a token, has."""
    cls_width: int = 0
    """The dimensions of the text vector that a network returns in addition to token vectors."""
    device: str = field(default_factory=device_of_opening, compare=False, repr=False)
    """Where it runs; empty for the device of the process. It is not saved."""

    @classmethod
    def open(cls, folder: str | Path) -> Network:
        """The network in a folder; nothing large is read yet."""
        path = Path(folder)
        try:
            about = parse_settings((path / ABOUT).read_text())
            return cls(path, **fields_from_data(cls, about, ("folder", "device")))
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"there is no network here (no {ABOUT})", file=str(folder)) from None
        except (ValueError, DescriptionError) as e:
            raise InputError(f"this does not describe a network ({e})", file=str(path / ABOUT)) from None

    @classmethod
    def write(
        cls,
        folder: str | Path,
        weights: Mapping[str, np.ndarray],
        *,
        kind: str,
        heads: int,
        max_weight: float,
        length: int = 512,
        precision: Precision = "int8",
        sample: Iterable[Sequence[int]] = (),
        pooling: str = "",
    ) -> Network:
        """Write a network that was trained, for onnxruntime and for torch; see `write_network`."""
        path = Path(folder)
        write_network(path, weights, kind, attention_heads=heads, precision=precision, sample=sample, pooling=pooling)
        sha256 = hashlib.sha256()
        for name in (NETWORK, WEIGHTS):
            sha256.update((path / name).read_bytes())
        width = 0
        if kind == "dense":
            width = weights["embeddings.word_embeddings.weight"].shape[1] * len(pooling.split("+"))
        if kind == "colbert":
            width = len(weights["linear.weight"])
        if kind == "coil":
            width = len(weights[f"{coil.TOKENS}.bias"])
        widths: dict[str, Any] = {"width": width, "cls_width": len(weights.get(f"{coil.CLS}.bias", ()))}
        network = cls(path, sha256.hexdigest(), kind, heads, length, max_weight, pooling=pooling, **widths)
        about = {name: value for name, value in asdict(network).items() if name not in ("folder", "device")}
        about = {name: value for name, value in about.items() if value or name not in ("pooling", *widths)}
        (path / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
        return network

    def framed(self, ids: np.ndarray, starts: np.ndarray, length: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Concatenated texts, truncated to a length and each put between special tokens; 0 for the greatest length.

        `starts`: [texts + 1] where each text begins. Returns the new ids and starts.
        """
        sizes = np.minimum(np.diff(starts), (length or self.length) - 2)
        offsets = np.concatenate([[0], np.cumsum(sizes + 2)])
        framed = np.empty(offsets[-1], np.int64)
        framed[offsets[:-1]], framed[offsets[1:] - 1] = self.start, self.end
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        framed[np.repeat(offsets[:-1] + 1, sizes) + inside] = ids[np.repeat(starts[:-1], sizes) + inside]
        return framed, offsets

    def save(self, folder: Path) -> str:
        """Copy the network into a folder; returns the name it has there."""
        name = self.digest[:12]
        if (folder / name).resolve() != self.folder.resolve():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for file in (NETWORK, ABOUT):
                shutil.copyfile(self.folder / file, folder / name / file)
            copy_weights(self.folder, folder / name)
            for file in (NETWORK, WEIGHTS, ABOUT):
                with (folder / name / file).open("rb") as copied:
                    os.fsync(copied.fileno())
        return name

    @once
    def running(self) -> Running:
        """The open network: by torch if there is a GPU, otherwise by onnxruntime; VIZSLA_RUNTIME overrides this.

        A GPU computes with floats: there the weights of a network in 8 bits are made floats again.
        """
        place = place_of(self.device)
        if place.runtime == "torch":
            from vizsla.neural.torch_network import TorchNetwork

            return TorchNetwork(self.folder, self.kind, self.heads, self.pooling, device=str(place.device))
        from vizsla.neural.onnx_network import OnnxNetwork

        if not place.device.is_gpu or not in_8_bits(self.folder):
            return OnnxNetwork(self.folder, device=place.device)
        with tempfile.TemporaryDirectory() as folder:
            heads, pooling = self.heads, self.pooling
            weights = read_weights(self.folder)
            write_network(folder, weights, self.kind, attention_heads=heads, precision="float32", pooling=pooling)
            return OnnxNetwork(folder, device=place.device)

    @property
    def runs_fast(self) -> bool:
        """Whether it runs by torch, and so takes many texts at once."""
        place = place_of(self.device)
        return place.runtime == "torch" or place.device.is_gpu

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "running"}


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
