"""Encoders over packed texts: a hidden state for every token, and no work for padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vizsla.networks.chunks import Chunk


def attend(queries: Tensor, keys: Tensor, values: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Attention inside each text of [tokens, heads, size]; by a kernel for ragged texts where there is one."""
    if queries.is_cuda and queries.dtype in (torch.bfloat16, torch.float16):
        from vizsla.networks.attention import LONGEST, short_attention

        if longest <= LONGEST:
            attended: Tensor = short_attention(queries, keys, values, starts, longest)
            return attended
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(queries, keys, values, starts, starts, longest, longest)  # type: ignore[return-value]
    lengths = starts.diff()
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]

    def padded(x: Tensor) -> Tensor:
        rows = x.new_zeros(*mask.shape, *x.shape[1:])
        rows[mask] = x
        return rows.transpose(1, 2)

    q, k, v = map(padded, (queries, keys, values))
    made = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
    return made.transpose(1, 2)[mask]


def whole_width(vocabulary: int) -> int:
    """How wide vectors over a vocabulary are made: tensor cores want rows of whole 16 bytes, and more."""
    return -(-vocabulary // 64) * 64


class PackedBert(nn.Module):
    """A BERT of transformers' run over packed texts; the parameters are those of the BERT, under its names."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.config = bert.embeddings, bert.encoder, bert.config
        self.heads: int = bert.config.num_attention_heads
        self.hidden: int = bert.config.hidden_size
        self.vocabulary: int = bert.config.vocab_size
        self.width = whole_width(self.vocabulary)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens, hidden] the states of the last layer."""
        e: Any = self.embeddings
        states = (
            e.word_embeddings(chunk.ids) + e.position_embeddings(chunk.positions) + e.token_type_embeddings.weight[0]
        )
        states = e.dropout(e.LayerNorm(states))
        for layer in self.encoder.layer:
            looks = layer.attention.self
            q, k, v = (f(states).unflatten(-1, (self.heads, -1)) for f in (looks.query, looks.key, looks.value))
            seen = attend(q, k, v, chunk.starts, chunk.longest).flatten(-2)
            gives = layer.attention.output
            states = gives.LayerNorm(gives.dropout(gives.dense(seen)) + states)
            inner = F.gelu(layer.intermediate.dense(states))
            states = layer.output.LayerNorm(layer.output.dropout(layer.output.dense(inner)) + states)
        return states  # type: ignore[no-any-return]


class Padded(nn.Module):
    """Any encoder of transformers' over packed texts: they are padded for it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.hidden: int = model.config.hidden_size
        self.vocabulary: int = model.config.vocab_size
        self.width = whole_width(self.vocabulary)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens, hidden] the states of the last layer."""
        ids, mask = chunk.padded()
        states: Any = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return states[mask]  # type: ignore[no-any-return]


def encoder_of(model: Any) -> PackedBert | Padded:
    """The fastest encoder there is for a model of transformers'."""
    plain = model.config.model_type == "bert" and model.config.hidden_act == "gelu"
    return PackedBert(model) if plain and not getattr(model.config, "is_decoder", False) else Padded(model)


def forward_operations(encoder: Any, lengths: np.ndarray) -> float:
    """Multiplications and additions to encode texts of these lengths: matrices and attention, embeddings not."""
    tokens = float(lengths.sum())
    matrices: int = sum(p.numel() for n, p in encoder.named_parameters() if p.ndim == 2 and "embeddings" not in n)
    layers: int = len(encoder.encoder.layer) if isinstance(encoder, PackedBert) else 0
    attention: float = 4.0 * layers * float(encoder.hidden) * float((lengths.astype(float) ** 2).sum())
    return 2.0 * matrices * tokens + attention
