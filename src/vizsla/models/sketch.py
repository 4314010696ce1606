"""Sketches: the vectors of a lexical model as dense ones, by directions thrown for every term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import described
from vizsla.engine.projection import BITS, projected, term_keys
from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25
from vizsla.models.embedding import DenseComponent
from vizsla.models.learned_sparse import LearnedSparse
from vizsla.models.model import COMPONENTS, Component, Fields, component_from
from vizsla.models.statistics import CountedStatistics, load_statistics, save_statistics
from vizsla.vectors import SparseVectors

SHARE = 0.25
"""Of a word's rarity, the power that goes to documents, the rest to queries: scores are the same, and common words of
documents disturb less. With 0, 0.25, 0.5 and 0.75 sketches of 768 numbers have a rank-biased overlap of 0.326, 0.342,
0.336 and 0.300 with BM25 (2,000 questions to 651,935 passages of Wikipedia)."""

MOST_WIDTH = 1 << 16
"""A quarter of a megabyte a document."""


@dataclass(frozen=True)
class Sketch(DenseComponent):
    """What a lexical model makes of texts in `width` numbers, whose inner products are its scores but for chance.

    They are off by about the product of both vectors' lengths over the root of the width. BM25's counts are those of
    the documents it was settled on; documents added later are weighed by the same, and words that it did not count are
    not asked for.

    >>> documents = ["a dog barks", "cats and dogs purr", "fish swim", "a cat may bark"]
    >>> sketch = Sketch(width=4096).fit(documents)
    >>> queries = sketch.encode_queries(["barking dog"], sketch.statistics(documents))
    >>> scores = queries.dot(sketch.encode_documents(documents))
    >>> np.argsort(-scores[0]).tolist()[0]
    0
    """

    lexical: BM25 | LearnedSparse = field(default_factory=BM25)
    width: int = 1536
    frozen: CountedStatistics | None = None
    namespace: str = "sketch"
    name: str = "sketch"

    kind: ClassVar[str] = "sketch"

    def __post_init__(self) -> None:
        if not isinstance(self.lexical, BM25 | LearnedSparse):
            raise VizslaError(f"{self.lexical.name} cannot be sketched; BM25 and learned lexical models can")
        if not BITS <= self.width <= MOST_WIDTH or self.width % BITS:
            raise VizslaError(f"the width of a sketch is a multiple of {BITS} up to {MOST_WIDTH:,}, not {self.width:,}")

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.lexical.fields

    @property
    def batch_size(self) -> int:
        return self.lexical.batch_size

    @property
    def dimensions(self) -> int:
        return self.width

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, replace(self.lexical, namespace="", name=""), self.width

    @property
    def needs_corpus_statistics(self) -> bool:
        return self.frozen is None and isinstance(self.lexical, BM25)

    def fit(self, documents: Sequence[Fields]) -> Sketch:
        """The model with the counts of these documents, all there are."""
        if not self.needs_corpus_statistics:
            return self
        counted = self.lexical.count(documents)
        assert isinstance(counted, CountedStatistics)
        if not counted.documents:
            raise VizslaError("there are no words in the documents that a sketch could be settled on")
        return replace(self, frozen=counted)

    def with_frozen_statistics(self, held: Component) -> Sketch:
        assert isinstance(held, Sketch)
        return replace(self, frozen=held.frozen)

    def encoded_documents(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        stored = self.lexical.reader().read(documents)
        longest = max(self._statistics.longest, int(stored.lengths.max(initial=0)))
        rows = self.lexical.weighed(stored, replace(self._statistics, longest=longest))
        return self._sketched(rows, lambda rarity: np.abs(rarity) ** SHARE)

    def encoded_queries(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        asked = self.lexical.query_terms_of(texts)
        if self.frozen is not None:
            known = self.frozen.frequencies
            asked = [{term: weight for term, weight in row.items() if term in known} for row in asked]
        rows = SparseVectors.from_rows(asked, self.namespace)
        return self._sketched(rows, lambda rarity: np.sign(rarity) * np.abs(rarity) ** (1 - SHARE))

    def _sketched(
        self, rows: SparseVectors, share: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows with a share of their terms' rarity in few numbers, and which of them had any."""
        used, places = np.unique(rows.indices, return_inverse=True)
        names = [rows.vocabulary[number][1] for number in used.tolist()]
        values = rows.values * share(self._rarity(names))[places]
        return projected(rows.pointers, term_keys(names)[places], values, self.width), np.diff(rows.pointers) > 0

    def _rarity(self, terms: Sequence[str]) -> np.ndarray:
        counted = self._statistics
        return self.lexical.term_factors(np.maximum(counted.document_frequencies(terms), 1), counted.documents)

    @property
    def _statistics(self) -> CountedStatistics:
        if self.needs_corpus_statistics:
            raise VizslaError(f"{self.name} freezes the statistics of documents; settle it on all of them first")
        return self.frozen or CountedStatistics(0, 0, 0, {})

    def options(self, folder: Path) -> dict[str, Any]:
        kept = None if self.frozen is None else save_statistics(self.frozen, folder)
        lexical = {"kind": self.lexical.kind, **self.lexical.options(folder)}
        own = {"width": self.width, "namespace": self.namespace, "name": self.name}
        return {"lexical": lexical, "statistics": kept, **own}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Sketch:
        told = described(cls, options, ("frozen",), lexical="dict", statistics="list | None")
        frozen = load_statistics(told.pop("statistics"), folder)
        return cls(**{**told, "lexical": component_from(told["lexical"], folder), "frozen": frozen})


COMPONENTS[Sketch.kind] = Sketch
