"""BM25 over counts that are given instead of counted: how often each word of a document is to count."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.described import fields_from_data
from vizsla.engine import Weighting
from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.models.bm25 import BM25
from vizsla.models.context import SearchContext
from vizsla.models.fields import Fields, check_fields
from vizsla.models.registry import MODELS
from vizsla.models.sparse_component import SparseComponent, SparseDocumentEncoder, SparseDocuments, TermWeightEncoder
from vizsla.models.statistics import Statistics
from vizsla.spec import options_of
from vizsla.text import Analyzer, Token

MAX_LENGTH = (1 << 31) - 1
"""The highest sum of a document's counts: what fits in the byte that a length is stored in."""
MERGES = ("sum", "max")


@dataclass(frozen=True)
class BM25OverCounts(SparseComponent):
    """What models with counts of their own share: BM25 of the counts, with their sum as the length of a document.

    Queries are those of BM25, and so is idf: it comes from the documents that are alive. Lengths are kept in one byte,
    as Lucene keeps them. `merge`: what words that become the same term count together, their sum or the maximum.
    """

    k1: float = 0.9
    b: float = 0.4
    merge: str = "sum"
    analyzer: Analyzer | str = "lucene-english"
    fields: tuple[str, ...] = ("counts",)
    namespace: str = "counts"
    name: str = "counts"

    expression_options: ClassVar[tuple[str, ...]] = ("k1", "b", "merge", "analyzer", "fields", "namespace")

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if self.merge not in MERGES:
            raise UnknownNameError("way to merge counts", self.merge, MERGES)
        check_fields(self.fields)
        _ = self._bm25  # checks k1 and b

    @property
    def _bm25(self) -> BM25:
        return BM25(self.k1, self.b, analyzer=self.analyzer, fields=self.fields, namespace=self.namespace)

    @property
    def text_analyzer(self) -> Analyzer:
        """The analyzer as a value; `analyzer` may be given by name."""
        assert isinstance(self.analyzer, Analyzer)
        return self.analyzer

    @property
    @abstractmethod
    def index_signature(self) -> tuple[Any, ...]: ...

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:
        return self._bm25.query_terms(texts, context)

    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        return self._bm25.length_codes(lengths)

    def weighting(self, statistics: Statistics) -> Weighting:
        return self._bm25.weighting(statistics)

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        return self._bm25.term_factors(frequencies, documents)

    def tokens(self, text: str) -> list[Token]:
        return self.text_analyzer.tokens(text)

    def merged(self, counts: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The counts of terms, given those of words that became these terms; counts of 0 are left out."""
        merged: dict[str, int] = {}
        for term, count in counts:
            if count > 0:
                before = merged.get(term, 0)
                merged[term] = before + count if self.merge == "sum" else max(before, count)
        return merged

    def options(self, folder: Path) -> dict[str, Any]:
        return vars(self) | {"analyzer": self.text_analyzer.save(folder)}


class CountEncoder(TermWeightEncoder):
    """Encodes documents by a function that gives the counts of their terms; a document is as long as their sum."""

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        vectors, _ = super().encode(documents)
        running = np.concatenate([[0], np.cumsum(vectors.values)])
        return SparseDocuments(vectors, np.diff(running[vectors.pointers]))


@dataclass(frozen=True)
class TermCounts(BM25OverCounts):
    """Documents bring the counts of their words in the field `counts`: {"word": count, ...}.

    Words go through the analyzer as those of queries do: stop words are dropped, and words with one stem are one term.
    With `merge="sum"`, counts of the words of a text give the scores of BM25 over that text.

    >>> model = TermCounts()
    >>> documents = [{"counts": {"the": 9, "dog": 2, "dogs": 1}}, {"counts": {"cat": 3}}]
    >>> queries = model.encode_queries(["dog"], model.statistics(documents))
    >>> queries.dot(model.encode_documents(documents)).round(4).tolist()
    [[0.5332, 0.0]]
    >>> model.merged([("dog", 2), ("dog", 1)])
    {'dog': 3}
    """

    kind: ClassVar[str] = "counts"
    expression_name: ClassVar[str] = "counts"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.fields) != 1:
            raise VizslaError(f"counts are read from one field, not from {len(self.fields)}")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self.analyzer, self.fields, self.merge

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        counts = content.get(self.fields[0])
        if counts is None:
            return None
        if not isinstance(counts, Mapping):
            return f"has a field {self.fields[0]!r} that is not an object of words and counts, but {kind_of(counts)}"
        total = 0
        for word, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int | float):
                return f"has a count for {word!r} that is not a number, but {kind_of(count)}"
            if not 0 <= count <= MAX_LENGTH or count != int(count):
                return f"has a count for {word!r} that is not a whole number of 0 or more, but {count}"
            total += len(self.text_analyzer(word)) * int(count)
        if total > MAX_LENGTH:
            return f"has counts that add up to {total:,}, and {MAX_LENGTH:,} is the most there can be"
        return None

    def document_encoder(self) -> SparseDocumentEncoder:
        return CountEncoder(self.namespace, self._counts)

    def _counts(self, document: Fields) -> dict[str, int]:
        counts = {} if isinstance(document, str) else document.get(self.fields[0]) or {}
        analyzer = self.text_analyzer
        return self.merged((term, int(count)) for word, count in counts.items() for term in analyzer(word))

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> TermCounts:
        values = fields_from_data(cls, options, analyzer="str", fields="tuple[str, ...]")
        return cls(**{**values, "analyzer": Analyzer.parse(values["analyzer"], folder)})


COUNTS_OPTIONS = options_of(
    TermCounts,
    k1="saturation of counts",
    b="length normalisation, from 0 to 1",
    merge=f"what words with the same term count together, one of {', '.join(MERGES)}",
    analyzer="how words and queries become terms, by name or as a pipeline",
    fields="the field with the counts",
    namespace="keeps its terms apart from those of other parts of a sum",
)

MODELS.register("counts", help="BM25 over counts in a field of the documents.", options=COUNTS_OPTIONS)(TermCounts)
