"""A dense model without a network, for tests of how its vectors are kept and searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.models import DenseComponent, Fields, field_text

WIDTH = 8


@dataclass(frozen=True)
class Scattered(DenseComponent):
    """Each word has a vector at random; a text has the sum of its words'. `nan` is a word whose numbers are none."""

    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "scattered"
    name: str = "scattered"

    kind: ClassVar[str] = "scattered"

    @property
    def dimensions(self) -> int:
        return WIDTH

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.fields

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        made = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in zip(made, texts, strict=True):
            for word in text.lower().split():
                row += _vector(word)
        return made, np.array([bool(text.strip()) for text in texts])

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002
        return {"namespace": self.namespace, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Scattered:  # noqa: ARG003
        return cls(**options)


@cache
def _vector(word: str) -> np.ndarray:
    if word == "nan":
        return np.full(WIDTH, np.nan)
    return np.random.default_rng(list(word.encode())).normal(size=WIDTH)
