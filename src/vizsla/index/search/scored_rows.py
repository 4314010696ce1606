"""Which rows the engine scores for a query."""

from __future__ import annotations

import numpy as np

from vizsla import stopping
from vizsla.engine import Query, Segment


def rows_with_a_score(segment: Segment, query: Query) -> np.ndarray:
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
