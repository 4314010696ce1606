"""uniCOIL for sentence-transformers' SparseEncoder: one weight a token, the highest of its repeats.

This file is saved with a model, so loading it needs trust: SparseEncoder(NAME, trust_remote_code=True).
"""

from __future__ import annotations

from typing import ClassVar

import torch

try:
    from sentence_transformers.base.modules import Module
except ImportError:  # before version 6
    from sentence_transformers.models import Module


class UniCoil(Module):
    """A linear layer and ReLU over the state of each token; `special_tokens` tokens weigh nothing."""

    config_keys: ClassVar[list[str]] = ["hidden", "vocabulary", "special_tokens"]

    def __init__(self, hidden, vocabulary, special_tokens):
        super().__init__()
        self.hidden, self.vocabulary, self.special_tokens = hidden, vocabulary, list(special_tokens)
        self.weigh = torch.nn.Linear(hidden, 1)

    def forward(self, features, **_):
        """Adds `sentence_embedding`, [texts, vocabulary]."""
        weights = torch.relu(self.weigh(features["token_embeddings"]).squeeze(-1)) * features["attention_mask"]
        vectors = weights.new_zeros(len(weights), self.vocabulary)
        vectors = vectors.scatter_reduce(1, features["input_ids"], weights, "amax")
        vectors[:, self.special_tokens] = 0
        features["sentence_embedding"] = vectors
        return features

    def get_sentence_embedding_dimension(self):
        """How many terms there are."""
        return self.vocabulary

    get_embedding_dimension = get_sentence_embedding_dimension

    def save(self, output_path, *_, safe_serialization=True, **__):
        """Write the weights and the configuration."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path, **where):
        """The module that was written."""
        kept = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        where = {name: value for name, value in where.items() if name in kept}
        model = cls(**cls.load_config(model_name_or_path, **where))
        return cls.load_torch_weights(model_name_or_path, model=model, **where)
