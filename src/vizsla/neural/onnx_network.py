"""Inference without torch: onnxruntime runs a network that `write_network` wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vizsla.engine import processors
from vizsla.errors import InputError, VizslaError
from vizsla.neural.device import CPU_PROVIDER, Device, providers
from vizsla.neural.heads import expect_head
from vizsla.neural.weights import NETWORK, WEIGHTS, read_arrays, shares

P = TypeVar("P")
R = TypeVar("R")


_CPU = Device("cpu")
_GPU_TOKENS = 16_384  # encoded together, with padding


class OnnxNetwork:
    """A network in a folder. Texts are encoded in parallel, each on one thread, so that no thread waits for another.

    `threads`: how many texts at once; by default as many as there are processors. It changes no result.
    `device`: a GPU encodes texts of similar length in padded batches instead, on one thread.
    `head`: the name of the network's head in `HEADS`, which decides what the network gives.
    """

    def __init__(self, folder: str | Path, threads: int | None = None, device: Device = _CPU) -> None:
        self.threads = 1 if device.is_gpu else threads or processors()
        self._least_budget = _GPU_TOKENS if device.is_gpu else 0
        self._session = _open(Path(folder), device)
        about = self._session.get_modelmeta().custom_metadata_map
        try:
            self.head, self.longest, self.words = about["head"], int(about["longest"]), int(about["words"])
        except (KeyError, ValueError):
            raise InputError("this network was not written by Vizsla", file=str(Path(folder) / NETWORK)) from None

    def run(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[batch, length] weights, or [batch, vocabulary] vectors, of texts padded on the right. None may be empty."""
        return self.outputs(ids, lengths)[0]

    def outputs(self, ids: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """All outputs of the network for texts padded on the right."""
        ids, lengths = np.asarray(ids, np.int64), np.asarray(lengths, np.int64)
        if ids.shape[1] > self.longest:
            raise InputError(f"a text has {ids.shape[1]} tokens, and this network reads at most {self.longest}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.words):
            raise InputError(f"a token id is outside of this network's vocabulary of {self.words}")
        outputs: list[np.ndarray] = self._session.run(None, {"ids": ids, "lengths": lengths})
        return outputs

    def weights(self, ids: np.ndarray, offsets: np.ndarray, budget: int = 0) -> np.ndarray:
        """The weight of each token of concatenated texts, aligned with the ids.

        `offsets`: [texts + 1] where each text begins.
        `budget`: encode texts of similar length in padded batches of up to this many tokens. Passages are fastest
        alone. Texts of ten tokens are twice as fast with a budget of 256, but in 8 bits their weights then depend
        slightly on the other texts of the batch.
        """
        expect_head(self.head, "weights")
        weights = np.zeros(len(ids), np.float32)
        for texts, rows in self._batches(ids, offsets, budget):
            for text, row in zip(texts, rows, strict=True):
                start, end = offsets[text : text + 2]
                weights[start:end] = row[: end - start]
        return weights

    def vectors(
        self, ids: np.ndarray, offsets: np.ndarray, budget: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The vectors of concatenated texts: words, their weights, and where each text's begin."""
        expect_head(self.head, "vectors")
        words, weights = ([np.zeros(0, kind)] * (len(offsets) - 1) for kind in (np.int64, np.float32))
        for texts, rows in self._batches(ids, offsets, budget):
            for text, row in zip(texts, rows, strict=True):
                words[text] = np.flatnonzero(row)
                weights[text] = row[words[text]]
        starts = np.cumsum([0, *map(len, words)], dtype=np.int64)
        return (
            np.concatenate([np.zeros(0, np.int64), *words]),
            np.concatenate([np.zeros(0, np.float32), *weights]),
            starts,
        )

    def embeddings(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """[texts, hidden] the dense vectors of concatenated texts."""
        expect_head(self.head, "embeddings")
        return self._rows(ids, offsets)

    def token_vectors(self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None) -> np.ndarray:
        """[tokens, width] the vector of each token of concatenated texts, aligned with the ids.

        `attended`: [texts] how many tokens of each text, from the first, are attended to; by default all.
        """
        expect_head(self.head, "token_vectors")
        lengths = np.diff(offsets) if attended is None else attended

        def encode(text: int) -> np.ndarray:
            rows: np.ndarray = self.run(ids[None, offsets[text] : offsets[text + 1]], lengths[text : text + 1])[0]
            return rows

        return np.concatenate(list(side_by_side(encode, range(len(offsets) - 1), self.threads)))

    def coil_vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[tokens, width] the vectors of the tokens of concatenated texts, and [texts, width] those of the texts."""
        expect_head(self.head, "coil_vectors")

        def encode(text: int) -> list[np.ndarray]:
            row = ids[None, offsets[text] : offsets[text + 1]]
            outputs = self.outputs(row, np.array([row.size]))
            return [outputs[0][0], outputs[1][0] if len(outputs) > 1 else np.zeros(0, np.float32)]

        tokens, texts = zip(*side_by_side(encode, range(len(offsets) - 1), self.threads), strict=True)
        return np.concatenate(tokens), np.stack(texts)

    def scores(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """[texts] the scores of concatenated texts, each of them a pair."""
        expect_head(self.head, "scores")
        return self._rows(ids, offsets).reshape(-1)

    def augmentations(self, ids: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each text the weights of its tokens and how much is added of each term."""
        expect_head(self.head, "augmentations")

        def encode(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            start, end = offsets[texts[0] : texts[0] + 2]
            weights, added = self.outputs(ids[None, start:end], np.array([end - start]))
            return weights[0], added[0]

        return list(side_by_side(encode, [np.array([i]) for i in range(len(offsets) - 1)], self.threads))

    def _rows(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """[texts, width] what the network gives for each text by itself; none may be empty."""
        parts = list(self._batches(ids, offsets, 0))
        sorted_rows = np.concatenate([rows for _, rows in parts]) if parts else np.zeros((0, 0), np.float32)
        order = np.concatenate([*(texts for texts, _ in parts), np.zeros(0, np.int64)])
        in_order = np.empty_like(sorted_rows)
        in_order[order] = sorted_rows
        return in_order

    def _batches(self, ids: np.ndarray, offsets: np.ndarray, budget: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of texts and what the network gives for them, batch by batch."""
        lengths = np.diff(offsets)

        def encode(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            sizes = lengths[texts]
            padded = np.zeros((len(texts), sizes.max()), np.int64)
            for row, text in zip(padded, texts, strict=True):
                row[: lengths[text]] = ids[offsets[text] : offsets[text + 1]]
            return texts, self.run(padded, sizes)

        yield from side_by_side(encode, batches(lengths, max(budget, self._least_budget)), self.threads)


def batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Batches of texts of similar length, longest first, each at most `budget` tokens with padding; empty ones dropped.

    >>> [b.tolist() for b in batches(np.array([2, 9, 0, 3, 2]), 6)]
    [[1], [3, 0], [4]]
    """
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    groups, start = [], 0
    while start < len(order):
        size = max(1, budget // int(lengths[order[start]]))
        groups.append(order[start : start + size])
        start += size
    return groups


def side_by_side(work: Callable[[P], R], parts: Sequence[P], threads: int) -> Iterator[R]:
    """Map in parallel, with results in order; only a few are computed ahead, so that they do not pile up."""
    if threads == 1 or len(parts) <= 1:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead = [pool.submit(work, part) for part in parts[: 4 * threads]]
        for i in range(len(parts)):
            if i + len(ahead) < len(parts):
                ahead.append(pool.submit(work, parts[i + len(ahead)]))
            yield ahead.pop(0).result()


def _open(folder: Path, device: Device) -> Any:
    arrays = read_arrays(folder) if shares(folder) else {}
    return open_graph(folder, NETWORK, {name: np.ascontiguousarray(array) for name, array in arrays.items()}, device)


def open_graph(folder: Path, file: str, arrays: Mapping[str, np.ndarray] | None = None, device: Device = _CPU) -> Any:
    """A session of a graph, on one thread. `arrays`: those that are not in the weight file beside it."""
    onnxruntime = installed_onnxruntime()
    for name in (file, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(f"there is no network here (no {name})", file=str(folder))
    options = session_options()
    # Transposes of constants are precomputed; fusions are off, as some are slower than their parts.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if arrays:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
        options.add_external_initializers(list(arrays), values)
    try:
        session = onnxruntime.InferenceSession(folder / file, options, providers=providers(device))
    except Exception as e:  # onnxruntime's exceptions have no common base class but this
        reason = " ".join(str(e).split())
        raise InputError(f"this network is damaged or of another version ({reason})", file=str(folder)) from None
    check_runs_on(session, device)
    return session


def check_runs_on(session: Any, device: Device) -> None:
    """Raise an error if onnxruntime left a GPU for the processor, as it does where a library of CUDA is missing."""
    if device.is_gpu and session.get_providers()[0] == CPU_PROVIDER:
        raise VizslaError(
            f"onnxruntime could not start {device} and would use the processor; install the versions of CUDA and cuDNN "
            "that it was built for (pip install onnxruntime-gpu[cuda,cudnn]), or name cpu"
        )


def installed_onnxruntime() -> Any:
    """The package; where it is missing, an error says how to install it."""
    try:
        import onnxruntime
    except ImportError:
        raise VizslaError(
            "encoding with a learned network needs onnxruntime; install it with: pip install onnxruntime"
        ) from None
    return onnxruntime


def session_options() -> Any:
    """Options of a session that runs on one thread and logs nothing; texts are run in parallel instead."""
    options = installed_onnxruntime().SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    for name, value in (
        ("session.intra_op.allow_spinning", "0"),
        ("session.inter_op.allow_spinning", "0"),
        ("session.x64quantprecision", "1"),  # on machines whose 8-bit products overflow, use slower, exact ones
    ):
        options.add_session_config_entry(name, value)
    return options
