"""A highlighter for a query: what its terms weigh in an index."""

from __future__ import annotations

from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.highlight import Highlighter
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.word_query import WordQuery
from vizsla.runs import Filter


def highlighter(
    searcher: Searcher, bound: BoundModel, text: str, condition: Filter | None, syntax: str | None
) -> Highlighter:
    """Shows where documents match a query, plain or in a query language."""
    if syntax is not None and text.strip():
        weights = WordQuery(searcher, bound, text, condition).weights_by_namespace
        return Highlighter(searcher.snapshot.model, weights)
    return Highlighter(searcher.snapshot.model, bound.query_weights(text, searcher.context(condition)))
