"""Encoders over packed texts: a hidden state for every token, and no work for padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.chunks import Chunk
from vizsla.neural.lazy_torch import F, Module, nn, torch

if TYPE_CHECKING:
    from torch import Tensor


def attend(qkv: Tensor, starts: Tensor, longest: int, visible: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Attention within each text, given [tokens, 3, heads, size]; by a kernel for ragged texts if there is one.

    `visible`: [tokens] which tokens are attended to; by default all. `dropout`: the share of attention weights that are
    dropped at random.
    """
    if visible is None and not dropout and qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16):
        from vizsla.neural.attention import LONGEST, short_attention

        if longest <= LONGEST:
            with torch.cuda.device(qkv.device):  # Triton starts kernels on the current GPU
                attended: Tensor = short_attention(qkv, starts, longest)
            return attended
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = qkv.unbind(1)
        return varlen_attn(q, k, v, starts, starts, longest, longest)  # type: ignore[return-value]
    lengths = starts.diff()
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    rows = qkv.new_zeros(*mask.shape, *qkv.shape[1:])
    rows[mask] = qkv
    q, k, v = (x.transpose(1, 2) for x in rows.unbind(2))
    keys = mask if visible is None else torch.zeros_like(mask).masked_scatter_(mask, visible)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keys[:, None, None, :], dropout_p=dropout)
    return mixed.transpose(1, 2)[mask]


def padded_vocabulary(vocabulary: int) -> int:
    """The vocabulary size rounded up to a multiple of 64, since tensor cores need aligned rows."""
    return -(-vocabulary // 64) * 64


class PackedBert(Module):
    """A BERT of the transformers library, run over packed texts; it has BERT's parameters under BERT's names."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.config = bert.embeddings, bert.encoder, bert.config
        self.heads: int = bert.config.num_attention_heads
        self.hidden: int = bert.config.hidden_size
        self.vocabulary: int = bert.config.vocab_size
        self.width = padded_vocabulary(self.vocabulary)
        self.token_types = False
        """Whether documents have token type 1; otherwise all texts have token type 0."""

    def keep_layers(self, numbers: Sequence[int]) -> None:
        """Leave out all layers but these, counted from 0; the result is faster, and has to be trained again."""
        layers = self.encoder.layer
        missing = [number for number in numbers if number >= len(layers)]
        if missing:
            raise VizslaError(
                f"the base model has the layers 0 to {len(layers) - 1}, so there is no layer {missing[0]}"
            )
        self.encoder.layer = nn.ModuleList(layers[number] for number in numbers)
        self.config.num_hidden_layers = len(numbers)

    def forward(self, chunk: Chunk, token_types: Tensor | None = None, visible: Tensor | None = None) -> Tensor:
        """[tokens, hidden] the states of the last layer.

        `token_types`: [tokens] for texts that have both types. `visible`: [tokens] which are attended to.
        """
        e: Any = self.embeddings
        if token_types is None:
            token_type = e.token_type_embeddings.weight[chunk.side if self.token_types else 0]
        else:
            token_type = e.token_type_embeddings(token_types)
        states = e.word_embeddings(chunk.ids) + e.position_embeddings(chunk.positions) + token_type
        states = e.dropout(_short(e.LayerNorm(states)))
        for layer in self.encoder.layer:
            looks = (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value)
            weight, bias = torch.cat([f.weight for f in looks]), torch.cat([f.bias for f in looks])
            qkv = F.linear(states, weight, bias).view(len(states), 3, self.heads, -1)
            dropped = layer.attention.self.dropout.p if self.training else 0.0
            seen = attend(qkv, chunk.starts, chunk.longest, visible, dropped).flatten(-2)
            gives = layer.attention.output
            states = _short(gives.LayerNorm(gives.dropout(gives.dense(seen)) + states))
            inner = F.gelu(layer.intermediate.dense(states))
            states = _short(layer.output.LayerNorm(layer.output.dropout(layer.output.dense(inner)) + states))
        return states  # type: ignore[no-any-return]


def _short(states: Tensor) -> Tensor:
    """States in the precision of the next layer: autocast computes normalisations in float32 and does not cast back."""
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


class Padded(Module):
    """Any transformers encoder, run over packed texts, which are padded for it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.hidden: int = model.config.hidden_size
        self.vocabulary: int = model.config.vocab_size
        self.width = padded_vocabulary(self.vocabulary)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens, hidden] the states of the last layer."""
        ids, mask = chunk.padded()
        states: Any = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return states[mask]  # type: ignore[no-any-return]


def encoder_of(model: Any) -> PackedBert | Padded:
    """The fastest wrapper available for a transformers model."""
    plain = model.config.model_type == "bert" and model.config.hidden_act == "gelu"
    return PackedBert(model) if plain and not getattr(model.config, "is_decoder", False) else Padded(model)


def forward_operations(encoder: Any, lengths: np.ndarray) -> float:
    """Multiplications and additions to encode texts of these lengths: matrices and attention, without embeddings."""
    tokens = float(lengths.sum())
    matrices: int = sum(p.numel() for n, p in encoder.named_parameters() if p.ndim == 2 and "embeddings" not in n)
    layers: int = len(encoder.encoder.layer) if isinstance(encoder, PackedBert) else 0
    attention: float = 4.0 * layers * float(encoder.hidden) * float((lengths.astype(float) ** 2).sum())
    return 2.0 * matrices * tokens + attention
