"""A dense model, one with token vectors and one that matches equal tokens, without a network: vectors in an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla import DenseComponent
from vizsla.models import Fields, TokenComponent, TokenMatchComponent, field_text
from vizsla.vectors import MatchTexts

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


@dataclass(frozen=True)
class ScatteredTokens(TokenComponent):
    """Each word has the numbers 0 to 7 in an order of its own: it matches itself best, exactly so in 16 bits."""

    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "scattered-tokens"
    name: str = "scattered-tokens"

    kind: ClassVar[str] = "scattered-tokens"

    @property
    def dimensions(self) -> int:
        return WIDTH

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.fields

    def document_embeddings(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> list[np.ndarray]:
        rows = [[_whole_vector(word) for word in text.lower().split()] for text in texts]
        return [np.array(row, np.float32).reshape(-1, WIDTH) for row in rows]

    def document_tokens(self, document: Fields) -> list[str]:
        return field_text(document, self.fields).lower().split()

    def query_tokens(self, text: str) -> list[str]:
        return text.lower().split()

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002
        return {"namespace": self.namespace, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> ScatteredTokens:  # noqa: ARG003
        return cls(**options)


@dataclass(frozen=True)
class ScatteredMatches(TokenMatchComponent):
    """As COIL-full: each word is a token with numbers of its own, and the whole text has the sum of its words'."""

    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "scattered-matches"
    name: str = "scattered-matches"

    kind: ClassVar[str] = "scattered-matches"

    @property
    def dimensions(self) -> int:
        return WIDTH

    @property
    def cls_dimensions(self) -> int:
        return WIDTH

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.fields

    def document_embeddings(self, documents: Sequence[Fields]) -> MatchTexts:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> MatchTexts:
        words = [text.lower().split() for text in texts]
        terms = [np.array([int.from_bytes(w.encode()[-3:], "big") for w in row], np.int64) for row in words]
        rows = [np.array([_whole_vector(w) for w in row], np.float32).reshape(-1, WIDTH) for row in words]
        return MatchTexts(terms, rows, np.array([row.sum(axis=0) for row in rows]).reshape(len(texts), WIDTH))

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002
        return {"namespace": self.namespace, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> ScatteredMatches:  # noqa: ARG003
        return cls(**options)


@cache
def _whole_vector(word: str) -> np.ndarray:
    return np.random.default_rng(list(word.encode())).permutation(WIDTH)


@cache
def _vector(word: str) -> np.ndarray:
    if word == "nan":
        return np.full(WIDTH, np.nan)
    return np.random.default_rng(list(word.encode())).normal(size=WIDTH)
