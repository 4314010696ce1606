"""DistilBERT as a BERT: the same network with other names, and without token types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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
