"""A cross-encoder that others exported to ONNX: its folder with its tokenizer, run by onnxruntime without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError
from vizsla.neural.checkpoints.checkpoint import MAX_LENGTH, bert_tokenizer, positions
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.device import Device, device_of_opening, onnx_device, providers
from vizsla.neural.once import once
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.session import check_runs_on, installed_onnxruntime, processors, session_options, side_by_side
from vizsla.text.tokenizers import tokenizers_library

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The inputs a cross-encoder may have, named as in transformers; the first is required."""
SCORES = "logits"
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Pair = tuple[Sequence[int], Sequence[int]]
"""The ids and the token types of a query and a document as one text."""


class OnnxPairSession:
    """Scores pairs one by one, several in parallel, each on one thread.

    Quantised networks often derive their scales from the whole batch, so a pair's score would depend on the other
    pairs in it. Scoring each pair by itself avoids that.

    `threads`: how many pairs at once; by default as many as there are processors. It changes no result.
    `longest`: how many tokens of a pair a graph with a fixed shape reads; 0 where its shape is free.
    """

    def __init__(self, file: str | Path, threads: int | None = None, device: str = "") -> None:
        self.file, place = Path(file), onnx_device(device)
        self.threads = 1 if place.is_gpu else threads or processors()
        self._session = _open(self.file, place)
        self._types = self._input_types()
        self.longest = self._fixed_length()
        self._output = self._output_name()

    def scores(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[pairs] the scores; of two labels, the second's minus the first's."""
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]))  # longest first: threads finish together
        scores = np.zeros(len(pairs), np.float32)
        results = side_by_side(self._score, [pairs[i] for i in order], self.threads)
        for i, score in zip(order, results, strict=True):
            scores[i] = score
        return scores

    def _score(self, pair: Pair) -> float:
        ids, token_types = pair
        size = self.longest or len(ids)
        rows = dict(zip(INPUTS, (ids, [1] * len(ids), token_types), strict=True))
        feed = {name: np.zeros((1, size), kind) for name, kind in self._types.items()}
        for name, row in feed.items():
            row[0, : len(ids)] = rows[name]
        try:
            given = np.asarray(self._session.run([self._output], feed)[0])
        except Exception as e:  # onnxruntime's exceptions have no common base class but this
            reason = " ".join(str(e).split())
            raise self._error(f"this network does not read a pair of {len(ids)} tokens ({reason})") from None
        if given.shape not in ((1,), (1, 1), (1, 2)):
            raise self._not_a_score(given.shape[1:])
        values = given.reshape(-1).astype(np.float64)
        return float(values[-1] if len(values) == 1 else values[1] - values[0])

    def _input_types(self) -> dict[str, Any]:
        inputs = {i.name: i for i in self._session.get_inputs()}
        foreign = [name for name in inputs if name not in INPUTS]
        if INPUTS[0] not in inputs or foreign:
            raise self._error(
                f"a cross-encoder reads {INPUTS[0]}, and perhaps {INPUTS[1]} and {INPUTS[2]}, and this network reads "
                f"{', '.join(inputs) or 'nothing'}"
            )
        for name, i in inputs.items():
            if i.type not in _TYPES or len(i.shape) != 2:
                raise self._error(f"{name} must be rows of whole numbers, and here it is {i.type} of shape {i.shape}")
            if isinstance(i.shape[0], int) and i.shape[0] != 1:
                raise self._error(f"this network reads {i.shape[0]} pairs at once; export it with a free batch size")
        return {name: _TYPES[i.type] for name, i in inputs.items()}

    def _fixed_length(self) -> int:
        sizes = {i.shape[1] for i in self._session.get_inputs() if isinstance(i.shape[1], int)}
        if len(sizes) > 1 or (sizes and INPUTS[1] not in self._types):
            raise self._error("this network reads pairs of one fixed length only; export it with a free length")
        return sizes.pop() if sizes else 0

    def _output_name(self) -> str:
        outputs = {o.name: o for o in self._session.get_outputs()}
        if len(outputs) > 1 and SCORES not in outputs:
            raise self._error(
                f"a cross-encoder gives {SCORES}, and this network gives {', '.join(outputs)}: it is of another task"
            )
        name = SCORES if SCORES in outputs else next(iter(outputs))
        shape = outputs[name].shape
        if len(shape) > 2 or (len(shape) == 2 and isinstance(shape[1], int) and shape[1] not in (1, 2)):
            raise self._not_a_score(shape[1:])
        return name

    def _not_a_score(self, shape: Sequence[int | str]) -> InputError:
        numbers = " x ".join(map(str, shape))
        return self._error(
            f"a cross-encoder gives one score, or two labels, a pair, and this network gives {numbers} numbers: it is "
            "of another task"
        )

    def _error(self, message: str) -> InputError:
        return InputError(message, file=str(self.file))


def _open(file: Path, device: Device) -> Any:
    if device.is_gpu and any(name in file.read_bytes() for name in _ON_CPU_ONLY):
        raise InputError(
            f"this network is in 8 bits, which onnxruntime computes on processors only; on {device} open one in floats "
            "(model.onnx), or its weights with torch",
            file=str(file),
        )
    onnxruntime = installed_onnxruntime()
    try:
        # All of onnxruntime's optimisations are on, as by default: an int8 network scores differently with others.
        session = onnxruntime.InferenceSession(file, session_options(), providers=providers(device))
    except Exception as e:  # onnxruntime's exceptions have no common base class but this
        reason = " ".join(str(e).split())
        raise InputError(f"onnxruntime cannot open this file ({reason})", file=str(file)) from None
    check_runs_on(session, device)
    return session


_ON_CPU_ONLY = (b"MatMulInteger", b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"QLinearMatMul")
"""Operations of quantised networks, by their names in the file."""

_FILES: dict[Precision, str] = {"int8": "model_quantized.onnx", "float32": "model.onnx"}
_TOKENIZER, _WORDS = "tokenizer.json", "vocab.txt"


@dataclass(frozen=True)
class OnnxPairs:
    """Pairs of texts to scores by a network in an ONNX file, run by onnxruntime as it is.

    `length`: how many tokens of a pair it reads at most.
    """

    file: Path = field(compare=False)
    tokenizer_file: Path = field(compare=False)
    digest: str
    length: int
    device: str = field(default_factory=device_of_opening, compare=False, repr=False)

    @classmethod
    def open(cls, which: Path, precision: Precision | None = None) -> OnnxPairs:
        """The network in a folder or a file. A test pair is scored to check that it is a cross-encoder."""
        file = find_onnx(which, precision)
        folder, tokenizer = _tokenizer_of(file)
        data = [part for part in sorted(file.parent.glob(f"{file.name}*")) if part.is_file()]
        pairs = cls(file, tokenizer, digest(folder, [*data, tokenizer]), _length(folder, tokenizer))
        if fixed := pairs.running.longest:
            pairs = cls(file, tokenizer, pairs.digest, min(pairs.length, fixed))
        pairs.scores(["a"], ["b"], pairs.length, pairs.length)
        return pairs

    @property
    def folder(self) -> Path:
        """Where the tokenizer is: the folder of the model."""
        return self.tokenizer_file.parent

    def scores(self, queries: Sequence[str], texts: Sequence[str], query_length: int, length: int) -> np.ndarray:
        """The score of each query with the text at the same position.

        Queries are truncated to `query_length` tokens and texts so that the pair has `length`; both count special
        tokens, two for a query.
        """
        tokenizer = self.tokenizer
        special = tokenizer.num_special_tokens_to_add(True)
        distinct = dict.fromkeys(queries)
        cut_queries = self._encoded(list(distinct), max(min(query_length - 2, length - special), 0))
        by_query = dict(zip(distinct, cut_queries, strict=True))
        documents = self._encoded(texts)
        pairs = []
        for query, document in zip(queries, documents, strict=True):
            document.truncate(length - special - len(by_query[query]))
            both = tokenizer.post_process(by_query[query], document)
            pairs.append((both.ids, both.type_ids))
        return self.running.scores(pairs)

    def _encoded(self, texts: Sequence[str], length: int | None = None) -> list[Any]:
        valid = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]  # lone surrogates replaced
        encodings: list[Any] = self.tokenizer.encode_batch(valid, add_special_tokens=False)
        for encoding in encodings if length is not None else ():
            encoding.truncate(length)
        return encodings

    @once
    def running(self) -> OnnxPairSession:
        """The network, opened."""
        return OnnxPairSession(self.file, device=self.device)

    @once
    def tokenizer(self) -> Any:
        """The tokenizer, of the library tokenizers."""
        file = self.tokenizer_file
        content = bert_tokenizer(file) if file.name == _WORDS else file.read_bytes()
        try:
            tokenizer = tokenizers_library().Tokenizer.from_buffer(content)
        except Exception as e:  # the library raises plain Exception
            raise InputError(f"this is not a tokenizer.json ({e})", file=str(file)) from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if tokenizer.num_special_tokens_to_add(True) == 0:
            raise InputError("this tokenizer puts nothing between a query and a document", file=str(file))
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("running", "tokenizer")}


def onnx_files(folder: Path) -> list[Path]:
    """The ONNX files of a model, in its folder and in the folder onnx there."""
    return [*sorted(folder.glob("*.onnx")), *sorted(folder.glob("onnx/*.onnx"))]


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


def _tokenizer_of(file: Path) -> tuple[Path, Path]:
    """The folder of a model and its tokenizer, beside the ONNX file or, where that is in the folder onnx, above it."""
    folders = [file.parent, *([file.parent.parent] if file.parent.name == "onnx" else [])]
    for folder in folders:
        for name in (_TOKENIZER, _WORDS):
            if (folder / name).is_file():
                return folder, folder / name
    raise InputError(f"there is no tokenizer here (no {_TOKENIZER})", file=str(folders[-1]))


def _length(folder: Path, tokenizer: Path) -> int:
    """How many tokens of a pair are read: what the tokenizer's files say, and no more than the model has positions."""

    def known(name: str) -> dict[str, Any]:
        return read_json(folder / name) if (folder / name).is_file() else {}

    truncation = (known(_TOKENIZER).get("truncation") or {}) if tokenizer.name == _TOKENIZER else {}
    lengths = [known("tokenizer_config.json").get("model_max_length"), truncation.get("max_length")]
    limits = [int(n) for n in lengths if isinstance(n, int | float) and 0 < n < 1 << 30]
    length = limits[0] if limits else MAX_LENGTH
    return min(length, positions(known("config.json")) or length)
