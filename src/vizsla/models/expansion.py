"""BM25 asked in other words: the same postings and weights of documents, other terms in the query.

bm25.expand(augmenter)    terms a network adds, and weights for those of the query
bm25.expand(RM3())        terms of the documents that are found first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from vizsla.described import described
from vizsla.engine import Weighting
from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25
from vizsla.models.model import COMPONENTS, Component, Fields, Model, Part, Reader, Sum
from vizsla.models.statistics import Statistics
from vizsla.text import Token


class SearchContext(Protocol):
    """What a query can be made anew from: the documents it is asked of, those that meet its filter."""

    def best(self, component: Component, asked: Sequence[Mapping[str, float]], k: int) -> list[dict[int, float]]:
        """For queries given as weighted terms the numbers of the best documents and their scores."""

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of documents by their numbers."""

    def statistics_of(self, component: Component) -> Statistics:
        """How common the terms of a component are."""


class QueryExpander(Protocol):
    """Makes the weighted terms of queries, before rarity is multiplied in."""

    kind: ClassVar[str]
    reads_texts: ClassVar[bool]
    """Whether it needs the texts of documents."""

    @property
    def name(self) -> str: ...

    def problem(self, bm25: BM25) -> str | None:
        """Why it cannot ask an index of this BM25, as the rest of a sentence; None if it can."""

    def terms_of(
        self, texts: Sequence[str], bm25: BM25, collection: SearchContext | None
    ) -> list[dict[str, float]]: ...

    def options(self, folder: Path) -> dict[str, Any]: ...


QUERY_EXPANDERS: dict[str, Any] = {}
"""The kinds of query encoders a model can be opened with, by name; each has `from_options`."""


@dataclass(frozen=True)
class ExpandedBM25(Component):
    """BM25 whose queries another encoder makes; an index of the BM25 can be asked with it as it is."""

    queries: QueryExpander
    bm25: BM25 = field(default_factory=BM25)
    namespace: str = "words"
    name: str = ""

    kind: ClassVar[str] = "asked"

    def __post_init__(self) -> None:
        problem = self.queries.problem(self.bm25)
        if problem is not None:
            raise VizslaError(f"{self.queries.name} {problem}")
        if not self.name:
            object.__setattr__(self, "name", f"{self.bm25.name} with {self.queries.name}")

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bm25.fields

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.bm25.index_signature

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return self.bm25.field_problem(content)

    def reader(self) -> Reader:
        return replace(self.bm25, namespace=self.namespace).reader()

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return self.bm25.length_codes(lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        return self.bm25.weighting(statistics)

    def tokens(self, text: str) -> list[Token]:
        return self.bm25.tokens(text)

    def query_terms(self, text: str) -> dict[str, float]:
        return self.query_terms_of([text])[0]

    def query_terms_of(self, texts: Sequence[str]) -> list[dict[str, float]]:
        return self.queries.terms_of(texts, self.bm25, None)

    def query_terms_in(self, texts: Sequence[str], collection: SearchContext) -> list[dict[str, float]]:
        return self.queries.terms_of(texts, self.bm25, collection)

    def own_terms(self, text: str) -> dict[str, float]:
        return self.bm25.query_terms(text)

    @property
    def reads_texts(self) -> bool:
        return self.queries.reads_texts

    def query_weights_of(self, asked: Sequence[Mapping[str, float]], statistics: Statistics) -> list[dict[str, float]]:
        """The final weights; terms that were dropped are not looked for."""
        return super().query_weights_of([{t: w for t, w in terms.items() if w} for terms in asked], statistics)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return self.bm25.term_factors(frequencies, documents)

    def count(self, documents: Sequence[Fields]) -> Statistics:
        return self.bm25.count(documents)

    def options(self, folder: Path) -> dict[str, Any]:
        asked = {"kind": self.queries.kind, **self.queries.options(folder)}
        return {"queries": asked, "bm25": self.bm25.options(folder), "namespace": self.namespace, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> ExpandedBM25:
        told = described(cls, options, queries="dict", bm25="dict")
        asked = dict(told["queries"])
        kind = str(asked.pop("kind", None))
        if kind not in QUERY_EXPANDERS:
            raise VizslaError(f"this version knows no query encoder of the kind {kind!r}; a newer one may")
        queries = QUERY_EXPANDERS[kind].from_options(asked, folder)
        return cls(**{**told, "queries": queries, "bm25": BM25.from_options(told["bm25"], folder)})


COMPONENTS[ExpandedBM25.kind] = ExpandedBM25


def with_expansion(model: Model, queries: QueryExpander) -> Model:
    """A model whose BM25 is asked with other queries; the other parts of a sum stay as they are."""
    parts, problems = [], []
    for part in model.parts:
        bm25 = part.component
        if isinstance(bm25, ExpandedBM25):
            bm25 = replace(bm25.bm25, namespace=bm25.namespace)
        if isinstance(bm25, BM25):
            problem = queries.problem(bm25)
            if problem is None:
                parts.append(Part(part.weight, bm25.expand(queries)))
                continue
            problems.append(problem)
        parts.append(part)
    if not any(isinstance(p.component, ExpandedBM25) and p.component.queries is queries for p in parts):
        why = problems[0] if problems else f"asks BM25, and {model.name} has none"
        raise VizslaError(f"{queries.name} {why}")
    if len(parts) == 1 and parts[0].weight == 1.0:
        return parts[0].component
    return Sum(tuple(parts))
