"""Texts to weights of terms by any masked-language model of transformers' with its own tokenizer: SPLADE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vizsla.neural.heads.splade import pooled_logits
from vizsla.neural.session import batches
from vizsla.neural.text_options import TokenizerOptions, known
from vizsla.neural.text_reader import TOKENS, TextReader


class SparseTextEncoder(TextReader):
    """A masked-language model in a folder, its tokenizer, and how logits become weights: see `SPLADE_POOLINGS`."""

    def __init__(
        self, folder: Path, pooling: Sequence[str], *, base: str = "", trusted: bool = False, exact: bool = False
    ) -> None:
        super().__init__(folder, base=base, trusted=trusted, exact=exact)
        self.open_model(folder / base, trusted=trusted, masked_language=True)
        self.pooling = tuple(pooling)
        names = self.tokenizer.convert_ids_to_tokens(range(min(len(self.tokenizer), self.model.config.vocab_size)))
        rest = range(len(names), self.model.config.vocab_size)  # rows of the table that no token has
        self.terms: list[str] = [*names, *(f"[row {number}]" for number in rest)]

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Terms, their weights, and where each text's begin; texts without a known token have none."""
        has_token = known(texts, lambda some: self.tokens(some, False), self.tokenizer.unk_token_id)
        places = np.flatnonzero(has_token).tolist()
        rows = self.ids([texts[place] for place in places], options)
        terms, weights = ([np.zeros(0, kind)] * len(texts) for kind in (np.int64, np.float32))
        for chosen in batches(np.array([len(row) for row in rows], np.int64), TOKENS[self.device.type] // 4):
            vectors = self._vectors([rows[i] for i in chosen.tolist()]).float().cpu().numpy()
            for row, vector in zip(chosen.tolist(), vectors, strict=True):
                terms[places[row]] = np.flatnonzero(vector)
                weights[places[row]] = vector[terms[places[row]]]
        starts = np.cumsum([0, *map(len, terms)], dtype=np.int64)
        empty = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return np.concatenate([empty[0], *terms]), np.concatenate([empty[1], *weights]), starts

    def _vectors(self, rows: list[list[int]]) -> Tensor:
        ids, mask = self.padded(rows)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.short):
            logits = self.model(input_ids=ids, attention_mask=mask.long()).logits.float()
        return pooled_logits(logits * mask[:, :, None], self.pooling)
