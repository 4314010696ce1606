"""Third-party ColBERT checkpoints: folders of stanford-futuredata's ColBERT and of PyLate."""

from __future__ import annotations

import json
import string
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError, VizslaWarning
from vizsla.neural.checkpoints.checkpoint import (
    bert_arrays,
    bert_config,
    cached_network,
    find_checkpoint,
    random_texts,
)
from vizsla.neural.checkpoints.onnx_encoder import OnnxTokens
from vizsla.neural.checkpoints.onnx_file import choose_onnx, onnx_files, tokenizer_of
from vizsla.neural.checkpoints.sentence import modules_of, read_json
from vizsla.neural.checkpoints.tokenizers import MAX_LENGTH, bert_pieces
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import has_weights, read_checkpoint, weight_files
from vizsla.text import Analyzer, WordPiece

PROJECTION = "linear.weight"
_PYLATE = "config_sentence_transformers.json"
_STANFORD = "artifact.metadata"
_NO_ACTIVATION = ("Identity", "")


@dataclass(frozen=True)
class ColbertSettings:
    """How a ColBERT reads texts.

    The markers follow [CLS]. `length` and `query_length`: how many tokens are read, special tokens included.
    `expand_queries`: queries are padded to their length with [MASK]. `attend_to_mask`: other tokens attend to these.
    `skipped`: tokens whose vectors are left out of documents.
    """

    query_marker: str = "[unused0]"
    document_marker: str = "[unused1]"
    query_length: int = 32
    length: int = 300
    expand_queries: bool = True
    attend_to_mask: bool = False
    skipped: tuple[str, ...] = tuple(string.punctuation)


@dataclass(frozen=True, eq=False)
class ColbertCheckpoint:
    """What the files of a ColBERT say, before its weights are read. `projection`: the folder of its linear layer.

    `exports`: the ONNX files of one without weights; their network projects itself.
    """

    place: Path
    projection: Path
    config: dict[str, Any]
    settings: ColbertSettings
    pieces: WordPiece
    exports: tuple[Path, ...] = ()

    @classmethod
    def read(cls, which: str | Path) -> ColbertCheckpoint:
        """A ColBERT from its folder, its ONNX file, or by its name on the model hub."""
        named = Path(which)
        if named.suffix == ".onnx" and named.is_file():
            return cls._exported(tokenizer_of(named)[0], (named,))
        folder = find_checkpoint(which)
        if not any(map(has_weights, (folder, *folder.glob("*/")))) and (exports := onnx_files(folder)):
            return cls._exported(folder, tuple(exports))
        is_pylate = (folder / "modules.json").is_file()
        place, projection, settings = _pylate(folder) if is_pylate else _stanford(folder)
        pieces = cls._pieces(place, settings, _PYLATE if is_pylate else _STANFORD)
        return cls(place, projection, bert_config(place), settings, pieces)

    @classmethod
    def _exported(cls, folder: Path, exports: tuple[Path, ...]) -> ColbertCheckpoint:
        is_pylate = (folder / _PYLATE).is_file()
        settings = _pylate_settings(folder) if is_pylate else _stanford(folder)[2]
        if not is_pylate and not (folder / _STANFORD).is_file():
            warnings.warn(
                f"{folder}: no file says how this ColBERT reads texts ({_STANFORD} or {_PYLATE}), so it is read like "
                f"ColBERT's authors': markers {settings.query_marker} and {settings.document_marker}, "
                f"{settings.query_length} and {settings.length} tokens",
                VizslaWarning,
                stacklevel=5,
            )
        pieces = cls._pieces(folder, settings, _PYLATE if is_pylate else _STANFORD)
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        return cls(folder, folder, config, settings, pieces, exports)

    @staticmethod
    def _pieces(place: Path, settings: ColbertSettings, named_in: str) -> WordPiece:
        pieces = bert_pieces(place)
        if pieces is None or "[MASK]" not in pieces.numbers:
            raise InputError("only a ColBERT with BERT's word pieces can be read", file=str(place))
        for marker in (settings.query_marker, settings.document_marker):
            if marker not in pieces.numbers:
                hint = f"its markers are named in {named_in}"
                raise InputError(f"the tokenizer of this ColBERT has no marker {marker!r}; {hint}", file=str(place))
        return pieces

    @property
    def longest(self) -> int:
        """How many tokens the encoder has position embeddings for."""
        return int(self.config.get("max_position_embeddings") or MAX_LENGTH)

    @property
    def analyzer(self) -> Analyzer:
        return Analyzer(self.pieces)

    def network(self, precision: Precision = "float32") -> Network | OnnxTokens:
        """The network written for onnxruntime and torch, once, into the user's cache; an ONNX file is run as it is."""
        if self.exports:
            start, end = (self.pieces.numbers[name] for name in ("[CLS]", "[SEP]"))
            file = choose_onnx(self.exports, precision)
            return OnnxTokens.export(self.place, file, pooling=(), length=self.longest, start=start, end=end)
        heads = int(self.config["num_attention_heads"])
        files = [digest(folder, weight_files(folder)) for folder in dict.fromkeys((self.place, self.projection))]
        return cached_network(
            ["colbert", precision, self.longest, heads, *files], lambda folder: self._write(folder, precision, heads)
        )

    def _write(self, folder: Path, precision: Precision, heads: int) -> None:
        weights = bert_arrays(self.place, self.config) | {PROJECTION: self._projection()}
        marker = self.pieces.numbers[self.settings.document_marker]
        words = len(weights["embeddings.word_embeddings.weight"])
        Network.write(
            folder, weights, kind="colbert", heads=heads, max_weight=1.0, length=self.longest, precision=precision,
            sample=random_texts(words, self.longest, [101, marker], [102]),
        )  # fmt: skip

    def _projection(self) -> np.ndarray:
        """[dimensions, hidden] the linear layer."""
        arrays = read_checkpoint(self.projection)
        linear, hidden = arrays.get(PROJECTION), int(self.config["hidden_size"])
        if linear is None:
            raise InputError(
                f"this encoder has no projection to token vectors (no {PROJECTION}); vizsla train colbert puts one on "
                "it, and dense(checkpoint=FOLDER) reads it as a dense model",
                file=str(self.place),
            )
        if linear.ndim != 2 or linear.shape[1] != hidden or not np.isfinite(linear).all():
            raise InputError(f"the projection must be a matrix with {hidden} columns", file=str(self.projection))
        if np.any(arrays.get("linear.bias", 0)):
            raise InputError("only a projection without bias can be read", file=str(self.projection))
        return linear


