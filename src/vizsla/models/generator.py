"""Text generators: a text in, texts out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vizsla.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    texts: int = 40
    top_k: int = 10
    top_p: float = 1.0
    temperature: float = 1.0
    max_tokens: int = 64
    seed: int = 0


class TextGenerator(ABC):
    """Writes texts about a text."""

    task: str
    name: str
    digest: str
    length: int

    @abstractmethod
    def generate(
        self, texts: Sequence[str], sampling: Sampling = Sampling(), keys: Sequence[str] | None = None
    ) -> list[list[str]]:
        """`sampling.texts` texts for each text."""

    @abstractmethod
    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        """How many tokens each text has."""


def open_generator(which: str | Path, runtime: str | None = None) -> TextGenerator:  # noqa: ARG001
    """The generator in a folder."""
    raise InputError("there is no generator here", file=str(which))
