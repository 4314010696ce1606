"""Queries in other words by looking twice: RM3, terms of the documents that are found first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from vizsla.described import made_from
from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25
from vizsla.models.expansion import QUERY_EXPANDERS, SearchContext
from vizsla.models.model import field_text

_WORD = re.compile("[a-z0-9]{2,20}")
_COMMON = 0.1  # a term in more than this share of the documents is not added


@dataclass(frozen=True)
class RM3:
    """The relevance model of Lavrenko and Croft, mixed with the query, by the rules and defaults of Anserini.

    The best `documents`, of those that meet the filter of the search, give their `terms` strongest words each, by
    count, in proportion to their scores; of these the strongest `terms` are added. `original` is the query's own share
    of the whole.

    >>> RM3(documents=5).name
    'rm3'
    """

    documents: int = 10
    terms: int = 10
    original: float = 0.5

    kind: ClassVar[str] = "rm3"
    name: ClassVar[str] = "rm3"
    reads_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole = all(isinstance(n, int) and n >= 1 for n in (self.documents, self.terms))
        if not whole or not isinstance(self.original, int | float) or not 0 <= self.original <= 1:
            raise VizslaError(
                "RM3 needs 1 document and 1 term at least, and a share of the query between 0 and 1, not "
                f"{self.documents!r}, {self.terms!r} and {self.original!r}"
            )

    def problem(self, bm25: BM25) -> str | None:  # noqa: ARG002 (any will do)
        return None

    def terms_of(
        self, texts: Sequence[str], bm25: BM25, collection: SearchContext | None = None
    ) -> list[dict[str, float]]:
        """The weighted terms of queries: their own, and those of what they find first."""
        if collection is None:
            raise VizslaError("RM3 looks at documents first, so it can only be asked of an index")
        asked = bm25.query_terms_of(texts)
        found = collection.best(bm25, asked, self.documents)
        contents = collection.contents(sorted({number for hits in found for number in hits}))
        counts = {number: Counter(bm25.text_analyzer(field_text(c, bm25.fields))) for number, c in contents.items()}
        if found and any(found) and not any(counts.values()):
            raise VizslaError("RM3 reads the texts of documents, and this index does not keep them")
        kept = self._worth_adding(counts, bm25, collection)
        return [self._mixed(own, hits, kept) for own, hits in zip(asked, found, strict=True)]

    def _worth_adding(
        self, counts: Mapping[int, Counter[str]], bm25: BM25, collection: SearchContext
    ) -> dict[int, dict[str, float]]:
        """Of each document its strongest terms, those that are plain words and not too common."""
        words = sorted({t for terms in counts.values() for t in terms if _WORD.fullmatch(t)})
        statistics = collection.statistics_of(bm25)
        frequencies = dict(zip(words, statistics.document_frequencies(words).tolist(), strict=True))
        most = _COMMON * statistics.documents
        found = {}
        for number, terms in counts.items():
            worth = {t: float(n) for t, n in terms.items() if 0 < frequencies.get(t, 0) <= most}
            found[number] = dict(_strongest(worth, self.terms))
        return found

    def _mixed(
        self, own: Mapping[str, float], hits: Mapping[int, float], kept: Mapping[int, Mapping[str, float]]
    ) -> dict[str, float]:
        model: dict[str, float] = {}
        for number, score in hits.items():
            if score <= 0:  # words in all documents can be worth nothing, or less
                continue
            total = sum(kept[number].values())
            for term, count in kept[number].items():
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
        return made_from(cls, options)


QUERY_EXPANDERS[RM3.kind] = RM3


def _strongest(weights: Mapping[str, float], most: int) -> list[tuple[str, float]]:
    return sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