def write_pylate_settings(settings: ColbertSettings, folder: Path) -> None:
    """Write how texts are read beside the modules of a ColBERT, where PyLate looks for it."""
    about = {
        "model_type": "ColBERT",
        "prompts": {},
        "similarity_fn_name": "MaxSim",
        "query_prefix": settings.query_marker,
        "document_prefix": settings.document_marker,
        "query_length": settings.query_length,
        "document_length": settings.length,
        "do_query_expansion": settings.expand_queries,
        "attend_to_expansion_tokens": settings.attend_to_mask,
        "skiplist_words": list(settings.skipped),
    }
    (folder / _PYLATE).write_text(json.dumps(about, indent=2) + "\n")


def _stanford(folder: Path) -> tuple[Path, Path, ColbertSettings]:
    """The folders of the encoder and its projection, and the settings in artifact.metadata, or the defaults."""
    usual = ColbertSettings()
    if not (folder / _STANFORD).is_file():
        return folder, folder, usual
    values = read_json(folder / _STANFORD)
    settings = ColbertSettings(
        query_marker=_read(values, "query_token_id", usual.query_marker, folder / _STANFORD),
        document_marker=_read(values, "doc_token_id", usual.document_marker, folder / _STANFORD),
        query_length=_read(values, "query_maxlen", usual.query_length, folder / _STANFORD),
        length=_read(values, "doc_maxlen", usual.length, folder / _STANFORD),
        attend_to_mask=_read(values, "attend_to_mask_tokens", usual.attend_to_mask, folder / _STANFORD),
        skipped=usual.skipped if _read(values, "mask_punctuation", True, folder / _STANFORD) else (),
    )
    return folder, folder, settings


def _pylate(folder: Path) -> tuple[Path, Path, ColbertSettings]:
    """The folders of the encoder and its projection, and the settings beside them, by default PyLate's."""
    modules = modules_of(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:1] != ["Transformer"] or kinds[1:] != ["Dense"]:
        listed = ", ".join(kinds)
        raise InputError(
            f"a ColBERT is a Transformer and one Dense layer, and this is {listed}; "
            "dense(checkpoint=FOLDER) reads models with a pooling",
            file=str(folder),
        )
    (_, base), (_, dense) = modules
    layer = read_json(folder / dense / "config.json")
    activation = str(layer.get("activation_function") or "").rsplit(".", 1)[-1]
    if activation not in _NO_ACTIVATION or layer.get("use_residual"):
        raise InputError("only a projection without activation and residual can be read", file=str(folder / dense))
    return folder / base, folder / dense, _pylate_settings(folder)


def _pylate_settings(folder: Path) -> ColbertSettings:
    """The settings in PyLate's file, or its defaults."""
    file = folder / _PYLATE
    values = read_json(file) if file.is_file() else {}
    usual = ColbertSettings(query_marker="[Q] ", document_marker="[D] ", length=180)
    skipped = values.get("skiplist_words", list(usual.skipped))
    if not isinstance(skipped, list) or not all(isinstance(word, str) for word in skipped):
        raise InputError("skiplist_words must be a list of texts", file=str(file))
    return ColbertSettings(
        query_marker=_read(values, "query_prefix", usual.query_marker, file),
        document_marker=_read(values, "document_prefix", usual.document_marker, file),
        query_length=_read(values, "query_length", usual.query_length, file),
        length=_read(values, "document_length", usual.length, file),
        expand_queries=_read(values, "do_query_expansion", usual.expand_queries, file),
        attend_to_mask=_read(values, "attend_to_expansion_tokens", usual.attend_to_mask, file),
        skipped=tuple(skipped),
    )


def _read(values: dict[str, Any], name: str, usual: Any, file: Path) -> Any:
    """A setting, which must have the type of its default value; the default if it is missing."""
    value = values.get(name)
    if value is None:
        return usual
    if type(value) is not type(usual) or (type(value) is int and value < 4):
        raise InputError(f"{name} cannot be {json.dumps(value)}", file=str(file))
    return value
