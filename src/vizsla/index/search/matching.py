"""All documents that pass a filter and match a query, not only the best k."""

from __future__ import annotations

import numpy as np

from vizsla.engine import rows_with_a_score
from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.word_query import WordQuery
from vizsla.runs import Filter


def matching_rows(
    searcher: Searcher,
    bound: BoundModel,
    query: str | None = None,
    condition: Filter | None = None,
    syntax: str | None = None,
) -> list[np.ndarray]:
    """For each segment a mask of the live rows that a search without a limit would find; without a query all.

    In an index of passages rows are passages.
    """
    snapshot = searcher.snapshot
    masks = _allowed_rows(searcher, condition)
    if query is None:
        return masks
    if not query.strip():
        return [np.zeros_like(mask) for mask in masks]
    if syntax is not None:
        return WordQuery(searcher, bound, query, condition, syntax).found
    (encoded,) = searcher.encode([query], bound, condition)
    with snapshot.naming_damage():
        pairs = zip(snapshot.segments, masks, strict=True)
        return [mask & rows_with_a_score(segment, encoded) for segment, mask in pairs]


def count_matching(
    searcher: Searcher, bound: BoundModel, query: str, condition: Filter | None, syntax: str | None
) -> int:
    """How many documents a search without a limit would find; a document in passages counts once."""
    masks = matching_rows(searcher, bound, query, condition, syntax)
    if searcher.snapshot.splitter is None:
        return sum(int(np.count_nonzero(mask)) for mask in masks)
    return int(np.count_nonzero(searcher.rows.matching_documents(masks)))


def _allowed_rows(searcher: Searcher, condition: Filter | None) -> list[np.ndarray]:
    """For each segment the live rows that pass a filter."""
    if condition is not None:
        return list(searcher.masks(condition))
    snapshot = searcher.snapshot
    pairs = zip(snapshot.segments, snapshot.alive, strict=True)
    return [np.ones(len(segment), np.bool_) if alive is None else alive for segment, alive in pairs]


def matching_ids(searcher: Searcher, condition: Filter) -> list[str]:
    """The ids of the documents that pass a filter, in the order of insertion."""
    rows = searcher.rows
    matching = rows.matching_documents(_allowed_rows(searcher, condition))
    numbers = rows.numbers[matching].tolist()
    ids = searcher.snapshot.documents.ids(numbers)
    return [rows.document_id(ids[n]) for n in numbers]
