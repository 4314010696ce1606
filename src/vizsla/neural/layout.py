"""A network as others open it: the files of transformers, and of sentence-transformers where it has a word for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vizsla.neural.heads.colbert import TokenProjection
from vizsla.neural.heads.cross import RERANKER, Cross
from vizsla.neural.heads.dense import Pooled
from vizsla.neural.heads.splade import Splade
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.neural.inference import plain_name, transformers
from vizsla.neural.sparse_layout import modules_data, save_sparse_layout, write_json

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

    SPLADE's and uniCOIL's become what sentence-transformers' SparseEncoder opens (`save_sparse_layout`), a dense one a
    SentenceTransformer, one that reads pairs a BERT for sequence classification with one label, a CrossEncoder there.
    ColBERT's becomes the modules of PyLate, which also wants to know how texts are read (`write_pylate_settings`).
    DeepCT's, COIL's and SPARTA's have no module there: the encoder is a BERT for anybody, and the head is in
    `weigh.safetensors`. `query_weights`: a weight for each piece of a query, beside a SPLADE of documents.
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
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}  # scores as they are
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
    """Write a cross-encoder as transformers has it, and, for Vizsla, how much it reads of query and document."""
    save_layout(network, tokenizer, folder)
    write_json(folder / RERANKER, {"name": name, "query_length": query_length, "length": length})


def _write_pooling(network: Pooled, config: Any, folder: Path) -> None:
    """How sentence-transformers makes the same vectors."""
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
