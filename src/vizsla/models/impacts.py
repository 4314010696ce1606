"""BM25 as the BM26 paper adds it: whole numbers of 8 bits, rarity included, with statistics frozen once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import described
from vizsla.engine import Weighting
from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25
from vizsla.models.model import COMPONENTS, Component, Fields, Reader, Stored
from vizsla.models.statistics import CountedStatistics, Statistics, load_statistics, save_statistics
from vizsla.text import Token
from vizsla.vectors import Quantiser, SparseVectors, Vocabulary

QUERY_WEIGHT = 256
"""Of a word of a query. The paper is silent; both systems' weights are said to lie in (0, 256)."""


@dataclass(frozen=True)
class Impacts(Component):
    """BM25's weights, idf times saturated count, from least to most mapped to 1 to 256.

    Counts and range are those of the documents it was settled on; documents added later are weighed by the same.
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
        """The model with the statistics and the range of these documents, all there are."""
        counted = self.bm25.count(documents)
        assert isinstance(counted, CountedStatistics)
        made = replace(self, frozen=counted)
        values = made._weights(self.bm25.reader().read(documents)).values
        if not len(values):
            raise VizslaError("there are no words in the documents that impacts could be fitted on")
        return replace(made, quantiser=str(Quantiser.parse(self.quantiser).fit(values)))

    def _weights(self, stored: Stored) -> SparseVectors:
        """Real weights of counted documents."""
        vectors, lengths, _ = stored
        statistics = self._statistics
        codes = np.repeat(self.bm25.length_codes(np.minimum(lengths, statistics.longest)), np.diff(vectors.pointers))
        names = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
        rarity = self.bm25.term_factors(statistics.document_frequencies(names), statistics.documents)
        values = self.bm25.weighting(statistics).weigh(vectors.values, codes) * rarity[vectors.indices]
        return SparseVectors(Vocabulary(self.namespace, names), vectors.pointers, vectors.indices, values)

    @property
    def _statistics(self) -> CountedStatistics:
        if self.frozen is None:
            raise VizslaError(f"{self.name} freezes the statistics of documents; settle it on all of them first")
        return self.frozen

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, replace(self.bm25, namespace=""), self.quantiser

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return self.bm25.field_problem(content)

    def reader(self) -> Reader:
        return _ImpactReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), np.uint8)

    def weighting(self, statistics: Statistics) -> Weighting:  # noqa: ARG002 (weights need none)
        return Weighting()

    def tokens(self, text: str) -> list[Token]:
        return self.bm25.tokens(text)

    def query_terms(self, text: str) -> dict[str, float]:
        counts = self.bm25.query_terms(text)
        most = max(counts.values(), default=1.0)
        return {term: float(np.rint(QUERY_WEIGHT * n / most)) for term, n in counts.items()}

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002 (in the weights)
        return np.ones(len(frequencies))

    def count(self, documents: Sequence[Fields]) -> Statistics:
        return self.bm25.count(documents)

    def options(self, folder: Path) -> dict[str, Any]:
        kept = None if self.frozen is None else save_statistics(self.frozen, folder)
        own = {"quantiser": self.quantiser, "namespace": self.namespace, "name": self.name}
        return {"bm25": self.bm25.options(folder), "statistics": kept, **own}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Impacts:
        told = described(cls, options, ("frozen",), bm25="dict", statistics="list | None")
        bm25, frozen = BM25.from_options(told["bm25"], folder), load_statistics(told.pop("statistics"), folder)
        return cls(**{**told, "bm25": bm25, "frozen": frozen})


COMPONENTS[Impacts.kind] = Impacts


class _ImpactReader(Reader):
    def __init__(self, model: Impacts) -> None:
        self._model = model
        self._counting = model.bm25.reader()
        self._quantiser = Quantiser.parse(model.quantiser)

    def read(self, documents: Sequence[Fields]) -> Stored:
        stored = self._counting.read(documents)
        real = self._model._weights(stored)
        clipped = np.clip(real.values, self._quantiser.minimum, self._quantiser.minimum + self._quantiser.span)
        rows = self._quantiser.quantise_rows(SparseVectors(real.vocabulary, real.pointers, real.indices, clipped))
        return Stored(rows, np.diff(rows.pointers))
