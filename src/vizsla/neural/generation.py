"""Texts to texts by torch: any causal or seq2seq model of transformers' writes several texts for each input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vizsla.neural.generator import start_token
from vizsla.neural.inference import has_fast_bfloat16, transformers
from vizsla.neural.sampling import next_tokens
from vizsla.neural.shared_prefix import SharedPrefix, can_share

_TEXTS = {"cuda": 16_384, "cpu": 160}  # written at once
_TOKENS = {"cuda": 131_072, "cpu": 4096}  # of inputs, read at once
_TIDY_STEPS = 4  # between two looks for texts that are finished


class States(Protocol):
    """What a model remembers of some inputs and of the texts it writes for them."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        """[inputs, vocabulary] the logits of the first token after each input."""

    def step(self, tokens: Tensor) -> Tensor:
        """[inputs * continuations, vocabulary] the logits after one more token of each text."""

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        """Keep these inputs, and of each the continuations in a row of [inputs, fewer]."""


class TorchGenerator:
    """A model of transformers' that writes. On a GPU and on processors that have it, in 16-bit floats."""

    def __init__(self, model: Any, seq2seq: bool, ends: Sequence[int], device: str | None = None) -> None:
        self.seq2seq = seq2seq
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        precision = torch.bfloat16 if has_fast_bfloat16(self.device) else torch.float32
        self.model = model.to(self.device, precision)
        self.ends = torch.tensor(list(ends), device=self.device)

    @torch.inference_mode()
    def generate(
        self, inputs: Sequence[np.ndarray], uniform: np.ndarray, *, top_k: int, top_p: float, temperature: float
    ) -> list[list[list[int]]]:
        """The tokens of some texts for each input; [inputs, texts, tokens] uniform random numbers say how many."""
        written: list[list[list[int]]] = [[] for _ in inputs]
        for chosen in self._batches(inputs, uniform.shape[1]):
            lengths = torch.tensor([len(inputs[i]) for i in chosen], device=self.device)
            mask = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]
            flat = torch.from_numpy(np.concatenate([inputs[i] for i in chosen]).astype(np.int64)).to(self.device)
            ids = flat.new_zeros(mask.shape).masked_scatter_(mask, flat)
            numbers = torch.from_numpy(uniform[chosen]).to(self.device)
            tokens = self._write(ids, lengths, numbers, (top_k, top_p, temperature)).cpu().numpy()
            ends = set(self.ends.tolist())
            for i, rows in zip(chosen, tokens.tolist(), strict=True):
                written[i] = [_before(row, ends) for row in rows]
        return written

    def _batches(self, inputs: Sequence[np.ndarray], texts: int) -> Iterator[list[int]]:
        """The numbers of inputs that are read together, those of about one length."""
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]), reverse=True)
        first = 0
        while first < len(order):
            longest = max(len(inputs[order[first]]), 1)
            count = max(1, min(_TOKENS[self.device.type] // longest, _TEXTS[self.device.type] // texts))
            yield order[first : first + count]
            first += count

    def states(self, max_tokens: int) -> States:
        """What remembers inputs and texts, for this kind of model."""
        if self.seq2seq:
            return _Seq2SeqStates(self.model)
        return SharedPrefix(self.model, max_tokens) if can_share(self.model.config) else _CausalStates(self.model)

    def _write(self, ids: Tensor, lengths: Tensor, uniform: Tensor, sampling: tuple[int, float, float]) -> Tensor:
        """[inputs, texts, tokens] with an end token after each text that is shorter."""
        inputs, texts, steps = uniform.shape
        states, end = self.states(steps), int(self.ends[0])
        written = ids.new_full((inputs, texts, steps), end)
        rows = torch.arange(inputs, device=self.device)  # which input each row of the states is
        slots = torch.arange(texts, device=self.device).expand(inputs, texts)  # which text each place in a row is
        live = torch.ones_like(slots, dtype=torch.bool)
        logits = states.start(ids, lengths, texts).repeat_interleave(texts, 0)
        for step in range(steps):
            numbers = uniform[rows[:, None], slots, step].flatten()
            tokens = next_tokens(logits, numbers, *sampling).view(slots.shape)
            tokens = torch.where(live, tokens, end)
            written[rows[:, None], slots, step] = tokens
            live = live & ~torch.isin(tokens, self.ends)
            if step + 1 == steps or (step % _TIDY_STEPS == 0 and not live.any()):
                break
            if step % _TIDY_STEPS == 0:
                kept = live.any(1).nonzero()[:, 0]
                widest = int(live.sum(1).max())
                if len(kept) < len(rows) or widest < slots.shape[1]:
                    order = torch.argsort((~live[kept]).int(), dim=1, stable=True)[:, :widest]
                    states.select(kept, order)
                    rows = rows[kept]
                    slots, live, tokens = (part[kept].gather(1, order) for part in (slots, live, tokens))
            logits = states.step(tokens.flatten())
        return written


class _Repeated:
    """States in a cache of transformers', repeated for each continuation."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None
        self.continuations = 1

    def _repeat(self, continuations: int) -> None:
        self.cache.batch_repeat_interleave(continuations)
        self.continuations = continuations

    def _select(self, texts: Tensor, continuations: Tensor) -> Tensor:
        rows = (texts[:, None] * self.continuations + continuations).flatten()
        self.cache.batch_select_indices(rows)
        self.continuations = continuations.shape[1]
        return rows


class _CausalStates(_Repeated):
    """Of a causal model; inputs are padded on the left."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device) - (ids.shape[1] - lengths)[:, None]
        self.mask = (places >= 0).long()
        moved = ids.gather(1, places.clamp(min=0))
        self.cache = transformers().DynamicCache(config=self.model.config)
        result = self.model(
            input_ids=moved, attention_mask=self.mask, position_ids=places.clamp(min=0), past_key_values=self.cache,
            use_cache=True,
        )  # fmt: skip
        self.cache = result.past_key_values
        self._repeat(continuations)
        self.mask, self.places = (part.repeat_interleave(continuations, 0) for part in (self.mask, lengths[:, None]))
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def step(self, tokens: Tensor) -> Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], 1)
        result = self.model(
            input_ids=tokens[:, None], attention_mask=self.mask, position_ids=self.places, past_key_values=self.cache,
            use_cache=True,
        )  # fmt: skip
        self.places = self.places + 1
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        rows = self._select(texts, continuations)
        self.mask, self.places = self.mask[rows], self.places[rows]


