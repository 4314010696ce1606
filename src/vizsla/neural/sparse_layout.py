"""A learned sparse network as sentence-transformers' SparseEncoder opens it. It needs no torch.

SPLADE's network becomes a masked-language BERT and a `SpladePooling`. uniCOIL's has no module in that library: it
becomes a BERT and a module of its own, whose code travels with the model and has to be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.graph import layer_count
from vizsla.neural.weights import write_arrays

SPARSE_KINDS = ("splade", "unicoil")
CODE = "unicoil_module.py"
_ARRAYS = "model.safetensors"
_WORDS = "embeddings.word_embeddings.weight"
_HEAD = {"dense.": "transform.dense.", "norm.": "transform.LayerNorm.", "decoder.": "decoder."}
_SPLADE = [
    ("", "sentence_transformers.sparse_encoder.modules.mlm_transformer.MLMTransformer"),
    ("1_SpladePooling", "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"),
]
_UNICOIL = [
    ("", "sentence_transformers.models.Transformer"),
    ("1_UniCoil", f"{CODE.removesuffix('.py')}.UniCoil"),
]
_ROUTER = "sentence_transformers.models.Router"
_TABLE = (
    "query_0_SparseStaticEmbedding",
    "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
)


def save_sparse_layout(
    folder: Path, weights: Mapping[str, np.ndarray], kind: str, *, heads: int, tokenizer: bytes, length: int,
    pooling: Sequence[str] = (), query_weights: np.ndarray | None = None,
) -> None:  # fmt: skip
    """Write a network: its arrays in 32-bit floats, its configuration, its tokenizer, and the modules.

    `weights`: named as in a `weights.safetensors`. `heads`: those of attention. `length`: how many tokens are read.
    `query_weights`: a weight for each piece, where queries have no network; a router then parts them from documents.
    """
    if kind not in SPARSE_KINDS:
        raise VizslaError(f"SparseEncoder has {' and '.join(SPARSE_KINDS)}, and this network is of the kind {kind}")
    floats = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
    kinds = _SPLADE if kind == "splade" else _UNICOIL
    routed = query_weights is not None
    places = [f"document_{i}_{name.rpartition('.')[2]}" if routed else path for i, (path, name) in enumerate(kinds)]
    folder.mkdir(parents=True, exist_ok=True)
    last = folder / places[1]
    last.mkdir(exist_ok=True)
    if kind == "splade":
        arrays = _masked_language(floats)
        write_json(last / "config.json", _pooling_config(pooling))
    else:
        arrays = {name: array for name, array in floats.items() if not name.startswith("weigh.")}
        _write_unicoil(last, floats)
        code = resources.files("vizsla.neural").joinpath(f"data/{CODE}").read_text("utf-8")
        (folder / CODE).write_text(code, "utf-8")
    place = folder / places[0]
    place.mkdir(exist_ok=True)
    write_arrays(place / _ARRAYS, arrays)
    write_json(place / "config.json", _bert_config(floats, heads, masked_language=kind == "splade"))
    write_json(place / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    _write_tokenizer(place, tokenizer, length)
    modules = [(path, name) for path, (_, name) in zip(places, kinds, strict=True)]
    if query_weights is not None:
        _write_table(folder / _TABLE[0], query_weights, tokenizer, length)
        write_json(folder / "router_config.json", _router(modules))
        modules = [("", _ROUTER)]
    write_json(folder / "modules.json", modules_data(modules))
    write_json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder", "prompts": {}})


def _write_unicoil(place: Path, weights: Mapping[str, np.ndarray]) -> None:
    """The head, as the module that travels with it reads it."""
    rows, hidden = weights[_WORDS].shape
    write_json(place / "config.json", {"hidden": hidden, "vocabulary": rows, "special_tokens": list(SPECIAL_TOKENS)})
    write_arrays(place / _ARRAYS, {name: array for name, array in weights.items() if name.startswith("weigh.")})


def _write_table(place: Path, weights: np.ndarray, tokenizer: bytes, length: int) -> None:
    """A weight for each piece, as a module of that library."""
    place.mkdir(exist_ok=True)
    write_arrays(place / _ARRAYS, {"weight": np.ascontiguousarray(weights, np.float32)})
    write_json(place / "config.json", {"frozen": False})
    _write_tokenizer(place, tokenizer, length)


def _write_tokenizer(place: Path, tokenizer: bytes, length: int) -> None:
    (place / "tokenizer.json").write_bytes(tokenizer)
    write_json(place / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": length})


def _router(modules: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Documents through the network, queries through the table."""
    return {
        "types": dict([*modules, _TABLE]),
        "structure": {"query": [_TABLE[0]], "document": [path for path, _ in modules]},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }


def _pooling_config(pooling: Sequence[str]) -> dict[str, Any]:
    return {
        "pooling_strategy": "sum" if "sum" in pooling else "max",
        "activation_function": "log1p_relu" if "log1p" in pooling else "relu",
    }


def _masked_language(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays under the names of a BERT with a masked-language head."""
    named = {}
    for name, array in weights.items():
        part = next((p for p in _HEAD if name.startswith(p)), None)
        named[f"cls.predictions.{_HEAD[part]}{name.removeprefix(part)}" if part else f"bert.{name}"] = array
    named["cls.predictions.bias"] = named["cls.predictions.decoder.bias"]
    named.setdefault("cls.predictions.decoder.weight", named[f"bert.{_WORDS}"])
    return named


def _bert_config(weights: Mapping[str, np.ndarray], heads: int, *, masked_language: bool) -> dict[str, Any]:
    rows, hidden = weights[_WORDS].shape
    return {
        "architectures": ["BertForMaskedLM" if masked_language else "BertModel"],
        "model_type": "bert",
        "vocab_size": rows,
        "hidden_size": hidden,
        "num_hidden_layers": layer_count(weights, "encoder"),
        "num_attention_heads": heads,
        "intermediate_size": len(weights["encoder.layer.0.intermediate.dense.weight"]),
        "max_position_embeddings": len(weights["embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(weights["embeddings.token_type_embeddings.weight"]),
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "tie_word_embeddings": "decoder.weight" not in weights,
    }


def modules_data(modules: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """What modules.json lists: where each module lies, and its class."""
    return [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]


def write_json(file: Path, content: Any) -> None:
    """Write plain data as others read them."""
    file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
