"""Tiny SPLADEs at random, saved as others save theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from encoders import bert_config, save_bert_tokenizer, torch, transformers

ST = "sentence_transformers"
OLD = f"{ST}.sparse_encoder.modules.mlm_transformer.MLMTransformer"
NEW = f"{ST}.base.modules.transformer.Transformer"
POOLING = f"{ST}.sparse_encoder.modules.splade_pooling.SpladePooling"
TABLE = f"{ST}.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
TEXTS = ["A dog that points at birds.", "Taxes on vehicles, " * 30, "x", "Dogs and birds in a field"]


def masked_language(config: Any = None) -> Any:
    """A masked-language model with larger weights than a new one has, so that terms differ."""
    model = transformers.AutoModelForMaskedLM.from_config(config or bert_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).add_(torch.randn_like(parameter) * 0.05)
    return model


def save_masked_language(folder: Path, model: Any) -> Any:
    """A model in transformers' own layout, with BERT's tokenizer."""
    model.save_pretrained(folder)
    return save_bert_tokenizer(folder)


def save_splade(folder: Path, how: str = "max", activation: str = "relu", kind: str = OLD) -> None:
    """What sentence-transformers writes beside a masked-language model."""
    listed = [("", kind), ("1_SpladePooling", POOLING)]
    modules = [{"idx": i, "name": str(i), "path": path, "type": name} for i, (path, name) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_SpladePooling").mkdir(exist_ok=True)
    pooling = {"pooling_strategy": how, "activation_function": activation, "word_embedding_dimension": None}
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    about = {"transformer_task": "fill-mask"} if kind == NEW else {"max_seq_length": 64, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(about))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "SparseEncoder"}))


def expected(model: Any, tokenizer: Any, text: str, how: str = "max", activation: str = "relu") -> np.ndarray:
    """[vocabulary] the weights by transformers and the formula, one text at a time."""
    ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        weights = torch.log1p(torch.relu(model(input_ids=ids).logits[0]))
    if activation == "log1p_relu":
        weights = torch.log1p(weights)
    return np.asarray(weights.amax(0) if how == "max" else weights.sum(0))


def dense_rows(rows: tuple[np.ndarray, np.ndarray, np.ndarray], width: int) -> np.ndarray:
    """[texts, width] from pointers, terms and weights."""
    pointers, terms, weights = rows
    vectors = np.zeros((len(pointers) - 1, width), np.float32)
    vectors[np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), terms] = weights
    return vectors
