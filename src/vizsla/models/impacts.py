"""BM25 as the BM26 paper adds it: whole numbers of 8 bits, rarity included, with statistics frozen once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import fields_from_data
from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25
from vizsla.models.context import SearchContext
from vizsla.models.fields import Fields
from vizsla.models.sparse_component import SparseComponent, SparseDocumentEncoder, SparseDocuments
from vizsla.models.statistics import CountedStatistics, load_statistics, save_statistics
from vizsla.text import Token
from vizsla.vectors import Quantiser, SparseVectors, Vocabulary

QUERY_WEIGHT = 256
"""Of a word in a query. The paper does not say; it says that the weights of both systems lie in (0, 256)."""


@dataclass(frozen=True)
class Impacts(SparseComponent):
    """BM25's weights, idf times saturated count, quantised to 1 to 256.

    Statistics and range are those of the documents it was fitted on; documents added later are weighted by the same.
    """

    bm25: BM25 = field(default_factory=BM25)
    frozen: CountedStatistics | None = None
    quantiser: str = "minmax:8"
    namespace: str = "impacts"
    name: str = "impacts"

    kind: ClassVar[str] = "impacts"

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bm25.fields

    @property
    def needs_corpus_statistics(self) -> bool:
        return self.frozen is None

    def fit(self, documents: Sequence[Fields]) -> Impacts:
        """The model with the statistics and the range of these documents, which must be the whole corpus."""
        frozen = replace(self, frozen=self.bm25.count(documents))
        values = frozen.weights(self.bm25.document_encoder().encode(documents)).values
        if not len(values):
            raise VizslaError("the documents have no words, so impacts cannot be fitted to them")
        return replace(frozen, quantiser=str(Quantiser.parse(self.quantiser).fit(values)))

    def weights(self, counted: SparseDocuments) -> SparseVectors:
        """The weights of counted documents before they are quantised."""
        vectors, lengths = counted
        statistics = self._statistics
        codes = np.repeat(self.bm25.length_codes(np.minimum(lengths, statistics.longest)), np.diff(vectors.pointers))
        names = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
        rarity = self.bm25.term_factors(statistics.document_frequencies(names), statistics.documents)
        values = self.bm25.weighting(statistics).weigh(vectors.values, codes) * rarity[vectors.indices]
        return SparseVectors(Vocabulary(self.namespace, names), vectors.pointers, vectors.indices, values)

    @property
    def _statistics(self) -> CountedStatistics:
        if self.frozen is None:
            raise VizslaError(f"{self.name} needs the statistics of all documents; call fit() with them first")
        return self.frozen

    def count(self, documents: Sequence[Fields]) -> CountedStatistics:
        return self.bm25.count(documents)

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, replace(self.bm25, namespace=""), self.quantiser

    def document_encoder(self) -> SparseDocumentEncoder:
        return _ImpactEncoder(self)

    def tokens(self, text: str) -> list[Token]:
        return self.bm25.tokens(text)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        return [_scaled(counts) for counts in self.bm25.query_terms(texts)]

    def options(self, folder: Path) -> dict[str, Any]:
        kept = None if self.frozen is None else save_statistics(self.frozen, folder)
        own = {"quantiser": self.quantiser, "namespace": self.namespace, "name": self.name}
        return {"bm25": self.bm25.options(folder), "statistics": kept, **own}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Impacts:
        values = fields_from_data(cls, options, ("frozen",), bm25="dict", statistics="list | None")
        bm25, frozen = BM25.from_options(values["bm25"], folder), load_statistics(values.pop("statistics"), folder)
        return cls(**{**values, "bm25": bm25, "frozen": frozen})


def _scaled(counts: Mapping[str, float]) -> dict[str, float]:
    highest = max(counts.values(), default=1.0)
    return {term: float(np.rint(QUERY_WEIGHT * n / highest)) for term, n in counts.items()}


class _ImpactEncoder(SparseDocumentEncoder):
    def __init__(self, model: Impacts) -> None:
        self._model = model
        self._counting = model.bm25.document_encoder()
        self._quantiser = Quantiser.parse(model.quantiser)

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        real = self._model.weights(self._counting.encode(documents))
        clipped = np.clip(real.values, self._quantiser.minimum, self._quantiser.minimum + self._quantiser.span)
        rows = self._quantiser.quantise_rows(SparseVectors(real.vocabulary, real.pointers, real.indices, clipped))
        return SparseDocuments(rows, np.diff(rows.pointers))
