"""Third-party SPLADE checkpoints: a folder of sentence-transformers' SparseEncoder or of transformers, or its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import cache_folder, digest
from vizsla.errors import InputError
from vizsla.neural.checkpoints.checkpoint import (
    Checkpoint,
    bert_arrays,
    bert_description,
    cached_network,
    find_checkpoint,
    is_plain,
    random_texts,
)
from vizsla.neural.checkpoints.sentence import (
    ROUTERS,
    ROUTES,
    EncoderSettings,
    library_config,
    modules_of,
    prompts_of,
    read_json,
    routes_of,
    transformer_settings,
)
from vizsla.neural.checkpoints.transformer import MaskedLanguage, brings_code, need_torch
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.query_tables import ARRAY, TermWeights
from vizsla.neural.weights import read_checkpoint, weight_files
from vizsla.text import Analyzer, WordPiece

_NETWORKS = ("Transformer", "MLMTransformer")
_TABLE = "SparseStaticEmbedding"
_POOLING = "SpladePooling"


@dataclass(frozen=True)
class SparseSettings:
    """What the files say. A masked-language model without such files has these defaults, which are SPLADE's.

    `base`: where in the folder the network, or the table, lies. `pooling`: see `SPLADE_POOLINGS`. `length`: how many
    tokens are read, 0 for as many as possible. `is_table`: tokens have fixed weights, and there is no network.
    """

    base: str = ""
    pooling: tuple[str, ...] = ("max",)
    length: int = 0
    is_table: bool = False
    query_prompt: str = ""
    document_prompt: str = ""


def is_sparse_encoder(folder: Path) -> bool:
    """Whether a folder holds a SPLADE: of sentence-transformers, or a masked-language model of transformers."""
    if (folder / "modules.json").is_file():
        modules = modules_of(folder)
        if modules and modules[0][0] in ROUTERS:
            modules = [*(m for route in routes_of(folder, modules[0][1]).values() for m in route), *modules[1:]]
        return any(kind in (_POOLING, _TABLE) for kind, _ in modules)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    return any(str(name).endswith("ForMaskedLM") for name in config.get("architectures") or ())


def read_sparse_settings(folder: Path) -> list[SparseSettings]:
    """The settings of documents, and those of queries if they differ."""
    if not (folder / "modules.json").is_file():
        return [SparseSettings()]
    modules, prompts = modules_of(folder), prompts_of(library_config(folder))
    if modules and modules[0][0] in ROUTERS:
        routes = routes_of(folder, modules[0][1])
        ways = [_settings(folder, [*routes[side], *modules[1:]]) for side in ROUTES]
    else:
        ways = [_settings(folder, modules)]
    if ways[0].is_table:
        raise InputError("documents need a network, but here they have a table of weights", file=str(folder))
    return [
        replace(way, query_prompt=prompts["query_prompt"], document_prompt=prompts["document_prompt"]) for way in ways
    ]


def _settings(folder: Path, modules: Sequence[tuple[str, str]]) -> SparseSettings:
    kinds = [kind for kind, _ in modules]
    if kinds == [_TABLE]:
        return SparseSettings(modules[0][1], is_table=True)
    if len(kinds) != 2 or kinds[0] not in _NETWORKS or kinds[1] != _POOLING:
        raise InputError(
            f"a SPLADE is a masked-language model and a {_POOLING}, and this is {' and '.join(kinds) or 'nothing'}",
            file=str(folder),
        )
    about = transformer_settings(folder / modules[0][1])
    if about["lowercase"]:
        raise InputError("texts that are lower-cased before the tokenizer sees them cannot be read", file=str(folder))
    pooling = _pooling(read_json(folder / modules[1][1] / "config.json"), folder)
    return SparseSettings(modules[0][1], pooling, about["length"])


def _pooling(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    how, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if how not in ("max", "sum") or activation not in ("relu", "log1p_relu"):
        raise InputError(f"weights cannot be pooled by {how} after {activation}", file=str(folder))
    return (how, "log1p") if activation == "log1p_relu" else (how,)


_WORDS = "embeddings.word_embeddings.weight"
_ALL = 1 << 20  # tokens of a text
_HEADS = {
    "cls.predictions.transform.dense.": "dense.",
    "cls.predictions.transform.LayerNorm.": "norm.",
    "cls.predictions.decoder.": "decoder.",
    "cls.predictions.bias": "decoder.bias",
    "vocab_transform.": "dense.",  # from here on as DistilBERT names them
    "vocab_layer_norm.": "norm.",
    "vocab_projector.": "decoder.",
}
HEAD = ("dense.weight", "dense.bias", "norm.weight", "norm.bias", "decoder.bias")
"""The arrays of a masked-language head whose last layer is the input embeddings."""


@dataclass(frozen=True, eq=False)
class SparseCheckpoint:
    """What is known of a SPLADE from its files, before any weights are read."""

    checkpoint: Checkpoint
    settings: SparseSettings

    @classmethod
    def read(cls, which: str | Path) -> list[SparseCheckpoint]:
        """A SPLADE from its folder or by its name; if the folder has two networks, the second is that of queries."""
        folder = find_checkpoint(which)
        return [cls._of(folder, settings) for settings in read_sparse_settings(folder)]

    @classmethod
    def _of(cls, folder: Path, settings: SparseSettings) -> SparseCheckpoint:
        place = folder / settings.base
        config = read_json(place / "config.json")
        if settings.is_table and "path" in config:
            raise InputError("weights in a file of JSON are not read; save the model again", file=str(place))
        read = EncoderSettings(base=settings.base, length=settings.length)
        return cls(Checkpoint(folder, config, read), settings)

    @property
    def folder(self) -> Path:
        return self.checkpoint.folder

    @property
    def place(self) -> Path:
        """The folder of the network or the table itself."""
        return self.checkpoint.place

    @property
    def length(self) -> int:
        """How many tokens of a text are read; a table has no positions, so it reads all unless a file sets a limit."""
        if not self.settings.is_table:
            return self.checkpoint.length
        file = self.place / "tokenizer_config.json"
        limit = read_json(file).get("model_max_length") if file.is_file() else None
        return int(limit) if isinstance(limit, int | float) and 0 < limit < _ALL else _ALL

    @property
    def pieces(self) -> WordPiece | None:
        """BERT's word pieces, where the tokenizer is BERT's and its special tokens have the usual numbers."""
        return self.checkpoint.pieces

    @property
    def analyzer(self) -> Analyzer:
        return self.checkpoint.analyzer

    @property
    def plain(self) -> bool:
        """Whether it runs without torch: a table, or a plain BERT or DistilBERT with a weight for each word piece."""
        if self.pieces is None or self.settings.is_table:
            return self.pieces is not None
        config = self._bert_config()
        return config is not None and config.get("vocab_size") == len(self.pieces.vocabulary)

    def _bert_config(self) -> dict[str, Any] | None:
        """The description as of a BERT, of a plain BERT or DistilBERT; None for anything else."""
        config = self.checkpoint.config
        try:
            described = bert_description(config) if self.checkpoint.kind == "distilbert" else config
        except KeyError as e:
            raise InputError(
                f"config.json does not describe a DistilBERT (no {e.args[0]})", file=str(self.place)
            ) from None
        return described if is_plain(described) and not config.get("auto_map") else None

    def network(self, precision: Precision = "int8") -> Network:
        """The network written for onnxruntime and torch, once, into the user's cache."""
        pooling = "+".join(self.settings.pooling)
        key = ["splade", precision, pooling, self.length, digest(self.place, weight_files(self.place))]
        return cached_network(key, lambda folder: self._write(folder, precision, pooling))

    def _write(self, folder: Path, precision: Precision, pooling: str) -> None:
        config = self._bert_config()
        assert config is not None
        arrays, lacking = masked_language_arrays(self.place, config)
        if lacking:
            raise InputError(f"there is no masked-language head here ({lacking} is missing)", file=str(self.place))
        Network.write(
            folder, arrays, kind="splade", heads=int(config["num_attention_heads"]), max_weight=1.0,
            length=self.length, precision=precision, pooling=pooling,
            sample=random_texts(len(arrays[_WORDS]), self.length, [101], [102]),
        )  # fmt: skip

    def masked_language(self, precision: Precision = "int8") -> MaskedLanguage:
        """The model as it is, to be run by torch and transformers; in 32 bits even on a GPU for float32."""
        need_torch(self.checkpoint.kind, self.folder)
        brings_code(self.place)
        width = self.checkpoint.config.get("vocab_size")
        if not isinstance(width, int):
            raise InputError("this does not say how many terms there are (no vocab_size)", file=str(self.place))
        return MaskedLanguage.of(
            self.folder, pooling=self.settings.pooling, length=self.length, base=self.settings.base, width=width,
            exact=precision == "float32",
        )  # fmt: skip

    def term_weights(self) -> TermWeights:
        """The table of weights, written into the user's cache."""
        arrays = read_checkpoint(self.place)
        if ARRAY not in arrays:
            raise InputError(f"there is no table of weights here (no {ARRAY})", file=str(self.place))
        key = digest(self.place, weight_files(self.place))[:16]
        return TermWeights.write(cache_folder("term-weights") / key, arrays[ARRAY])

    def tokenizer_steps(self) -> str:
        """The steps that split texts into pieces, as text, to compare two tokenizers."""
        file = self.place / "tokenizer.json"
        content = read_json(file)
        return json.dumps([content.get(step) for step in ("normalizer", "pre_tokenizer", "model", "added_tokens")])


def masked_language_arrays(place: Path, config: dict[str, Any]) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a BERT with its masked-language head as a network of the kind `splade` has them.

    The head's last layer is left out if it is tied to the input embeddings. Also returns the name of the first array
    that the head lacks, empty if it is complete.
    """
    named = {}
    for name, array in bert_arrays(place, config, tuple(_HEADS)).items():
        theirs = next((part for part in _HEADS if name.startswith(part)), "")
        named[_HEADS[theirs] + name.removeprefix(theirs) if theirs else name] = array
    if "decoder.weight" in named and np.array_equal(named["decoder.weight"], named[_WORDS]):
        del named["decoder.weight"]
    return named, next((name for name in HEAD if name not in named), "")
