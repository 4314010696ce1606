"""Third-party encoders: a folder of transformers or sentence-transformers, or a name on the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import cached_folder, digest
from vizsla.errors import InputError
from vizsla.lazy import cached_property
from vizsla.neural.checkpoints.onnx_encoder import SENTENCE, OnnxEncoder
from vizsla.neural.checkpoints.onnx_file import (
    choose_onnx,
    is_exported,
    onnx_arrays,
    onnx_files,
    parts_of,
    tokenizer_of,
)
from vizsla.neural.checkpoints.packages import HUB, package_of, packaged
from vizsla.neural.checkpoints.sentence import EncoderSettings, read_json, read_settings, says_pooling
from vizsla.neural.checkpoints.tokenizers import MAX_LENGTH, bert_pieces, positions, with_model_type
from vizsla.neural.checkpoints.transformer import Layer, Transformer, brings_code, need_torch
from vizsla.neural.checkpoints.weight_file import unpacked
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import prefix_of, read_checkpoint, weight_files
from vizsla.text import Analyzer, WordPiece

_CONFIG = {
    "vocab_size": "vocab_size", "max_position_embeddings": "max_position_embeddings", "hidden_size": "dim",
    "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}  # fmt: skip
_LAYERS = "transformer.layer."
_NAMES = {
    _LAYERS: "encoder.layer.",
    "attention.q_lin.": "attention.self.query.",
    "attention.k_lin.": "attention.self.key.",
    "attention.v_lin.": "attention.self.value.",
    "attention.out_lin.": "attention.output.dense.",
    "sa_layer_norm.": "attention.output.LayerNorm.",
    "ffn.lin1.": "intermediate.dense.",
    "ffn.lin2.": "output.dense.",
    "output_layer_norm.": "output.LayerNorm.",
}
_WORDS, _TOKEN_TYPES = "embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight"


def bert_description(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a BERT of the same shape, with two token types; what is missing is a KeyError.

    >>> tiny = {"vocab_size": 9, "max_position_embeddings": 8, "dim": 4, "n_layers": 1, "n_heads": 2, "hidden_dim": 6}
    >>> bert = bert_description({"model_type": "distilbert", **tiny})
    >>> bert["model_type"], bert["hidden_size"], bert["hidden_act"]
    ('bert', 4, 'gelu')
    """
    known = {"activation": "gelu", **config}
    return {"model_type": "bert", "type_vocab_size": 2, **{name: known[theirs] for name, theirs in _CONFIG.items()}}


