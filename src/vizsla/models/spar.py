"""SPAR: a dense model and one that imitates a lexical model, as a single dense model with a single set of vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.components import DenseComponent
from vizsla.models.dense import Dense
from vizsla.models.expressions import parse_model
from vizsla.models.fields import Fields
from vizsla.models.model import MODELS, Component, Model, component_from
from vizsla.numbers import number_text
from vizsla.plain_data import DescriptionError, fields_from_data
from vizsla.spec import Option

COMBINATIONS = ("concat", "sum")
LEAST_MU, MOST_MU = 1e-30, 1e30  # within the range of float32


@dataclass(frozen=True)
class Spar(DenseComponent):
    """The vectors of two dense models, concatenated or added.

    `mu` is the weight of the second model. It is applied to queries only, so a search may use another one.
    Concatenated vectors give exactly the weighted sum of both scores. Added vectors have half the dimensions, but their
    product also contains cross terms of one model's query with the other model's document.
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
                f"vectors of {widths[0]} and of {widths[1]} numbers cannot be added; concatenate them: combine=concat"
            )

    def vocabulary(self) -> Iterable[str]:
        return self.first.vocabulary() or self.second.vocabulary()

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
    def vector_parts(self) -> list[tuple[str, slice]]:
        if self.combine == "sum":
            return super().vector_parts
        width = self.first.dimensions
        return [(self.first.name, slice(0, width)), (self.second.name, slice(width, self.dimensions))]

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.combine, self.first.index_signature, self.second.index_signature

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self._combined(
            self.first.document_embeddings(documents), self.second.document_embeddings(documents), 1.0
        )

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._combined(self.first.query_embeddings(texts), self.second.query_embeddings(texts), self.mu)

    def _combined(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], weight: float
    ) -> tuple[np.ndarray, np.ndarray]:
        other = np.float32(weight) * second[0]
        vectors = first[0] + other if self.combine == "sum" else np.concatenate([first[0], other], 1)
        return vectors, first[1] | second[1]

    def options(self, folder: Path) -> dict[str, Any]:
        both = {"first": self.first, "second": self.second}
        return vars(self) | {name: {"kind": m.kind, **m.options(folder)} for name, m in both.items()}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Spar:
        values = fields_from_data(cls, options, first="dict", second="dict")
        both = {name: component_from({"kind": Dense.kind, **values[name]}, folder) for name in ("first", "second")}
        if not all(isinstance(model, DenseComponent) for model in both.values()):
            raise DescriptionError("SPAR is made of two dense models")
        return cls(**{**values, **both})


@MODELS.register(
    "spar",
    help="SPAR: a dense model and one that imitates a lexical model, as one dense model.",
    options=(
        Option("dense", "str", "minilm", "the dense model, by name, folder or expression"),
        Option("lexical", "str", "", "the model that imitates a lexical one, as in sketch"),
        Option("mu", "float", 1.0, "weight of the second model"),
        Option("combine", "str", "concat", "concat, or sum for models of the same size"),
        Option("namespace", "str", "spar", "keeps its vectors apart from those of other parts of a sum"),
    ),
    needs=("onnxruntime|torch",),
)
def spar(dense: str = "minilm", lexical: str = "", **options: Any) -> Spar:
    if not lexical:
        raise VizslaError(
            "name the model that imitates a lexical one, as in spar(dense=minilm, lexical=sketch, mu=0.025), or train "
            "one with: vizsla train lambda --corpus FILE -o DIR"
        )
    first, second = parse_model(dense), parse_model(lexical)
    for model, expression in ((first, dense), (second, lexical)):
        if not isinstance(model, DenseComponent):
            raise VizslaError(
                f"{expression} is not a dense model, and SPAR needs two; sketch turns bm25 into a dense model"
            )
    assert isinstance(first, DenseComponent)
    assert isinstance(second, DenseComponent)
    return Spar(first, second, **options)
