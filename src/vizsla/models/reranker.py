"""Rerankers: a cross-encoder reads a query and a document together and gives the pair a score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError, VizslaError
from vizsla.models.learned_sparse import SHIPPED
from vizsla.neural.checkpoints.checkpoint import bert_arrays, bert_config, cached_network, find_checkpoint
from vizsla.neural.checkpoints.onnx_cross_encoder import OnnxPairs
from vizsla.neural.checkpoints.onnx_file import onnx_files
from vizsla.neural.checkpoints.packages import CROSS_ENCODER, package_of
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.device import opening_on, place_of
from vizsla.neural.heads.cross import HEAD, LEAST, RERANKER, Texts, joint_ids, joint_pairs, one_label
from vizsla.neural.network import ABOUT, Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import has_weights, weight_files
from vizsla.text import Analyzer

SHIPPED_RERANKER = "reranker-small"
"""The reranker that comes with the package, by its name."""
_SEGMENTS = "embeddings.token_type_embeddings.weight"
_TOKENIZER = "tokenizer.json"
_BATCH_SIZE = 512  # pairs that are scored together
_SAMPLE, _QUERY, _DOCUMENT, _COMMON = 32, 10, 80, (1996, 6000)  # pairs of common words to calibrate quantisation with


class PairNetwork(Protocol):
    """What scores pairs: a network and its tokenizer."""

    @property
    def folder(self) -> Path:
        """Where it comes from."""

    @property
    def digest(self) -> str:
        """A hash of its weights and tokenizer."""

    @property
    def length(self) -> int:
        """How many tokens of a pair it reads at most."""

    def scores(self, queries: Sequence[str], texts: Sequence[str], query_length: int, length: int) -> np.ndarray:
        """The score of each query with the text at the same position, truncated to these lengths."""


@dataclass(frozen=True)
class BertPairs:
    """A BERT as it was written for onnxruntime and torch, and its word pieces."""

    network: Network
    analyzer: Analyzer

    def __post_init__(self) -> None:
        if self.network.kind != "cross":
            raise VizslaError(f"{self.network.folder}: this is a network of the kind {self.network.kind}, no reranker")

    @property
    def folder(self) -> Path:
        return self.network.folder

    @property
    def digest(self) -> str:
        return self.network.digest

    @property
    def length(self) -> int:
        return self.network.length

    def scores(self, queries: Sequence[str], texts: Sequence[str], query_length: int, length: int) -> np.ndarray:
        numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
        query_numbers = np.array([numbers[query] for query in queries], np.int64)
        pairs = query_numbers, np.arange(len(texts))
        return self.numbered_scores(self._ids(list(numbers)), self._ids(texts), *pairs, query_length, length)

    def numbered_scores(
        self, queries: Texts, documents: Texts, query_numbers: np.ndarray, document_numbers: np.ndarray,
        query_length: int, length: int,
    ) -> np.ndarray:  # fmt: skip
        """The scores of pairs, given by the row numbers of their queries and documents in tokenized texts."""
        network = self.network
        lengths = query_length, length
        pairs = joint_pairs(queries, documents, query_numbers, document_numbers, *lengths, network.start, network.end)
        return network.running.scores(*pairs)

    def _ids(self, texts: Sequence[str]) -> Texts:
        rows = self.analyzer.tokenizer.ids(texts)  # type: ignore[attr-defined]
        return np.array([i for row in rows for i in row], np.int64), np.cumsum([0, *map(len, rows)])


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder that reads at most `query_length` tokens of a query and `length` tokens of a pair.

    Both include special tokens. An empty document is scored like any other. `Reranker.open(folder)` reads a
    cross-encoder saved by transformers, or an ONNX file with its tokenizer.

    >>> Reranker.open("/no/such/folder")
    Traceback (most recent call last):
    ...
    vizsla.errors.InputError: /no/such/folder: this folder does not exist
    """

    network: PairNetwork
    query_length: int = 64
    length: int = 512
    fields: tuple[str, ...] = ("title", "text")
    name: str = "reranker"

    def __post_init__(self) -> None:
        if not LEAST <= self.length <= self.network.length or self.query_length < 3:
            raise VizslaError(
                f"this reranker reads {LEAST} to {self.network.length} tokens of a pair, not {self.length}, and 3 or "
                f"more of a query, not {self.query_length}"
            )

    @classmethod
    def open(
        cls,
        which: str | Path = SHIPPED_RERANKER,
        precision: Precision | None = None,
        *,
        query_length: int = 0,
        length: int = 0,
        device: str | None = None,
    ) -> Reranker:
        """A reranker trained with Vizsla or a third-party one, by its folder, its ONNX file or its name.

        A BERT of transformers is converted to a `precision`: int8 unless torch runs it. An ONNX file is run
        unchanged; the precision selects model_quantized.onnx or model.onnx in a folder, by default the first. If a
        folder has weights as well, its ONNX files are ignored. A model with two labels scores by the second minus the
        first. `device`: where it runs, as in cpu or cuda:1; by default the device of the process.
        """
        with opening_on(device):
            return cls._open(which, precision, query_length, length)

    @classmethod
    def _open(cls, which: str | Path, precision: Precision | None, query_length: int, length: int) -> Reranker:
        if str(which).endswith(".onnx") and not Path(which).is_dir():
            network: PairNetwork = OnnxPairs.open(Path(which), precision)
            folder = network.folder
        else:
            folder = find_checkpoint(reranker_folder(which))
            network = _network(folder, precision)
        settings = read_json(folder / RERANKER) if (folder / RERANKER).is_file() else {}
        try:
            lengths = int(settings.get("query_length", 64)), min(int(settings.get("length", 512)), network.length)
        except (ValueError, TypeError) as e:
            raise InputError(f"{RERANKER} does not describe a reranker ({e})", file=str(folder)) from None
        name = str(settings.get("name") or (Path(which).name if package_of(which) else folder.name))
        return cls(network, query_length or lengths[0], length or lengths[1], name=name)

    def scores(self, query: str, texts: Sequence[str]) -> np.ndarray:
        """How well each text answers a query; higher is better, and there is no fixed scale."""
        return self.pair_scores([query] * len(texts), texts)

    def pair_scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """The score of each query with the text at the same position."""
        scores = [np.zeros(0, np.float32)]
        for first in range(0, len(texts), _BATCH_SIZE):
            part = slice(first, first + _BATCH_SIZE)
            scores.append(self.network.scores(queries[part], texts[part], self.query_length, self.length))
            if not np.isfinite(scores[-1]).all():
                raise InputError("the network gives values that are not finite", file=str(self.network.folder))
        return np.concatenate(scores)