def bert_names(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """DistilBERT's arrays under BERT's names, with token types of zeros, which change nothing; a BERT's as they are."""
    if not any(_LAYERS in name for name in arrays):
        return dict(arrays)
    named = {}
    for name, array in arrays.items():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        named[name] = array
    for name in [name for name in named if name.endswith(_WORDS)]:
        named[name.removesuffix(_WORDS) + _TOKEN_TYPES] = np.zeros((2, named[name].shape[1]), np.float32)
    return named


_SAMPLE, _SAMPLE_TOKENS, _COMMON = 32, 48, (1996, 6000)  # texts of common words to calibrate quantisation with
_PLAIN = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "is_decoder": False}
_WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")
_SMALL = ["*.json", "*.txt", "*.model", "*.py", "*network.onnx"]
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)  # of an encoder on the model hub, not the path of a folder


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What is known of an encoder from its files, before any weights are read."""

    folder: Path
    config: dict[str, Any]
    settings: EncoderSettings
    exports: tuple[Path, ...] = ()
    """The ONNX files of an encoder without weights of its own; the first that suits is used."""

    @classmethod
    def read(cls, which: str | Path) -> tuple[Checkpoint, Checkpoint | None]:
        """An encoder from its folder, its ONNX file or by its name, and the query encoder if the folder has two."""
        named = Path(which)
        if named.suffix == ".onnx" and named.is_file():
            return cls._of(tokenizer_of(named)[0], read_settings(tokenizer_of(named)[0])[0], named), None
        folder = find_checkpoint(which)
        documents, *others = (cls._of(folder, settings) for settings in read_settings(folder))
        return documents, others[0] if others else None

    @classmethod
    def _of(cls, folder: Path, settings: EncoderSettings, export: Path | None = None) -> Checkpoint:
        place = folder / settings.base
        exports = [export] if export is not None else onnx_files(place) if is_exported(place) else []
        description = place / "config.json"
        config = {} if exports and not description.is_file() else with_model_type(read_json(description))
        if exports and not (folder / "modules.json").is_file():  # vectors of sentences are compared by their cosine
            pooling = settings.pooling if says_pooling(folder) else ()
            settings = replace(settings, normalize=True, pooling=pooling)
        checkpoint = cls(folder, config, settings, tuple(exports))
        if checkpoint.kind != "dpr" or (folder / "modules.json").is_file():
            return checkpoint
        width = int(config.get("projection_dim") or 0)  # DPR's pooling follows from its model type
        layers = (Layer("linear", name="encode_proj", width=width),) if width else ()
        return checkpoint.changed(pooling=("cls",), layers=layers)

    def changed(self, **settings: Any) -> Checkpoint:
        """The encoder with some of its files' settings overridden."""
        return replace(self, settings=replace(self.settings, **settings))

    @property
    def place(self) -> Path:
        """The folder of the encoder itself, without the modules after it."""
        return self.folder / self.settings.base

    @property
    def kind(self) -> str:
        return str(self.config.get("model_type", "that is not named"))

    @cached_property
    def length(self) -> int:
        """How many tokens of a text are read."""
        tokens: dict[str, Any] = {}
        if (self.place / "tokenizer_config.json").is_file():
            tokens = read_json(self.place / "tokenizer_config.json")
        places = positions(self.config)
        limits = [n for n in (tokens.get("model_max_length"), places) if isinstance(n, int | float) and 0 < n < 1 << 30]
        limit = int(min(limits, default=MAX_LENGTH))
        return min(self.settings.length or limit, int(places or self.settings.length or limit))

    @cached_property
    def pieces(self) -> WordPiece | None:
        """BERT's word pieces, where the tokenizer is BERT's and its special tokens have the usual numbers."""
        return bert_pieces(self.place)

    @property
    def plain(self) -> bool:
        """Whether it is a BERT that runs without torch, in 8 bits by default."""
        s = self.settings
        alike = all(self.config.get(name, usual) == usual for name, usual in _PLAIN.items())
        bare = not (s.layers or s.lowercase or s.skip_prompt_tokens or self.config.get("auto_map"))
        pooled = self.pooling in (("mean",), ("cls",), ("cls", "mean"))
        plain = self.kind in ("bert", "dpr") and alike and bare and pooled and self.pieces is not None
        return plain and (not self.exports or self._exported is not None)

    @cached_property
    def _exported(self) -> dict[str, np.ndarray] | None:
        """A BERT's arrays in an ONNX file, from floats rather than 8 bits; None where some cannot be named."""
        if not self.exports:
            return None
        try:
            arrays, outputs = onnx_arrays(choose_onnx(self.exports, "float32"))
            if self.assumes_pooling and SENTENCE in outputs:  # then the network knows
                return None
            return bert_arrays(self.place, self.config, arrays=arrays)
        except InputError:
            return None

    @property
    def assumes_pooling(self) -> bool:
        """Whether nothing says how the states of tokens become a vector."""
        return not self.settings.pooling

    @property
    def pooling(self) -> tuple[str, ...]:
        """How the states of tokens become a vector; by their mean where nothing says so."""
        return self.settings.pooling or EncoderSettings.pooling

    @property
    def analyzer(self) -> Analyzer:
        assert self.pieces is not None
        return Analyzer(self.pieces)

    def network(self, precision: Precision = "int8") -> Network:
        """The encoder written for onnxruntime and torch, once, into the user's cache."""
        heads, pooling = int(self.config["num_attention_heads"]), "+".join(self.pooling)
        files = parts_of(choose_onnx(self.exports, "float32")) if self.exports else weight_files(self.place)
        key = [precision, pooling, self.length, heads, digest(files[0].parent, files)]
        key += [self.settings.token_type] if self.settings.token_type else []
        return cached_network(key, lambda folder: self._write(folder, precision, heads, pooling))

    def transformer(self, precision: Precision = "int8") -> Transformer:
        """The encoder as it is, to be run by torch and transformers; in 32 bits even on a GPU for float32.

        An ONNX file is run by onnxruntime.
        """
        if self.exports:
            return self._onnx(choose_onnx(self.exports, precision))
        need_torch(self.kind, self.folder)
        brings_code(self.place)
        s = self.settings
        if s.token_type:
            raise InputError(
                f"only a plain BERT can read documents as token type {s.token_type}, and this is {self.kind}",
                file=str(self.folder),
            )
        layers = tuple(self._measured(layer) for layer in s.layers)
        widths = [layer.width for layer in layers if layer.width]
        return Transformer.of(
            self.folder, pooling=s.pooling, layers=layers, length=self.length, base=s.base, lowercase=s.lowercase,
            skip_prompt_tokens=s.skip_prompt_tokens, exact=precision == "float32",
            width=widths[-1] if widths else self._pooled_width(),
        )  # fmt: skip

    def _onnx(self, file: Path) -> OnnxEncoder:
        s = self.settings
        if s.token_type:
            raise InputError(f"only a plain BERT can read documents as token type {s.token_type}", file=str(file))
        return OnnxEncoder.export(
            self.folder, file, pooling=s.pooling, layers=s.layers, length=self.length, base=s.base,
            lowercase=s.lowercase, skip_prompt_tokens=s.skip_prompt_tokens,
        )  # fmt: skip

    def _measured(self, layer: Layer) -> Layer:
        if layer.width or layer.kind != "linear":
            return layer
        from vizsla.neural.checkpoints.transformer import layer_width

        return layer_width(self.place, layer)

    def _pooled_width(self) -> int:
        hidden = next((self.config[name] for name in _WIDTHS if name in self.config), None)
        if not isinstance(hidden, int):
            raise InputError("this does not say how wide the encoder is", file=str(self.place / "config.json"))
        return hidden * len(self.pooling)

    def _write(self, folder: Path, precision: Precision, heads: int, pooling: str) -> None:
        weights = self._exported or bert_arrays(self.place, self.config)
        if self.settings.token_type:  # the network gives all tokens the first token type
            weights[_TOKEN_TYPES] = np.roll(weights[_TOKEN_TYPES], -self.settings.token_type, axis=0)
        sample = random_texts(len(weights["embeddings.word_embeddings.weight"]), self.length, [101], [102])
        Network.write(
            folder, weights, kind="dense", heads=heads, max_weight=1.0, length=self.length, precision=precision,
            sample=sample, pooling=pooling,
        )  # fmt: skip


