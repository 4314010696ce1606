"""RM3: query expansion with terms of the documents that are found first (pseudo-relevance feedback)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25, BM25_OPTIONS, EXPANDERS, ExpandedBM25, QueryExpander
from vizsla.models.components import SearchContext
from vizsla.models.fields import field_text
from vizsla.models.model import MODELS
from vizsla.plain_data import from_data
from vizsla.spec import options_of

_WORD = re.compile("[a-z0-9]{2,20}")
_COMMON = 0.1  # a term in more than this share of the documents is not added


@dataclass(frozen=True)
class RM3(QueryExpander):
    """The relevance model of Lavrenko and Croft, mixed with the query, by the rules and defaults of Anserini.

    Each of the best `documents` that pass the filter of the search gives its `terms` most frequent words, weighted by
    the document's score; the strongest `terms` of these are added to the query. `original` is the share of the query's
    own terms in the sum of weights.

    >>> RM3(documents=5).name
    'rm3'
    """

    documents: int = 10
    terms: int = 10
    original: float = 0.5

    kind: ClassVar[str] = "rm3"
    name = "rm3"
    needs_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole = all(isinstance(n, int) and n >= 1 for n in (self.documents, self.terms))
        if not whole or not isinstance(self.original, int | float) or not 0 <= self.original <= 1:
            raise VizslaError(
                "RM3 needs 1 document and 1 term at least, and a share of the query between 0 and 1, not "
                f"{self.documents!r}, {self.terms!r} and {self.original!r}"
            )

    def query_terms(
        self, texts: Sequence[str], bm25: BM25, context: SearchContext | None = None
    ) -> list[dict[str, float]]:
        """The weighted terms of queries: their own, and those of the documents they find first."""
        if context is None:
            raise VizslaError("RM3 reads the top documents of a first search, so it needs an index")
        queries = bm25.query_terms(texts)
        top = context.top_documents(bm25, queries, self.documents)
        contents = context.contents(sorted({number for scores in top for number in scores}))
        counts = {number: Counter(bm25.text_analyzer(field_text(c, bm25.fields))) for number, c in contents.items()}
        if any(top) and not any(counts.values()):
            raise VizslaError("RM3 reads the texts of documents, and this index does not keep them")
        feedback = self._feedback_terms(counts, bm25, context)
        return [self._mixed(own, scores, feedback) for own, scores in zip(queries, top, strict=True)]

    def _feedback_terms(
        self, counts: Mapping[int, Counter[str]], bm25: BM25, context: SearchContext
    ) -> dict[int, dict[str, float]]:
        """Of each document its strongest terms, those that are plain words and not too common."""
        words = sorted({t for terms in counts.values() for t in terms if _WORD.fullmatch(t)})
        statistics = context.statistics_of(bm25)
        frequencies = dict(zip(words, statistics.document_frequencies(words).tolist(), strict=True))
        most = _COMMON * statistics.documents
        strongest = {}
        for number, terms in counts.items():
            rare = {t: float(n) for t, n in terms.items() if 0 < frequencies.get(t, 0) <= most}
            strongest[number] = dict(_strongest(rare, self.terms))
        return strongest

    def _mixed(
        self, own: Mapping[str, float], scores: Mapping[int, float], feedback: Mapping[int, Mapping[str, float]]
    ) -> dict[str, float]:
        model: dict[str, float] = {}
        for number, score in scores.items():
            if score <= 0:  # the idf of a word in all documents can be 0 or negative
                continue
            total = sum(feedback[number].values())
            for term, count in feedback[number].items():
                model[term] = model.get(term, 0.0) + score * count / total
        chosen = _strongest(model, self.terms)
        mixed: dict[str, float] = {}
        for share, terms in ((self.original, list(own.items())), (1 - self.original, chosen)):
            total = sum(weight for _, weight in terms) or 1.0
            for term, weight in terms:
                mixed[term] = mixed.get(term, 0.0) + share * weight / total
        return {term: weight for term, weight in mixed.items() if weight > 0}

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 (it has no files)
        return asdict(self)

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> RM3:  # noqa: ARG003
        return from_data(cls, options)


RM3_OPTIONS = options_of(
    RM3,
    documents="how many documents to take terms from",
    terms="how many terms to take from a document, and to add",
    original="share of the query's own terms, from 0 to 1",
)
EXPANDERS.register("rm3", help="Terms of the documents that are found first.", options=RM3_OPTIONS)(RM3)


@MODELS.register("bm25-rm3", help="BM25 with RM3 query expansion.", options=(*RM3_OPTIONS, *BM25_OPTIONS))
def bm25_rm3(documents: int = 10, terms: int = 10, original: float = 0.5, **options: Any) -> ExpandedBM25:
    return BM25(**options).expand(RM3(documents, terms, original)).with_name("bm25-rm3")


def _strongest(weights: Mapping[str, float], most: int) -> list[tuple[str, float]]:
    return sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
