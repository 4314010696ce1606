"""A model that finds every document, as the standard tests of vector stores expect: counts of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import ClassVar

import numpy as np

from vizsla import DenseComponent
from vizsla.models import MODELS, Fields, field_text


@MODELS.register("letters", help="How often each letter occurs.")
@dataclass(frozen=True)
class Letters(DenseComponent):
    """Counts of letters, as vectors of length 1; a text is most like itself."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "letters"
    name: str = "letters"

    kind: ClassVar[str] = "toy-letters"

    @property
    def dimensions(self) -> int:
        return len(ascii_lowercase)

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.array([[text.count(letter) for letter in ascii_lowercase] for text in texts], np.float32)
        rows = rows.reshape(-1, self.dimensions)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.maximum(norms, 1e-9), norms[:, 0] > 0
