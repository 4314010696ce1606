"""Networks as other libraries open them: the files of transformers and of sentence-transformers. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.heads.colbert import TokenProjection
from vizsla.neural.heads.cross import RERANKER, Cross
from vizsla.neural.heads.dense import Pooled
from vizsla.neural.heads.splade import Splade
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.neural.onnx_graph import layer_count
from vizsla.neural.torch_network import plain_name, transformers
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
    `query_weights`: a weight for each piece, if queries have no network; a router then separates them from documents.
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
    write_json(place / "config.json", bert_config_of(floats, heads, masked_language=kind == "splade"))
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
    """Write the head for the module whose code is saved with it."""
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


def bert_config_of(weights: Mapping[str, np.ndarray], heads: int, *, masked_language: bool = False) -> dict[str, Any]:
    """The config.json of a plain BERT with these arrays, named without a prefix."""
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
    """Write plain data as indented JSON."""
    file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


_DENSE = [
    ("", "sentence_transformers.models.Transformer"),
    ("1_Pooling", "sentence_transformers.models.Pooling"),
    ("2_Normalize", "sentence_transformers.models.Normalize"),
]
_PROJECTED = [
    ("", "sentence_transformers.models.Transformer"),
    ("1_Dense", "pylate.models.Dense.Dense"),
]


def save_layout(network: Any, tokenizer: bytes, folder: Path, query_weights: np.ndarray | None = None) -> None:
    """Write a network's parameters in 32-bit floats, its configuration and its tokenizer.json.

    SPLADE and uniCOIL can then be opened by sentence-transformers' SparseEncoder (`save_sparse_layout`), a dense model
    by SentenceTransformer, a cross-encoder by CrossEncoder: it is a BERT for sequence classification with one label.
    ColBERT is written as PyLate's modules, which also need to know how texts are read (`write_pylate_settings`).
    DeepCT, COIL and SPARTA have no module in these libraries: their encoder is a plain BERT, and the head is in
    `weigh.safetensors`. `query_weights`: a weight for each piece of a query, for a SPLADE that reads only documents.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    values = {plain_name(n): p.detach().float().cpu().contiguous() for n, p in network.named_parameters()}
    config = network.encoder.config
    if isinstance(network, Splade | UniCoil):
        arrays = {name: value.numpy() for name, value in values.items()}
        save_sparse_layout(
            folder, arrays, network.kind, heads=config.num_attention_heads, tokenizer=tokenizer,
            length=config.max_position_embeddings, pooling=getattr(network, "pooling", ()), query_weights=query_weights,
        )  # fmt: skip
        return
    if isinstance(network, Cross):
        config.num_labels = 1
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}  # raw scores, no sigmoid
        model = transformers().BertForSequenceClassification(config)
        model.load_state_dict({n if n.startswith("classifier.") else f"bert.{n}": v for n, v in values.items()})
    else:
        model = transformers().BertModel(config, add_pooling_layer=False)
        own = model.state_dict().keys()
        model.load_state_dict({n: v for n, v in values.items() if n in own})
        if isinstance(network, Pooled):
            _write_pooling(network, config, folder)
        elif isinstance(network, TokenProjection):
            _write_projection(network, config, folder)
        else:
            save_file({n: v for n, v in values.items() if n not in own}, folder / "weigh.safetensors")
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": config.max_position_embeddings}
    write_json(folder / "tokenizer_config.json", settings)


def save_reranker(
    network: Cross, tokenizer: bytes, folder: Path, *, name: str, query_length: int = 64, length: int = 256
) -> None:
    """Write a cross-encoder in the layout of transformers, and for Vizsla how many tokens of a pair it reads."""
    save_layout(network, tokenizer, folder)
    write_json(folder / RERANKER, {"name": name, "query_length": query_length, "length": length})


def _write_pooling(network: Pooled, config: Any, folder: Path) -> None:
    """Write the modules with which sentence-transformers computes the same vectors."""
    write_json(folder / "modules.json", modules_data(_DENSE if network.normalize else _DENSE[:2]))
    pooled = {
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_cls_token": "cls" in network.pooling,
        "pooling_mode_mean_tokens": "mean" in network.pooling,
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "1_Pooling" / "config.json", pooled)
    _write_limits(config, folder)


def _write_projection(network: TokenProjection, config: Any, folder: Path) -> None:
    """ColBERT's linear layer as a module of PyLate."""
    from safetensors.torch import save_file

    write_json(folder / "modules.json", modules_data(_PROJECTED))
    linear = network.linear
    about = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
        "use_residual": False,
    }
    (folder / "1_Dense").mkdir(exist_ok=True)
    write_json(folder / "1_Dense" / "config.json", about)
    save_file({"linear.weight": linear.weight.detach().float().cpu()}, folder / "1_Dense" / "model.safetensors")
    _write_limits(config, folder)


def _write_limits(config: Any, folder: Path) -> None:
    limits = {"max_seq_length": config.max_position_embeddings, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", limits)
