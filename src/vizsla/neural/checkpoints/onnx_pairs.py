"""A cross-encoder that others exported to ONNX, in its folder with its tokenizer, as rerankers hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.checkpoints.cache import digest
from vizsla.neural.checkpoints.checkpoint import MAX_LENGTH, bert_tokenizer, positions
from vizsla.neural.checkpoints.once import once
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.graph import Precision
from vizsla.text.tokenizers import tokenizers_library

if TYPE_CHECKING:
    from vizsla.neural.pair_session import OnnxPairSession

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

    @classmethod
    def open(cls, which: Path, precision: Precision | None = None) -> OnnxPairs:
        """The network in a folder, or in a file of one; whether it is a cross-encoder is tried out on a pair."""
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
        """The score of each query with the text at the same place; the text is cut, and a query of more tokens.

        `query_length` and `length` count special tokens, two for a query.
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
        from vizsla.neural.pair_session import OnnxPairSession

        return OnnxPairSession(self.file)

    @once
    def tokenizer(self) -> Any:
        """The tokenizer, of the library tokenizers."""
        file = self.tokenizer_file
        content = bert_tokenizer(file) if file.name == _WORDS else file.read_bytes()
        try:
            tokenizer = tokenizers_library().Tokenizer.from_buffer(content)
        except Exception as e:  # the library raises plain Exception
            raise InputError(f"this is no tokenizer.json ({e})", file=str(file)) from None
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
    """The ONNX file that is meant: the only one, or of several the one with the usual name for a precision.

    In 8 bits that is model_quantized.onnx, in floats model.onnx; without a precision the first of them that is there.
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
    told = [known("tokenizer_config.json").get("model_max_length"), truncation.get("max_length")]
    limits = [int(n) for n in told if isinstance(n, int | float) and 0 < n < 1 << 30]
    length = limits[0] if limits else MAX_LENGTH
    return min(length, positions(known("config.json")) or length)
