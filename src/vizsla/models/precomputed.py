"""Precomputed vectors: learned sparse, quantised or exported, made by another tool."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vizsla.errors import VizslaError, kind_of
from vizsla.models.components import SearchContext, SparseComponent, SparseDocuments, TermWeightEncoder
from vizsla.models.fields import Fields
from vizsla.models.model import MODELS
from vizsla.plain_data import parse_json
from vizsla.spec import options_of
from vizsla.text import Analyzer, Token
from vizsla.vectors import Quantiser

MAX_WEIGHT = (1 << 32) - 1
MIN_WEIGHT = 1e-30  # anything smaller counts as 0: a 32-bit float cannot tell it from 0


@dataclass(frozen=True)
class PrecomputedVectors(SparseComponent):
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
    expression_name: ClassVar[str] = "vectors"
    expression_options: ClassVar[tuple[str, ...]] = ("quantiser", "fields", "namespace")

    def __post_init__(self) -> None:
        if self.quantiser and not Quantiser.parse(self.quantiser).fitted:
            raise VizslaError(f"{self.quantiser!r} has to be fitted first; give its range, as in minmax:8:0:5.5")

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        vector = content.get(self.fields[0])
        if vector is None:
            return None
        if not isinstance(vector, Mapping):
            return f"has a field {self.fields[0]!r} that is not a vector, but {kind_of(vector)}"
        for term, weight in vector.items():
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if number and MAX_WEIGHT < weight < math.inf:
                return f"has a weight for {term!r} above {MAX_WEIGHT:,}, the highest there can be"
            if not number or not 0 <= weight <= MAX_WEIGHT:
                return f"has a weight for {term!r} that is not a number of 0 or more, but {kind_of(weight)}"
        return None

    def document_encoder(self) -> TermWeightEncoder:
        return _VectorEncoder(self)

    def tokens(self, text: str) -> list[Token]:
        return Analyzer.parse("whitespace").tokens(text)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        return [_query_terms(text) for text in texts]


def _query_terms(text: str) -> dict[str, float]:
    if not text.lstrip().startswith("{"):
        return {term: float(n) for term, n in Counter(text.split()).items()}
    try:
        terms = {str(term): float(weight) for term, weight in parse_json(text).items()}
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise VizslaError('a query is {"term": weight, ...} or terms separated by blanks') from None
    if not all(map(math.isfinite, terms.values())):
        raise VizslaError("the weights of a query must be finite numbers")
    return terms


class _VectorEncoder(TermWeightEncoder):
    def __init__(self, model: PrecomputedVectors) -> None:
        super().__init__(model.namespace, self._vector)
        self._field = model.fields[0]
        self._quantiser = Quantiser.parse(model.quantiser) if model.quantiser else None

    def _vector(self, document: Fields) -> dict[str, float]:
        vector = {} if isinstance(document, str) else document.get(self._field) or {}
        return {term: weight for term, weight in vector.items() if weight >= MIN_WEIGHT}

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        vectors, lengths = super().encode(documents)
        return SparseDocuments(vectors if self._quantiser is None else self._quantiser.quantise_rows(vectors), lengths)


MODELS.register(
    "vectors",
    help="Precomputed sparse vectors in a field of the documents.",
    options=options_of(
        PrecomputedVectors,
        quantiser="how weights are stored, as in range:5:256:ceil or minmax:8:0:5.5",
        fields="the field with the vector",
        namespace="keeps its terms apart from those of other parts of a sum",
    ),
)(PrecomputedVectors)