def random_texts(words: int, length: int, before: list[int], after: list[int]) -> list[list[int]]:
    """Texts of common words, as token ids between special tokens, to calibrate quantisation with."""
    rng = np.random.default_rng(0)
    first, last = min(_COMMON[0], words // 2), min(_COMMON[1], words)
    tokens = min(_SAMPLE_TOKENS, length - len(before) - len(after))
    return [[*before, *rng.integers(first, last, tokens).tolist(), *after] for _ in range(_SAMPLE)]


def cached_network(key: list[Any], write: Callable[[Path], None]) -> Network:
    """A network in the user's cache, found by a key; where it is missing, `write` writes it into a folder."""
    return Network.open(cached_folder("networks", key, write))


def bert_config(folder: Path) -> dict[str, Any]:
    """The config.json of an encoder that must be a plain BERT."""
    config = read_json(folder / "config.json")
    if not is_plain(config):
        kind = config.get("model_type", "nothing that is named")
        raise InputError(f"only plain BERT encoders can be read here, and this is {kind}", file=str(folder))
    return config


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a BERT without anything unusual."""
    return config.get("model_type") == "bert" and all(
        config.get(name, usual) == usual for name, usual in _PLAIN.items()
    )


def trainable_config(folder: Path) -> dict[str, Any]:
    """The config.json of an encoder that can be trained, as that of a BERT: a plain BERT or a DistilBERT."""
    description = read_json(folder / "config.json")
    kind = description.get("model_type", "without a model_type")
    if kind not in ("bert", "distilbert"):
        raise InputError(f"only BERT and DistilBERT can be trained, and this is {kind}", file=str(folder))
    if description.get("auto_map"):
        raise InputError(f"only plain encoders can be trained, and this {kind} brings its own code", file=str(folder))
    try:
        config = bert_description(description) if kind == "distilbert" else description
    except KeyError as e:
        raise InputError(f"config.json does not describe a DistilBERT (no {e.args[0]})", file=str(folder)) from None
    for name, usual in _PLAIN.items():
        if config.get(name, usual) != usual:
            raise InputError(
                f"only plain encoders, with {name} {usual}, can be trained, and this {kind} has {config[name]}",
                file=str(folder),
            )
    return config


def bert_arrays(
    place: Path, config: dict[str, Any], heads: tuple[str, ...] = (), arrays: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """A BERT's arrays under their plain names, without the prefix of a larger model, and those of these heads.

    `arrays`: those of its files, if they have been read.
    """
    try:
        shapes = bert_shapes(config)
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"config.json does not describe a BERT ({e!r})", file=str(place)) from None
    read = read_checkpoint(place) if arrays is None else arrays
    named = bert_names({_new_name(name): array for name, array in read.items()})
    prefix = prefix_of(named, shapes)
    arrays = {name: named[prefix + name] for name in shapes if prefix + name in named}
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            what = "has another shape" if name in arrays else "is missing"
            raise InputError(f"these weights do not fit config.json ({name} {what})", file=str(place))
    arrays |= {
        n.removeprefix(prefix): a for n, a in named.items() if heads and n.removeprefix(prefix).startswith(heads)
    }
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(f"some weights are no numbers (in {name})", file=str(place))
    return arrays


def _new_name(name: str) -> str:
    """The current name of an array: the oldest checkpoints call those of layer normalisation gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def bert_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The arrays a BERT is made of."""
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    rows = [int(config[n]) for n in ("vocab_size", "max_position_embeddings")]
    layers, token_types = int(config["num_hidden_layers"]), int(config.get("type_vocab_size", 2))
    tables = zip(("word", "position", "token_type"), (*rows, token_types), strict=True)
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{n}_embeddings.weight": (size, hidden) for n, size in tables}
    norm = {"embeddings.LayerNorm": (hidden,)}
    for i in range(layers):
        at = f"encoder.layer.{i}."
        square = [f"attention.self.{n}" for n in ("query", "key", "value")] + ["attention.output.dense"]
        matrices = {at + n: (hidden, hidden) for n in square}
        matrices |= {f"{at}intermediate.dense": (inner, hidden), f"{at}output.dense": (hidden, inner)}
        for name, shape in matrices.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        norm |= {f"{at}{n}.LayerNorm": (hidden,) for n in ("attention.output", "output")}
    for name, size in norm.items():
        shapes |= {f"{name}.weight": size, f"{name}.bias": size}
    return shapes


def find_checkpoint(which: str | Path) -> Path:
    """The folder of an encoder: as it is given, unpacked from a file, in the package of weights, or from the hub."""
    named = str(which).startswith(HUB)
    which = str(which).removeprefix(HUB)
    path = Path(which)
    if path.is_dir() and not named:
        return path
    if path.is_file() and not named:
        return unpacked(path)
    if (installed := packaged(which)) is not None:
        return installed
    if not _NAME.fullmatch(str(which)):
        raise InputError("this folder does not exist", file=str(which))
    if "/" not in str(which) and package_of(which) is not None:  # a name of ours, which the hub does not know
        raise _absent(which, "")
    if find_spec("huggingface_hub") is None:
        need = 'and to fetch an encoder by its name huggingface_hub must be installed: pip install "vizsla[hub]"'
        raise _absent(which, need)
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(str(which), allow_patterns=[*_SMALL, "*.safetensors"]))
        whole = [*folder.glob("model*.safetensors"), *folder.glob("*0_*/model*.safetensors")]
        pickled = ["[0-9]_*/*.bin", *([] if whole else ["*pytorch_model*.bin"])]
        return Path(snapshot_download(str(which), allow_patterns=[*_SMALL, "*.safetensors", *pickled]))
    except Exception as e:  # the hub's own, the network's, and those of invalid names
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        if named:
            raise InputError(f"no model of this name was fetched from the model hub ({reason})", file=which) from None
        raise _absent(which, f"and no encoder of this name was fetched ({reason})") from None


def is_fetched(which: str) -> bool:
    """Whether an encoder of this name on the model hub is on this machine already."""
    if find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(which, "config.json"), str)


def _absent(which: str | Path, why: str) -> InputError:
    """The error for an encoder that was not found; if a package has its weights, it says how to install it."""
    if (package := package_of(which)) is not None:
        return InputError(
            f"the weights of this encoder are not here; get them ({package.size}) with: {package.install}",
            file=str(which),
        )
    return InputError(f"this folder does not exist, {why}", file=str(which))
