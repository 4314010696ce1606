"""A dense model without a network, for tests of how its vectors are kept and searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.models.dense import Dense
from vizsla.models.model import COMPONENTS

WIDTH = 8


@dataclass(frozen=True)
class Scattered(Dense):
    """Each word has a vector at random; a text has the sum of its words'. `nan` is a word whose numbers are none."""

    network: Any = None
    namespace: str = "scattered"
    name: str = "scattered"

    kind: ClassVar[str] = "scattered"

    def __post_init__(self) -> None:
        """There is no network to check."""

    @property
    def together(self) -> int:
        return 2000

    @property
    def dimensions(self) -> int:
        return WIDTH

    def _encoded(self, texts: Sequence[str], prompt: str, network: Any) -> tuple[np.ndarray, np.ndarray]:  # noqa: ARG002
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


COMPONENTS[Scattered.kind] = Scattered
