"""A dense model of one's own: three numbers about the words of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vizsla import DenseComponent
from vizsla.models import MODELS, Fields, field_text


@MODELS.register("lengths", help="Words, letters and vowels of a text.")
@dataclass(frozen=True)
class Lengths(DenseComponent):
    """Three numbers: words, letters, vowels."""

    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "lengths"
    name: str = "lengths"

    kind: ClassVar[str] = "toy-lengths"

    @property
    def dimensions(self) -> int:
        return 3

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = [[len(t.split()), sum(map(str.isalpha, t)), sum(c in "aeiou" for c in t)] for t in texts]
        return np.array(rows, np.float32).reshape(-1, 3), np.array([bool(t.split()) for t in texts])
