"""SPAR: a dense model and one that imitates a lexical model, as a single dense model with a single set of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import DescriptionError, described
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.dense import Dense
from vizsla.models.embedding import DenseComponent
from vizsla.models.model import COMPONENTS, Component, Fields, Model, component_from
from vizsla.numbers import number_text

COMBINATIONS = ("concat", "sum")
LEAST_MU, MOST_MU = 1e-30, 1e30  # vectors have 32 bits a number


@dataclass(frozen=True)
class Spar(DenseComponent):
    """The vectors of two dense models behind one another, or added up.

    `mu` is the weight of the second, on the side of queries alone, so that it can be another one whenever the index is
    asked. Vectors behind one another give exactly the weighted sum of both scores; added up they need half the room
    where both are as wide, and every query also meets the other model's half of each document.
    """

    first: DenseComponent
    second: DenseComponent
    mu: float = 1.0
    combine: str = "concat"
    namespace: str = "spar"
    name: str = "spar"

    kind: ClassVar[str] = "spar"

    def __post_init__(self) -> None:
        if self.combine not in COMBINATIONS:
            raise UnknownNameError("combination", self.combine, COMBINATIONS)
        if not LEAST_MU <= self.mu <= MOST_MU:
            raise VizslaError(
                f"mu, the weight of the second model, must be a number above 0, not {number_text(self.mu)}; it goes "
                f"from {LEAST_MU:g} to {MOST_MU:g}"
            )
        widths = self.first.dimensions, self.second.dimensions
        if self.combine == "sum" and widths[0] != widths[1]:
            raise VizslaError(
                f"vectors of {widths[0]} and of {widths[1]} numbers cannot be added up; put them behind one another: "
                "combine=concat"
            )

    @property
    def needs_corpus_statistics(self) -> bool:
        return self.first.needs_corpus_statistics or self.second.needs_corpus_statistics

    def fit(self, documents: Sequence[Fields]) -> Spar:
        return self._with(self.first.fit(documents), self.second.fit(documents))

    def with_frozen_statistics(self, held: Component) -> Spar:
        assert isinstance(held, Spar)
        return self._with(
            self.first.with_frozen_statistics(held.first), self.second.with_frozen_statistics(held.second)
        )

    def _with(self, first: Model, second: Model) -> Spar:
        assert isinstance(first, DenseComponent)
        assert isinstance(second, DenseComponent)
        return replace(self, first=first, second=second)

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys((*self.first.fields, *self.second.fields)))

    @property
    def batch_size(self) -> int:
        return min(self.first.batch_size, self.second.batch_size)

    @property
    def dimensions(self) -> int:
        return self.first.dimensions + (self.second.dimensions if self.combine == "concat" else 0)

    @property
    def stretches(self) -> list[tuple[str, slice]]:
        if self.combine == "sum":
            return super().stretches
        width = self.first.dimensions
        return [(self.first.name, slice(0, width)), (self.second.name, slice(width, self.dimensions))]

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.combine, self.first.index_signature, self.second.index_signature

    def encoded_documents(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self._combined(self.first.encoded_documents(documents), self.second.encoded_documents(documents), 1.0)

    def encoded_queries(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._combined(self.first.encoded_queries(texts), self.second.encoded_queries(texts), self.mu)

    def _combined(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], weight: float
    ) -> tuple[np.ndarray, np.ndarray]:
        other = np.float32(weight) * second[0]
        made = first[0] + other if self.combine == "sum" else np.concatenate([first[0], other], 1)
        return made, first[1] | second[1]

    def options(self, folder: Path) -> dict[str, Any]:
        both = {"first": self.first, "second": self.second}
        return vars(self) | {name: {"kind": m.kind, **m.options(folder)} for name, m in both.items()}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Spar:
        told = described(cls, options, first="dict", second="dict")
        both = {name: component_from({"kind": Dense.kind, **told[name]}, folder) for name in ("first", "second")}
        if not all(isinstance(model, DenseComponent) for model in both.values()):
            raise DescriptionError("SPAR is made of two dense models")
        return cls(**{**told, **both})


COMPONENTS[Spar.kind] = Spar
