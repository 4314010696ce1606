"""Third-party checkpoints of a BERT with a small head: uniCOIL, COIL, SPARTA and DeepCT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError
from vizsla.neural.checkpoints.checkpoint import (
    bert_arrays,
    bert_description,
    cached_network,
    find_checkpoint,
    is_plain,
    random_texts,
)
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.checkpoints.tokenizers import bert_pieces, with_model_type
from vizsla.neural.network import Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import array_names, file_floats, read_checkpoint, unpickled, weight_files
from vizsla.text import Analyzer, WordPiece

COIL_HEAD, COIL_SETTINGS = "model.pt", "args.pt"
"""The files of COIL's own code beside the encoder: the layers after it, and how it was trained."""
_UNICOIL, _DEEPCT = "tok_proj", "classifier"
_NORMS = ("ln_tok.weight", "ln_cls.weight")
_HEADS = {
    "unicoil": "a uniCOIL has a layer tok_proj with one output after the encoder",
    "coil": "a COIL has a layer tok_proj with several outputs after the encoder",
    "sparta": "a SPARTA is a plain BERT or DistilBERT",
    "deepct": "a DeepCT is a BERT for token classification with one label",
}


def head_kind(folder: Path) -> str:
    """Which head the encoder in a folder has: unicoil, coil or deepct; empty for none of them, as of a SPARTA."""
    config = read_json(folder / "config.json")
    if any(str(name).endswith("ForTokenClassification") for name in config.get("architectures") or ()):
        return "deepct"
    if (folder / COIL_HEAD).is_file():
        width = len(_layer(file_floats(folder / COIL_HEAD), _UNICOIL).get("weight", ()))
        return "" if not width else "unicoil" if width == 1 else "coil"
    return "unicoil" if any(name.endswith(f"{_UNICOIL}.weight") for name in array_names(folder)) else ""


@dataclass(frozen=True, eq=False)
class HeadCheckpoint:
    """What the files of an encoder with a head say, before its weights are read. `kind`: its head, as in `HEADS`."""

    place: Path
    kind: str
    config: dict[str, Any]
    pieces: WordPiece

    @classmethod
    def read(cls, which: str | Path, kind: str) -> HeadCheckpoint:
        """A checkpoint with this head, from its folder or by its name on the model hub."""
        place = find_checkpoint(which)
        config = with_model_type(read_json(place / "config.json"))
        try:
            described = bert_description(config) if config.get("model_type") == "distilbert" else config
        except KeyError as e:
            raise InputError(f"config.json does not describe a DistilBERT (no {e.args[0]})", file=str(place)) from None
        pieces = bert_pieces(place)
        if not is_plain(described) or config.get("auto_map") or pieces is None:
            raise InputError(f"only a plain BERT or DistilBERT can be read as {kind}", file=str(place))
        return cls(place, kind, described, pieces)

    @property
    def analyzer(self) -> Analyzer:
        return Analyzer(self.pieces)

    @property
    def length(self) -> int:
        """How many tokens the encoder has positions for."""
        return int(self.config["max_position_embeddings"])

    def network(self, precision: Precision, max_weight: float = 1.0) -> Network:
        """The network written for onnxruntime and torch, once, into the user's cache."""
        files = weight_files(self.place)
        beside = [self.place / name for name in (COIL_HEAD, COIL_SETTINGS)]
        files += [file for file in beside if self.kind in ("coil", "unicoil") and file.is_file()]
        key = ["head", self.kind, precision, max_weight, self.length, digest(self.place, files)]
        return cached_network(key, lambda folder: self._write(folder, precision, max_weight))

    def _write(self, folder: Path, precision: Precision, max_weight: float) -> None:
        weights = bert_arrays(self.place, self.config)
        weights |= self._head(int(self.config["hidden_size"]))
        words = len(weights["embeddings.word_embeddings.weight"])
        Network.write(
            folder, weights, kind=self.kind, heads=int(self.config["num_attention_heads"]), max_weight=max_weight,
            length=self.length, precision=precision, sample=random_texts(words, self.length, [101], [102]),
        )  # fmt: skip

    def _head(self, hidden: int) -> dict[str, np.ndarray]:
        """The arrays of the head under the names that Vizsla's has."""
        if self.kind == "sparta":
            return {"shift": np.zeros(1, np.float32)}
        file = self.place / COIL_HEAD
        arrays = file_floats(file) if file.is_file() and self.kind != "deepct" else read_checkpoint(self.place)
        if self.kind == "deepct":
            return _named(self._checked(_layer(arrays, _DEEPCT), hidden), "weigh")
        self._check_coil(arrays)
        tokens = self._checked(_layer(arrays, _UNICOIL), hidden)
        if self.kind == "unicoil":
            return _named(tokens, "weigh")
        texts = _layer(arrays, "cls_proj")
        return _named(tokens, "tok_proj") | (_named(self._checked(texts, hidden), "cls_proj") if texts else {})

    def _checked(self, layer: Mapping[str, np.ndarray], hidden: int) -> dict[str, np.ndarray]:
        weight, bias = layer.get("weight"), layer.get("bias")
        wide = weight is not None and weight.ndim == 2 and weight.shape[1] == hidden
        if weight is None or bias is None or not wide or bias.shape != weight.shape[:1]:
            raise InputError(f"{_HEADS[self.kind]}; this checkpoint has none that fits", file=str(self.place))
        if (len(weight) == 1) != (self.kind in ("unicoil", "deepct")):
            raise InputError(f"{_HEADS[self.kind]}; this one has {len(weight)} outputs", file=str(self.place))
        if not np.isfinite(weight).all() or not np.isfinite(bias).all():
            raise InputError(f"some weights are no numbers (in the head of {self.kind})", file=str(self.place))
        return {"weight": weight, "bias": bias}

    def _check_coil(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuse variants that COIL's code can train and this head does not have."""
        for name in _NORMS:
            if name in arrays:
                raise InputError(f"a COIL with layer normalisation ({name}) cannot be read", file=str(self.place))
        file = self.place / COIL_SETTINGS
        if not file.is_file():
            return
        settings: dict[str, Any] = {}
        content = unpickled(file)
        for part in content if isinstance(content, list | tuple) else ():
            settings |= getattr(part, "__dict__", {})
        if self.kind == "coil":
            for name in ("relu", "no_cls", "cls_only"):
                if settings.get(name) is True:
                    raise InputError(f"a COIL that was trained with {name} cannot be read", file=str(file))


def _layer(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of the layer of this name, whatever prefix the layer has."""
    found = {}
    for part in ("weight", "bias"):
        ending = f"{name}.{part}"
        own = next((array for n, array in arrays.items() if n == ending or n.endswith(f".{ending}")), None)
        if own is not None:
            found[part] = own
    return found


def _named(layer: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {f"{name}.{part}": array for part, array in layer.items()}