def reranker_folder(which: str | Path) -> str | Path:
    """The folder of a reranker: that of the packaged one if it is named, else the given folder or name."""
    shipped = SHIPPED / SHIPPED_RERANKER
    return shipped if str(which) == SHIPPED_RERANKER and not Path(which).is_dir() and shipped.is_dir() else which


def default_reranker() -> str:
    """The default reranker: the one in the package, or else one that pip can install."""
    return SHIPPED_RERANKER if (SHIPPED / SHIPPED_RERANKER).is_dir() else CROSS_ENCODER


def export_reranker(which: str | Path, folder: str | Path, sample: Sequence[tuple[str, str]] = ()) -> None:
    """Write a BERT cross-encoder in 8 bits into a folder of its own, from which it runs without torch.

    `which`: the folder or name of one in floats. `sample`: some pairs of query and text to calibrate the quantisation
    with; thirty are enough. By default random words are used.
    """
    source, output = find_checkpoint(which), Path(folder)
    if (source / ABOUT).is_file() or not has_weights(source):
        raise InputError("only a BERT cross-encoder with its weights in floats can be exported", file=str(which))
    reranker = Reranker.open(source, "float32")
    assert isinstance(reranker.network, BertPairs)
    pieces: Any = reranker.network.analyzer.tokenizer
    lengths = reranker.query_length, reranker.length
    texts = (pieces.ids(pair) for pair in sample)
    rows = [joint_ids(query, text, *lengths) for query, text in texts]
    _write(output, source, bert_config(source), "int8", rows)
    (output / _TOKENIZER).write_bytes(pieces.content)
    about = {"name": reranker.name, "query_length": lengths[0], "length": lengths[1]}
    (output / RERANKER).write_text(json.dumps(about, indent=2) + "\n")


def _network(folder: Path, precision: Precision | None) -> PairNetwork:
    """The network in a folder: exported by Vizsla, a third-party ONNX file, or a BERT of transformers."""
    if (folder / "model.json").is_file():
        raise InputError("this is a model that searches, not a reranker", file=str(folder))
    if (folder / ABOUT).is_file():
        if precision == "float32":
            raise InputError("this reranker is in 8 bits, so float32 cannot be chosen", file=str(folder))
        return BertPairs(Network.open(folder), Analyzer.parse(f"wordpiece:{folder}"))
    exported = not has_weights(folder) and onnx_files(folder)
    return OnnxPairs.open(folder, precision) if exported else _bert_pairs(folder, precision)


def _bert_pairs(folder: Path, precision: Precision | None) -> BertPairs:
    config = bert_config(folder)
    try:
        positions, heads = int(config["max_position_embeddings"]), int(config["num_attention_heads"])
    except (KeyError, ValueError, TypeError) as e:
        raise InputError(f"config.json does not describe a reranker ({e})", file=str(folder)) from None
    place = place_of()
    chosen = precision or ("float32" if place.runtime == "torch" or place.device.is_gpu else "int8")
    key = ["cross", chosen, positions, heads, digest(folder, weight_files(folder))]
    network = cached_network(key, lambda target: _write(target, folder, config, chosen))
    return BertPairs(network, Analyzer.parse(f"wordpiece:{folder}"))


def _write(
    target: Path, folder: Path, config: dict[str, Any], precision: Precision, sample: Sequence[Sequence[int]] = ()
) -> None:
    weights = one_label(bert_arrays(folder, config, ("pooler.", "classifier.")))
    _check(weights, folder)
    positions = int(config["max_position_embeddings"])
    Network.write(
        target, weights, kind="cross", heads=int(config["num_attention_heads"]), max_weight=1.0, length=positions,
        precision=precision, sample=sample or _sample(positions),
    )  # fmt: skip


def _check(weights: dict[str, np.ndarray], folder: Path) -> None:
    missing = next((name for name in (*HEAD, _SEGMENTS) if name not in weights), None)
    if missing is not None:
        raise InputError(f"this is an encoder, not a reranker: it has no {missing}", file=str(folder))
    if len(weights["classifier.weight"]) != 1:
        labels = len(weights["classifier.weight"])
        raise InputError(f"a reranker gives one score, or two labels, and this gives {labels}", file=str(folder))
    if len(weights[_SEGMENTS]) < 2:
        raise InputError("this encoder has one token type, and pairs need two", file=str(folder))


def _sample(length: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    texts = [rng.integers(*_COMMON, _QUERY + _DOCUMENT).tolist() for _ in range(_SAMPLE)]
    return [joint_ids(text[:_QUERY], text[_QUERY:], _QUERY + 2, min(length, _QUERY + _DOCUMENT + 3)) for text in texts]