class _Seq2SeqStates(_Repeated):
    """Of a seq2seq model: its encoder reads an input once, whatever is written for it."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        self.mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        self.encoded = self.model.get_encoder()(input_ids=ids, attention_mask=self.mask)
        library = transformers()
        self.cache = library.EncoderDecoderCache(library.DynamicCache(), library.DynamicCache())
        logits = self._read(ids.new_full((len(ids),), start_token(self.model)))
        self._repeat(continuations)
        self._keep(torch.arange(len(ids), device=ids.device).repeat_interleave(continuations))
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        return self._read(tokens)

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        self._keep(self._select(texts, continuations))

    def _read(self, tokens: Tensor) -> Tensor:
        result = self.model(
            encoder_outputs=self.encoded, attention_mask=self.mask, decoder_input_ids=tokens[:, None],
            past_key_values=self.cache, use_cache=True,
        )  # fmt: skip
        self.cache = result.past_key_values
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def _keep(self, rows: Tensor) -> None:
        self.mask = self.mask[rows]
        # the cache holds what the decoder takes from the encoder's states, so only their shape is still looked at
        self.encoded.last_hidden_state = self.encoded.last_hidden_state[:1].expand(len(rows), -1, -1)


def _before(tokens: list[int], ends: set[int]) -> list[int]:
    """The tokens before the first end token."""
    return tokens[: next((i for i, token in enumerate(tokens) if token in ends), len(tokens))]
