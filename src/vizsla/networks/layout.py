"""A network as others open it: the files of transformers, and of sentence-transformers where it has a word for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vizsla.networks.cross import Cross
from vizsla.networks.inference import plain_name, transformers
from vizsla.networks.joint import RERANKER
from vizsla.networks.pooled import Pooled
from vizsla.networks.splade import Splade

_HEAD = {"dense.": "transform.dense.", "norm.": "transform.LayerNorm.", "decoder.": "decoder."}
_POOLING = "1_SpladePooling"
_DENSE = [
    ("", "sentence_transformers.models.Transformer"),
    ("1_Pooling", "sentence_transformers.models.Pooling"),
    ("2_Normalize", "sentence_transformers.models.Normalize"),
]
_MODULES = [
    ("", "sentence_transformers.sparse_encoder.modules.mlm_transformer.MLMTransformer"),
    (_POOLING, "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"),
]


def save_layout(network: Any, tokenizer: bytes, folder: Path) -> None:
    """Write a network's parameters in 32-bit floats, its configuration and its tokenizer.json.

    SPLADE's network becomes a masked-language BERT that sentence-transformers' SparseEncoder opens, a dense one a
    SentenceTransformer, one that reads pairs a BERT for sequence classification with one label, a CrossEncoder there.
    uniCOIL's, DeepCT's and SPARTA's have no module there: the encoder is a BERT for anybody, and the head is in
    `weigh.safetensors`.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    values = {plain_name(n): p.detach().float().cpu().contiguous() for n, p in network.named_parameters()}
    config = network.encoder.config
    if isinstance(network, Splade):
        model = transformers().BertForMaskedLM(config)
        model.load_state_dict(_masked_language(values), strict=False)
        _write_json(folder / "modules.json", _modules(_MODULES))
        pooling = {"pooling_strategy": "max", "activation_function": "relu", "embedding_dimension": None}
        (folder / _POOLING).mkdir(exist_ok=True)
        _write_json(folder / _POOLING / "config.json", pooling)
        _write_json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder", "prompts": {}})
    elif isinstance(network, Cross):
        config.num_labels = 1
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}  # scores as they are
        model = transformers().BertForSequenceClassification(config)
        model.load_state_dict({n if n.startswith("classifier.") else f"bert.{n}": v for n, v in values.items()})
    else:
        model = transformers().BertModel(config, add_pooling_layer=False)
        own = model.state_dict().keys()
        model.load_state_dict({n: v for n, v in values.items() if n in own})
        if isinstance(network, Pooled):
            _write_pooling(network, config, folder)
        else:
            save_file({n: v for n, v in values.items() if n not in own}, folder / "weigh.safetensors")
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": config.max_position_embeddings}
    _write_json(folder / "tokenizer_config.json", settings)


def save_reranker(
    network: Cross, tokenizer: bytes, folder: Path, *, name: str, query_length: int = 64, length: int = 256
) -> None:
    """Write a cross-encoder as transformers has it, and, for Vizsla, how much it reads of query and document."""
    save_layout(network, tokenizer, folder)
    _write_json(folder / RERANKER, {"name": name, "query_length": query_length, "length": length})


def _masked_language(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parameters under the names of a BERT with a masked-language head."""
    named = {}
    for name, value in values.items():
        part = next((p for p in _HEAD if name.startswith(p)), None)
        named[f"cls.predictions.{_HEAD[part]}{name.removeprefix(part)}" if part else f"bert.{name}"] = value
    named["cls.predictions.bias"] = named["cls.predictions.decoder.bias"]
    return named


def _modules(modules: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]


def _write_pooling(network: Pooled, config: Any, folder: Path) -> None:
    """How sentence-transformers makes the same vectors."""
    _write_json(folder / "modules.json", _modules(_DENSE if network.normalize else _DENSE[:2]))
    pooled = {
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_cls_token": "cls" in network.pooling,
        "pooling_mode_mean_tokens": "mean" in network.pooling,
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write_json(folder / "1_Pooling" / "config.json", pooled)
    limits = {"max_seq_length": config.max_position_embeddings, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", limits)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
