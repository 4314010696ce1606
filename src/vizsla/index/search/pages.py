"""Which results are returned, and in which order: paging, sorting by a field, collapsing groups, a minimum score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vizsla.engine import TopDocuments
from vizsla.errors import VizslaError, kind_of
from vizsla.index.search.columns import Column
from vizsla.index.search.facets import column_of
from vizsla.index.search.searcher import Searcher

_FACTOR = 4  # how many times deeper the next search is if collapsing left too few results


@dataclass(frozen=True)
class Page:
    """A part of the results, in some order."""

    offset: int = 0
    """How many of the first are left out."""
    sort: str | None = None
    """The field to sort all results by; equal values are sorted by score, results without a value come last."""
    descending: bool = False
    collapse: str | None = None
    """The field to collapse by: one result for each of its values; a document without a value is its own group."""
    min_score: float | None = None

    @classmethod
    def of(cls, offset: object, sort: object, collapse: object, min_score: object) -> Page | None:
        """A page from options; None for the plain one: the best, by score.

        >>> Page.of(10, "-year", None, None)
        Page(offset=10, sort='year', descending=True, collapse=None, min_score=None)
        """
        if type(offset) is not int or offset < 0:
            raise VizslaError(f"offset, how many results are left out, must be 0 or more, not {kind_of(offset)}")
        for name, field in (("sort", sort), ("collapse", collapse)):
            if field is not None and not (isinstance(field, str) and field.removeprefix("-")):
                raise VizslaError(f"{name} is the name of a field, as in 'year', not {kind_of(field)}")
        if min_score is not None and not _is_number(min_score):
            raise VizslaError(f"min_score is a number, not {kind_of(min_score)}")
        if offset == 0 and sort is None and collapse is None and min_score is None:
            return None
        by = None if sort is None else str(sort)
        descending = by is not None and by.startswith("-")
        by = by[1:] if by is not None and descending else by
        return cls(offset, by, descending, None if collapse is None else str(collapse), min_score)  # type: ignore[arg-type]

    @property
    def leaves_out(self) -> bool:
        """Whether matching documents may be on no page."""
        return self.collapse is not None or self.min_score is not None

    def select(
        self, searcher: Searcher, rank: Callable[[int], TopDocuments], k: int
    ) -> tuple[TopDocuments, int | None]:
        """The rows of this page, and how many all pages have, if all were looked at; `rank(n)` finds the best n rows.

        A split document counts once, by its best passage.
        """
        most = max(searcher.snapshot.stored_count, 1)
        wanted = self.offset + k
        sort = None if self.sort is None else column_of(searcher, self.sort)
        groups = None if self.collapse is None else column_of(searcher, self.collapse)
        depth = most if sort is not None else min(wanted, most)
        while True:
            found = rank(depth)
            is_all = len(found) < depth or depth == most
            if self.min_score is not None and len(found) and found.scores[-1] < self.min_score:
                good = found.scores >= self.min_score
                found, is_all = TopDocuments(found.numbers[good], found.scores[good]), True
            kept = self._kept(searcher, found.numbers, sort, groups)
            if is_all or len(kept) >= wanted:
                chosen = kept[self.offset : wanted]
                return TopDocuments(found.numbers[chosen], found.scores[chosen]), len(kept) if is_all else None
            depth = min(depth * _FACTOR, most)

    def _kept(self, searcher: Searcher, numbers: np.ndarray, sort: Column | None, groups: Column | None) -> np.ndarray:
        """The places of the results that are kept, in their order."""
        kept = np.arange(len(numbers))
        if not searcher.rows.has_passages and sort is None and groups is None:
            return kept
        documents = np.searchsorted(searcher.rows.numbers, numbers, side="right") - 1
        if searcher.rows.has_passages:
            kept = np.sort(np.unique(documents, return_index=True)[1])
        if sort is not None:
            keys = sort.sort_keys(descending=self.descending)[documents[kept]]
            kept = kept[np.argsort(keys, kind="stable")]
        if groups is not None:
            codes = groups.codes[documents[kept]].astype(np.int64)
            alone = np.flatnonzero(codes < 0)
            codes[alone] = -1 - alone
            kept = kept[np.sort(np.unique(codes, return_index=True)[1])]
        return kept


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
