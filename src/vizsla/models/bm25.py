"""BM25 in its variants, on any analyzer and any fields.

k1 = 0.9 and b = 0.4 are the defaults: what Anserini and Pyserini use, and what the published BEIR and MS MARCO
figures were made with. Lucene itself, tantivy and Elasticsearch have 1.2 and 0.75.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vizsla.described import described
from vizsla.engine import Weighting
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.lengths import check_scheme, decoded_lengths, encode_lengths
from vizsla.models.model import COMPONENTS, Component, Fields, Reader, Stored, counted, field_text, text_problem
from vizsla.models.statistics import Statistics, average_length
from vizsla.text import Analyzer, Token
from vizsla.vectors import SparseVectors, Vocabulary

if TYPE_CHECKING:
    from vizsla.models.expansion import ExpandedBM25, QueryExpander


class Variant(NamedTuple):
    """A member of the BM25 family: idf(N, df), and how a count saturates (see `Weighting`; n excludes k1)."""

    idf: Callable[[int, np.ndarray], np.ndarray]
    saturation: Callable[[float, float], Weighting]
    delta: float


# The formulas as Kamphuis and others set them side by side ("Which BM25 do you mean?", ECIR 2020).
VARIANTS = {
    "lucene": Variant(lambda n, df: np.log1p((n - df + 0.5) / (df + 0.5)), lambda k1, _: Weighting(slope=k1), 0.0),
    "robertson": Variant(lambda n, df: np.log((n - df + 0.5) / (df + 0.5)), lambda k1, _: Weighting(slope=k1), 0.0),
    "atire": Variant(lambda n, df: np.log(n / df), lambda k1, _: Weighting(scale=k1 + 1, slope=k1), 0.0),
    "bm25l": Variant(
        lambda n, df: np.log((n + 1) / (df + 0.5)),
        lambda k1, delta: Weighting(scale=k1 + 1, shift=delta, slope=k1 + delta),
        0.5,
    ),
    "bm25+": Variant(
        lambda n, df: np.log((n + 1) / df),
        lambda k1, delta: Weighting(scale=k1 + 1, slope=k1, floor=delta),
        1.0,
    ),
    "bag": Variant(lambda _, df: np.ones(len(df)), lambda *_: Weighting(slope=0.0), 0.0),
}


@dataclass(frozen=True)
class BM25(Component):
    """BM25 over some fields of the documents, joined by line breaks.

    `variant`: lucene, robertson, atire, bm25l or bm25+ (these two add their delta only where a term occurs), or bag:
    every term that occurs counts 1, which is no BM25 but what one is compared with.
    `lengths`: `lucene` keeps a document's length in one byte, as Lucene does, so that scores equal Lucene's;
    `exact` keeps it whole.

    >>> bm25 = BM25()
    >>> documents = ["a dog barks", "cats and dogs", "fish"]
    >>> statistics = bm25.statistics(documents)
    >>> scores = bm25.encode_queries(["dog"], statistics).dot(bm25.encode_documents(documents))
    >>> scores.round(4).tolist()
    [[0.2383, 0.2383, 0.0]]
    """

    k1: float = 0.9
    b: float = 0.4
    variant: str = "lucene"
    delta: float | None = None
    lengths: str = "lucene"
    analyzer: Analyzer | str = "lucene-english"
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "words"
    name: str = "bm25"

    kind: ClassVar[str] = "bm25"

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if self.variant not in VARIANTS:
            raise UnknownNameError("BM25 variant", self.variant, tuple(VARIANTS))
        check_scheme(self.lengths)
        if not self.k1 >= 0 or not 0 <= self.b <= 1 or not np.isfinite(self.k1):
            raise VizslaError(f"k1 must be 0 or more and b between 0 and 1, not k1={self.k1} and b={self.b}")
        if self.delta is not None and not VARIANTS[self.variant].delta:
            raise VizslaError(f"the variant {self.variant!r} has no delta; only bm25l and bm25+ do")
        if self.delta is not None and not 0 <= self.delta < np.inf:
            raise VizslaError(f"delta must be 0 or more, not {self.delta}")
        if not self.fields:
            raise VizslaError("BM25 needs at least one field to read")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.analyzer, self.fields, self.lengths

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        return text_problem(content, self.fields)

    def reader(self) -> Reader:
        return _CountingReader(self)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return encode_lengths(self.lengths, lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        variant = VARIANTS[self.variant]
        w = variant.saturation(self.k1, variant.delta if self.delta is None else self.delta)
        lengths = decoded_lengths(self.lengths, statistics.longest)
        norms = 1 - self.b + self.b * lengths / average_length(statistics)
        return Weighting(w.scale, w.shift, w.slope, w.floor, norms)

    def tokens(self, text: str) -> list[Token]:
        return self.text_analyzer.tokens(text)

    def query_terms(self, text: str) -> dict[str, float]:
        return {term: float(n) for term, n in Counter(self.text_analyzer(text)).items()}

    def query_terms_of(self, texts: Sequence[str]) -> list[dict[str, float]]:
        lexicon = self.text_analyzer.lexicon()
        numbers, ends = lexicon.encode(texts)
        starts = [0, *ends.tolist()]
        words = [lexicon.terms[n] for n in numbers.tolist()]
        return [{term: float(n) for term, n in Counter(words[a:z]).items()} for a, z in pairwise(starts)]

    def expand(self, queries: QueryExpander) -> ExpandedBM25:
        """The same BM25, asked in other words: an index of it can be asked with both."""
        from vizsla.models.expansion import ExpandedBM25

        return ExpandedBM25(queries, self, self.namespace)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return VARIANTS[self.variant].idf(documents, frequencies)

    def count(self, documents: Sequence[Fields]) -> Statistics:
        return counted(self.reader().read(documents))

    @property
    def text_analyzer(self) -> Analyzer:
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer

    def options(self, folder: Path) -> dict[str, Any]:
        return vars(self) | {"analyzer": self.text_analyzer.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> BM25:
        told = described(cls, options, analyzer="str", fields="tuple[str, ...]")
        return cls(**{**told, "analyzer": Analyzer.parse(told["analyzer"], folder)})


COMPONENTS[BM25.kind] = BM25


class _CountingReader(Reader):
    """Counts terms; the lexicon of words met so far lives as long as the reader."""

    def __init__(self, model: BM25) -> None:
        self._model = model
        self._lexicon = model.text_analyzer.lexicon()

    def read(self, documents: Sequence[Fields]) -> Stored:
        texts = [field_text(d, self._model.fields) for d in documents]
        pointers, indices, counts = self._lexicon.count(texts)
        running = np.concatenate([[0], np.cumsum(counts)])
        lengths = np.diff(running[pointers])
        vocabulary = Vocabulary(self._model.namespace, self._lexicon.terms)
        return Stored(SparseVectors(vocabulary, pointers, indices, counts), lengths)
