"""Texts to dense vectors by any encoder of transformers' with its own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vizsla.errors import InputError
from vizsla.neural.session import batches
from vizsla.neural.text_options import Layer, TokenizerOptions, known
from vizsla.neural.text_reader import TOKENS, TextReader, read_tensors


class TextEncoder(TextReader):
    """An encoder in a folder: its tokenizer, its states, what pools them, and the layers after that.

    It runs in 32-bit floats; on a GPU products are made in 16 bits, unless `exact`.
    """

    def __init__(
        self,
        folder: Path,
        pooling: Sequence[str],
        layers: Sequence[Layer] = (),
        *,
        base: str = "",
        lowercase: bool = False,
        skip_prompt_tokens: bool = False,
        trusted: bool = False,
        exact: bool = False,
    ) -> None:
        super().__init__(folder, base=base, lowercase=lowercase, trusted=trusted, exact=exact)
        self.pooling, self.skip_prompt_tokens = tuple(pooling), skip_prompt_tokens
        arrays = self.open_model(folder / base, trusted=trusted)
        self.layers = nn.Sequential(*(_layer(folder, layer, arrays) for layer in layers)).to(self.device).eval()
        try:
            self.layers(torch.zeros(1, self.model.config.hidden_size * len(self.pooling), device=self.device))
        except RuntimeError:
            raise InputError("a layer after the encoder does not fit what comes before", file=str(folder)) from None

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray]:
        """[texts, width] the vectors, and [texts] which have a known token; others have no vector."""
        has_token = known(texts, lambda some: self.tokens(some, False), self.tokenizer.unk_token_id)
        rows = self.ids([text for text, can in zip(texts, has_token.tolist(), strict=True) if can], options)
        skipped = self._prompt_tokens(options) if self.skip_prompt_tokens and options.prompt else 0
        order = batches(np.array([len(row) for row in rows], np.int64), TOKENS[self.device.type])
        pooled = [self._vectors([rows[i] for i in chosen.tolist()], options, skipped).float().cpu() for chosen in order]
        if not pooled:
            return np.zeros((0, 0), np.float32), has_token
        sorted_vectors = torch.cat(pooled).numpy()
        vectors = np.empty_like(sorted_vectors)
        vectors[np.concatenate(order)] = sorted_vectors
        return vectors, has_token

    def _prompt_tokens(self, options: TokenizerOptions) -> int:
        """How many tokens a prompt takes, with those before it and without those that end a text."""
        (row,) = self.tokens([options.prompt], options.special_tokens)
        special = {self.tokenizer.sep_token_id, self.tokenizer.eos_token_id} if options.special_tokens else set()
        return len(row) - (len(row) > 0 and row[-1] in special)

    def _vectors(self, rows: list[list[int]], options: TokenizerOptions, skipped: int) -> Tensor:
        ids, mask = self.padded(rows)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if options.token_types:
            ends = (ids == self.tokenizer.sep_token_id).long()
            inputs["token_type_ids"] = ((ends.cumsum(1) - ends) > 0).long() * mask
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.short):
            states = self.model(**inputs).last_hidden_state.float()
        counted = mask & (torch.arange(ids.shape[1], device=self.device) >= skipped)
        pooled: Tensor = self.layers(torch.cat([pool(states, counted, how) for how in self.pooling], 1))
        return pooled


def pool(states: Tensor, counted: Tensor, how: str) -> Tensor:
    """[texts, hidden] from [texts, tokens, hidden] and which tokens count."""
    places = torch.arange(states.shape[1], device=states.device)
    if how in ("cls", "lasttoken"):
        outside = states.shape[1] if how == "cls" else -1
        at = torch.where(counted, places, outside)
        chosen = at.amin(1) if how == "cls" else at.amax(1)
        return states[torch.arange(len(states), device=states.device), chosen.clamp(0, states.shape[1] - 1)]
    if how == "max":
        return states.masked_fill(~counted[:, :, None], -torch.inf).amax(1)
    weights = counted * (places + 1) if how == "weightedmean" else counted
    weights = weights[:, :, None].to(states.dtype)
    sums, counts = (states * weights).sum(1), weights.sum(1).clamp(min=1e-9)
    return sums / (counts.sqrt() if how == "mean_sqrt_len" else counts)


class _Unit(nn.Module):
    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=1)


def _layer(folder: Path, layer: Layer, arrays: dict[str, Tensor]) -> nn.Module:
    if layer.kind == "unit":
        return _Unit()
    place = folder / layer.place
    own = read_tensors(place) if layer.place else arrays
    parameters = {}
    for what in ("weight", "bias"):
        ending = f"{layer.name}.{what}"
        names = [name for name in own if name == ending or name.endswith(f".{ending}")]
        parameters[what] = own[names[0]].float() if names else None
    weight, bias = parameters["weight"], parameters["bias"]
    if weight is None:
        raise InputError(f"the weights of a layer are missing ({layer.name}.weight)", file=str(place))
    if not all(torch.isfinite(values).all() for values in parameters.values() if values is not None):
        raise InputError(f"some weights are no numbers (in {layer.name})", file=str(place))
    module: nn.Module
    if layer.kind == "norm":
        module = nn.LayerNorm(len(weight), bias=bias is not None)
    else:
        module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    module.load_state_dict({name: values for name, values in parameters.items() if values is not None})
    return nn.Sequential(module, getattr(nn, layer.activation)())


def layer_width(folder: Path, layer: Layer) -> Layer:
    """A layer of the encoder's own file with its width, which only the file knows."""
    ending = f"{layer.name}.weight"
    shape = next((v.shape for n, v in read_tensors(folder).items() if n == ending or n.endswith(f".{ending}")), None)
    if shape is None:
        raise InputError(f"the weights of a layer are missing ({ending})", file=str(folder))
    return replace(layer, width=shape[0])
