"""Many continuations of each text by a Llama: the states of a text are kept once, and all its continuations read them.

transformers' `generate` repeats a text for each continuation, so a passage of 200 tokens is read 40 times to write 40
queries of 10 tokens. Here it is read once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

KINDS = ("llama", "mistral", "qwen2")


def can_share(config: Any) -> bool:
    """Whether a model's attention is the plain one that is computed here."""
    sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return config.model_type in KINDS and not sliding


class SharedPrefix:
    """The states of some texts and of their continuations; each text has the same number of continuations.

    `start` reads the texts; then `step` reads one more token of each continuation. Both give the logits of the token
    that follows. `select` keeps some texts and some of their continuations.
    """

    def __init__(self, model: Any, max_tokens: int) -> None:
        self.decoder, self.head, self.max_tokens = model.model, model.get_output_embeddings(), max_tokens
        first = self.decoder.layers[0].self_attn
        self.size: int = first.head_dim
        self.scaling: float = first.scaling
        self.written = 0
        self._prefix: list[tuple[Tensor, Tensor]] = []
        self._suffix: list[tuple[Tensor, Tensor]] = []

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        """[texts, vocabulary] the logits after each text; `ids` are padded on the right."""
        self.lengths, self.continuations = lengths, continuations
        places = torch.arange(ids.shape[1], device=ids.device)
        self._hidden = (places >= lengths[:, None])[:, None, None, :]  # padding, which continuations must not see
        states = self.decoder.embed_tokens(ids)
        rotation = self.decoder.rotary_emb(states, places[None])
        for layer in self.decoder.layers:
            query, key, value = self._heads(layer, states, rotation)
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scaling, enable_gqa=query.shape[1] != key.shape[1]
            )
            self._prefix.append((key, value))
            states = _finish(layer, states, mixed.transpose(1, 2).flatten(2))
        last = states[torch.arange(len(ids), device=ids.device), lengths - 1]
        return self.head(self.decoder.norm(last))  # type: ignore[no-any-return]

    def step(self, tokens: Tensor) -> Tensor:
        """[texts * continuations, vocabulary] the logits after one more token of each continuation."""
        states = self.decoder.embed_tokens(tokens[:, None])
        places = torch.repeat_interleave(self.lengths + self.written, self.continuations)[:, None]
        rotation = self.decoder.rotary_emb(states, places)
        for number, layer in enumerate(self.decoder.layers):
            query, key, value = self._heads(layer, states, rotation)
            states = _finish(layer, states, self._attend(number, query, key, value)[:, None])
        self.written += 1
        return self.head(self.decoder.norm(states[:, 0]))  # type: ignore[no-any-return]

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        """Keep these texts, and of each the continuations in a row of [texts, fewer]."""
        rows = (texts[:, None] * self.continuations + continuations).flatten()
        self._prefix = [(key[texts], value[texts]) for key, value in self._prefix]
        self._suffix = [(key[rows], value[rows]) for key, value in self._suffix]
        self._hidden, self.lengths = self._hidden[texts], self.lengths[texts]
        self.continuations = continuations.shape[1]

    def _heads(self, layer: Any, states: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[texts, heads, tokens, size] queries, keys and values, the first two turned by their places."""
        attention, normed = layer.self_attn, layer.input_layernorm(states)
        shape = (*states.shape[:2], -1, self.size)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (project(normed).view(shape).transpose(1, 2) for project in projections)
        cos, sin = (part[:, None] for part in rotation)
        return query * cos + _turned(query) * sin, key * cos + _turned(key) * sin, value

    def _attend(self, number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[rows, heads * size] what the new tokens see of their text and of what was written before."""
        if number == len(self._suffix):
            shape = (len(key), key.shape[1], self.max_tokens, self.size)
            self._suffix.append((key.new_empty(shape), value.new_empty(shape)))
        keys, values = self._suffix[number]
        keys[:, :, self.written], values[:, :, self.written] = key[:, :, 0], value[:, :, 0]
        past = slice(0, self.written + 1)
        prefix_keys, prefix_values = self._prefix[number]
        texts, groups, width, _ = prefix_keys.shape
        own = query.view(len(query), groups, -1, self.size)  # [rows, key heads, query heads of each, size]
        by_text = own.view(texts, self.continuations, groups, -1, self.size).transpose(1, 2)
        prefix_shape = by_text.shape
        by_text = by_text.reshape(texts, groups, -1, self.size)
        of_prefix = (by_text @ prefix_keys.transpose(2, 3) * self.scaling).masked_fill_(self._hidden, float("-inf"))
        of_prefix = of_prefix.view(*prefix_shape[:-1], width).transpose(1, 2).flatten(0, 1)
        of_suffix = own @ keys[:, :, past].transpose(2, 3) * self.scaling
        weights = torch.softmax(torch.cat([of_prefix, of_suffix], -1).float(), -1).to(query.dtype)
        for_prefix = weights[..., :width].view(texts, self.continuations, groups, -1, width).transpose(1, 2)
        seen = for_prefix.reshape(texts, groups, -1, width) @ prefix_values
        seen = seen.view(prefix_shape).transpose(1, 2).flatten(0, 1) + weights[..., width:] @ values[:, :, past]
        return seen.flatten(1)


def _turned(heads: Tensor) -> Tensor:
    left, right = heads.chunk(2, -1)
    return torch.cat([-right, left], -1)


def _finish(layer: Any, states: Tensor, mixed: Tensor) -> Tensor:
    """The rest of a layer after its attention."""
    states = states + layer.self_attn.o_proj(mixed)
    return states + layer.mlp(layer.post_attention_layernorm(states))  # type: ignore[no-any-return]
