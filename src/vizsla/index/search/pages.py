"""Which results are returned, and in which order: paging, sorting by a field, collapsing groups, a minimum score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vizsla.engine import TopDocuments
from vizsla.errors import VizslaError, kind_of
from vizsla.index.search.columns import Column, DocumentRows
from vizsla.index.search.facets import column_of
from vizsla.index.search.searcher import Searcher

DOCUMENT = "document"
WHOLE = 1 << 40  # a window that is larger than any document
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
    passages: int = 1
    """How many passages of a document there may be."""
    window: int = 0
    """How many passages before and after each are shown with it."""

    @classmethod
    def of(
        cls, offset: object, sort: object, collapse: object, min_score: object, passages: object = 1, window: object = 0
    ) -> Page | None:
        """A page from options; None for the plain one: the best, by score.

        >>> Page.of(10, "-year", None, None)
        Page(offset=10, sort='year', descending=True, collapse=None, min_score=None, passages=1, window=0)
        """
        if type(offset) is not int or offset < 0:
            raise VizslaError(f"offset, how many results are left out, must be 0 or more, not {kind_of(offset)}")
        for name, field in (("sort", sort), ("collapse", collapse)):
            if field is not None and not (isinstance(field, str) and field.removeprefix("-")):
                raise VizslaError(f"{name} is the name of a field, as in 'year', not {kind_of(field)}")
        if min_score is not None and not _is_number(min_score):
            raise VizslaError(f"min_score is a number, not {kind_of(min_score)}")
        if type(passages) is not int or passages < 1:
            raise VizslaError(f"passages, how many of a document are given, must be 1 or more, not {kind_of(passages)}")
        around = WHOLE if window == DOCUMENT else window
        if type(around) is not int or around < 0:
            raise VizslaError(f"window is a number of passages, or {DOCUMENT!r}, not {kind_of(window)}")
        if passages > 1 and collapse is not None:
            raise VizslaError("collapse gives one result for each value; leave out collapse or passages")
        if (offset, sort, collapse, min_score, passages, around) == (0, None, None, None, 1, 0):
            return None
        by = None if sort is None else str(sort)
        descending = by is not None and by.startswith("-")
        by = by[1:] if by is not None and descending else by
        return cls(offset, by, descending, None if collapse is None else str(collapse), min_score, passages, around)  # type: ignore[arg-type]

    @property
    def leaves_out(self) -> bool:
        """Whether matching documents may be on no page."""
        return self.collapse is not None or self.min_score is not None or self.passages > 1

    def select(self, searcher: Searcher, rank: Callable[[int], TopDocuments], k: int) -> Selection:
        """The rows of this page; `rank(n)` finds the best n rows."""
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
            kept, windows = self._kept(searcher, found.numbers, sort, groups)
            if is_all or len(kept) >= wanted:
                chosen = kept[self.offset : wanted]
                top = TopDocuments(found.numbers[chosen], found.scores[chosen])
                shown = None if windows is None else [windows[place] for place in chosen.tolist()]
                return Selection(top, len(kept) if is_all else None, shown)
            depth = min(depth * _FACTOR, most)

    def _kept(
        self, searcher: Searcher, numbers: np.ndarray, sort: Column | None, groups: Column | None
    ) -> tuple[np.ndarray, dict[int, np.ndarray] | None]:
        """The places of the results that are kept, in their order, and the rows that each shows, if these are more."""
        kept, windows = np.arange(len(numbers)), None
        if not searcher.rows.has_passages and sort is None and groups is None:
            return kept, None
        documents = np.searchsorted(searcher.rows.numbers, numbers, side="right") - 1
        if searcher.rows.has_passages and (self.passages, self.window) == (1, 0):
            kept = np.sort(np.unique(documents, return_index=True)[1])
        elif searcher.rows.has_passages:
            windows = self._windows(searcher.rows, numbers, documents)
            kept = np.array(list(windows), np.int64)
        if sort is not None:
            keys = sort.sort_keys(descending=self.descending)[documents[kept]]
            kept = kept[np.argsort(keys, kind="stable")]
        if groups is not None:
            codes = groups.codes[documents[kept]].astype(np.int64)
            alone = np.flatnonzero(codes < 0)
            codes[alone] = -1 - alone
            kept = kept[np.sort(np.unique(codes, return_index=True)[1])]
        return kept, windows

    def _windows(self, rows: DocumentRows, numbers: np.ndarray, documents: np.ndarray) -> dict[int, np.ndarray]:
        """By the places of the results that are kept, the rows that each shows, none of which a better one shows."""
        living = rows.row_numbers
        starts = np.append(np.searchsorted(living, rows.numbers), len(living)).tolist()
        shown: dict[int, list[tuple[int, int]]] = {}
        windows = {}
        rows_of_results = np.searchsorted(living, numbers).tolist()
        for place, (row, document) in enumerate(zip(rows_of_results, documents.tolist(), strict=True)):
            others = shown.setdefault(document, [])
            if len(others) == self.passages or any(first <= row < last for first, last in others):
                continue
            first = max(starts[document], row - self.window, *(last for _, last in others if last <= row))
            last = min(starts[document + 1], row + self.window + 1, *(first for first, _ in others if first > row))
            others.append((first, last))
            windows[place] = living[first:last]
        return windows


class Selection(NamedTuple):
    """The rows of a page."""

    top: TopDocuments
    total: int | None
    """How many results all pages have, if all were looked at."""
    windows: list[np.ndarray] | None
    """The numbers of the rows that each result shows; None for its own alone."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
