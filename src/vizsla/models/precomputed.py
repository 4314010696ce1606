"""Vectors that were made elsewhere: learned-sparse, quantised, or exported."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import described
from vizsla.engine import Weighting
from vizsla.errors import VizslaError, kind_of
from vizsla.models.model import COMPONENTS, Component, Fields, Reader, Stored, counted
from vizsla.models.statistics import Statistics
from vizsla.text import Analyzer, Token
from vizsla.vectors import Quantiser, SparseVectors, Vocabulary

MOST_WEIGHT = (1 << 32) - 1
LEAST_WEIGHT = 1e-30  # less counts as 0: a 32-bit float could not tell it from that


@dataclass(frozen=True)
class PrecomputedVectors(Component):
    """Documents bring their vectors in the field `vector`: {"term": weight, ...}, as in Anserini's collections.

    A query is either a JSON object of weights or terms separated by blanks, each counted; no idf, no lengths.
    Without a quantiser weights are kept as 32-bit floats (whole numbers in one byte where they fit).

    >>> model = PrecomputedVectors()
    >>> documents = [{"vector": {"dog": 2.5, "bark": 1}}, {"vector": {"cat": 3}}]
    >>> queries = model.encode_queries(["dog dog bark", '{"cat": 0.5}'], model.statistics(documents))
    >>> queries.dot(model.encode_documents(documents)).tolist()
    [[6.0, 0.0], [0.0, 1.5]]
    """

    quantiser: str = ""
    namespace: str = "vectors"
    fields: tuple[str, ...] = ("vector",)
    name: str = "vectors"

    kind: ClassVar[str] = "vectors"

    def __post_init__(self) -> None:
        if self.quantiser and not Quantiser.parse(self.quantiser).fitted:
            raise VizslaError(f"{self.quantiser!r} has to be fitted first; give its range, as in minmax:8:0:5.5")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.quantiser, self.fields

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        vector = content.get(self.fields[0])
        if vector is None:
            return None
        if not isinstance(vector, Mapping):
            return f"has a field {self.fields[0]!r} that is no vector, but {kind_of(vector)}"
        for term, weight in vector.items():
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if number and MOST_WEIGHT < weight < math.inf:
                return f"has a weight for {term!r} above {MOST_WEIGHT:,}, the highest there can be"
            if not number or not 0 <= weight <= MOST_WEIGHT:
                return f"has a weight for {term!r} that is not a number of 0 or more, but {kind_of(weight)}"
        return None

    def reader(self) -> Reader:
        return _VectorReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting()

    def tokens(self, text: str) -> list[Token]:
        return Analyzer.parse("whitespace").tokens(text)

    def query_terms(self, text: str) -> dict[str, float]:
        if not text.lstrip().startswith("{"):
            return {term: float(n) for term, n in Counter(text.split()).items()}
        try:
            weights = json.loads(text)
            terms = {str(term): float(weight) for term, weight in weights.items()}
        except (ValueError, TypeError, AttributeError, OverflowError):
            raise VizslaError('a query is {"term": weight, ...} or terms separated by blanks') from None
        if not all(map(math.isfinite, terms.values())):
            raise VizslaError("the weights of a query must be finite numbers")
        return terms

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002 (all are worth 1)
        return np.ones(len(frequencies))

    def count(self, documents: Sequence[Fields]) -> Statistics:
        return counted(self.reader().read(documents))

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 (it needs no files)
        return dict(vars(self))

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> PrecomputedVectors:  # noqa: ARG003
        return cls(**described(cls, options))


COMPONENTS[PrecomputedVectors.kind] = PrecomputedVectors


class _VectorReader(Reader):
    def __init__(self, model: PrecomputedVectors) -> None:
        self._model = model
        self._quantiser = Quantiser.parse(model.quantiser) if model.quantiser else None
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []

    def read(self, documents: Sequence[Fields]) -> Stored:
        pointers, indices, weights = [0], [], []
        for document in documents:
            vector = {} if isinstance(document, str) else document.get(self._model.fields[0]) or {}
            for term, weight in vector.items():
                if weight >= LEAST_WEIGHT:
                    indices.append(self._number(term))
                    weights.append(weight)
            pointers.append(len(indices))
        vocabulary = Vocabulary(self._model.namespace, self._terms)
        values = np.array(weights, np.float64)
        rows = SparseVectors(vocabulary, np.array(pointers), np.array(indices, np.int64), values)
        if self._quantiser is not None:
            rows = self._quantiser.quantise_rows(rows)
        elif all(isinstance(w, int) for w in weights):
            rows = SparseVectors(vocabulary, rows.pointers, rows.indices, values.astype(np.int64))
        return Stored(rows, np.diff(rows.pointers))

    def _number(self, term: str) -> int:
        number = self._numbers.setdefault(term, len(self._terms))
        if number == len(self._terms):
            self._terms.append(term)
        return number
