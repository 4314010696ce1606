"""Which documents match: pass a filter and, for a query, can be found by it. All of them, not the best k."""

from __future__ import annotations

import numpy as np

from vizsla import stopping
from vizsla.engine import Query, Segment
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
    """For each segment a mask of the living rows that a search without a limit would find; without a query all.

    In an index of passages rows are passages.
    """
    snapshot = searcher.snapshot
    masks = _allowed_rows(searcher, condition)
    if query is None:
        return masks
    if not query.strip():
        return [np.zeros_like(mask) for mask in masks]
    if syntax is not None:
        words = WordQuery(searcher, bound, query, condition)
        masks, encoded = words.masks, words.query
        if not (encoded.vector_spaces or encoded.matches):
            return masks  # words alone decide; a row may have the score 0
    else:
        (encoded,) = searcher.encode([query], bound, condition)
    with snapshot.naming_damage():
        pairs = zip(snapshot.segments, masks, strict=True)
        return [mask & _rows_with_a_score(segment, encoded) for segment, mask in pairs]


def _allowed_rows(searcher: Searcher, condition: Filter | None) -> list[np.ndarray]:
    """For each segment the living rows that pass a filter."""
    if condition is not None:
        return list(searcher.masks(condition))
    snapshot = searcher.snapshot
    pairs = zip(snapshot.segments, snapshot.alive, strict=True)
    return [np.ones(len(segment), np.bool_) if alive is None else alive for segment, alive in pairs]


def _rows_with_a_score(segment: Segment, query: Query) -> np.ndarray:
    """The rows that share a term with a query, or have a vector where the query has one: what the engine scores."""
    rows = np.zeros(len(segment), np.bool_)
    for space in query.vector_spaces:
        has_vector = segment.has_vector[space]
        if has_vector is None:
            return np.ones(len(segment), np.bool_)
        rows |= has_vector
    for term in query.terms.tolist():
        stopping.check()
        for lists in (segment.small, segment.large):
            rows[lists.list_of(term, len(segment))[0]] = True
    return rows


def matching_ids(searcher: Searcher, condition: Filter) -> list[str]:
    """The ids of the documents that pass a filter, in the order of insertion."""
    rows = searcher.rows
    matching = rows.matching_documents(_allowed_rows(searcher, condition))
    numbers = rows.numbers[matching].tolist()
    ids = searcher.snapshot.documents.ids(numbers)
    return [rows.document_id(ids[n]) for n in numbers]
