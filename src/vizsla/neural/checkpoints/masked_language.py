"""A masked-language model of transformers' in its folder, as a SPLADE holds it: it reads texts by its own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vizsla.neural.checkpoints.once import once
from vizsla.neural.checkpoints.transformer import Transformer, brings_code, need_torch
from vizsla.neural.text_options import SPLADE_POOLINGS, TokenizerOptions
from vizsla.plain_data import read_object


@dataclass(frozen=True)
class MaskedLanguage(Transformer):
    """Texts to weights of terms by any masked-language model. `width`: how many terms there are."""

    kind: ClassVar[str] = "splade"
    poolings: ClassVar[tuple[str, ...]] = SPLADE_POOLINGS

    @once
    def running(self) -> Any:
        """The model, opened by torch."""
        place = self.folder / self.base
        need_torch(read_object(place / "config.json").get("model_type"), self.folder)
        trusted = brings_code(place)
        from vizsla.neural.sparse_texts import SparseTextEncoder

        return SparseTextEncoder(self.folder, self.pooling, base=self.base, trusted=trusted, exact=self.exact)

    def term_weights(
        self, texts: Sequence[str], options: TokenizerOptions
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, terms and weights of texts behind one another."""
        terms, weights, pointers = self.running.encode(texts, options)
        return pointers, terms, weights

    @property
    def terms(self) -> list[str]:
        """What the terms are called, by number."""
        names: list[str] = self.running.terms
        return names

    def token_ids(self, texts: Sequence[str], length: int) -> list[list[int]]:
        """The tokens of texts without special ones, at most so many of each."""
        ids: list[list[int]] = self.running.tokens(texts, False, length)
        return ids
