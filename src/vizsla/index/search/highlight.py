"""Snippets: the passage of a text that best matches a query, and the words that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vizsla.index.search.bound_model import BoundModel
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.word_query import WordQuery
from vizsla.models import Model, SparseComponent, as_text, is_text, part_has
from vizsla.runs import Document, Filter
from vizsla.text import Token

MAX_CHARACTERS = 100_000  # of a text that are searched for a snippet


@dataclass(frozen=True)
class Snippet:
    """A part of a text and the places in it that match, as (start, end)."""

    text: str
    matches: tuple[tuple[int, int], ...]
    at_start: bool
    at_end: bool


def matching(tokens: list[Token], weights: Mapping[str, float]) -> list[Token]:
    """The tokens that are terms of the query."""
    return [t for t in tokens if t.term in weights]


def best_snippet(text: str, tokens: list[Token], weights: Mapping[str, float], width: int = 240) -> Snippet:
    """The part of at most about `width` characters whose distinct query terms weigh most, cut at words.

    >>> tokens = [Token("dog", 4, 7), Token("bark", 20, 25)]
    >>> best_snippet("The dog, of course, barks.", tokens, {"bark": 2.0}, width=12)
    Snippet(text='course, barks.', matches=((8, 13),), at_start=False, at_end=True)
    """
    hits = matching(tokens, weights)
    start, end = _best_range(hits, weights, width) if hits else (0, 0)
    room = max(width - (end - start), 0)
    start = _word_start(text, max(start - room // 2, 0))
    end = _word_end(text, min(max(start + width, end), len(text)))
    inside = tuple((t.start - start, t.end - start) for t in hits if t.start >= start and t.end <= end)
    return Snippet(text[start:end], inside, start == 0, end == len(text))


def _best_range(hits: list[Token], weights: Mapping[str, float], width: int) -> tuple[int, int]:
    """The first range within the width with the largest sum of distinct terms' weights."""
    best, place, right = -1.0, (0, 0), 0
    inside: dict[str, int] = {}
    worth = 0.0
    for left, token in enumerate(hits):
        while right < len(hits) and hits[right].end - token.start <= max(width, token.end - token.start):
            term = hits[right].term
            inside[term] = inside.get(term, 0) + 1
            worth += weights[term] if inside[term] == 1 else 0.0
            right += 1
        if worth > best + 1e-12:
            best, place = worth, (token.start, hits[max(right - 1, left)].end)
        inside[token.term] -= 1
        worth -= weights[token.term] if inside[token.term] == 0 else 0.0
    return place


def _word_start(text: str, at: int) -> int:
    while at > 0 and not text[at - 1].isspace():
        at -= 1
    return at


def _word_end(text: str, at: int) -> int:
    while at < len(text) and not text[at].isspace():
        at += 1
    return at


class Highlighter:
    """Shows where documents match a query, given the weights of its terms by namespace."""

    def __init__(self, model: Model, weights: Mapping[str, Mapping[str, float]]) -> None:
        self._model = model
        self._weights = weights

    def snippet(self, document: Document, field: str = "text", width: int = 240) -> Snippet:
        """The part of a field that best matches the query, and the places of the matching words.

        Of a sum the first part of which a term is in the field decides: terms that a learned model added to the query
        are shown where no word of it is.
        """
        value = document.get(field)
        if not is_text(value):
            return Snippet("", (), True, True)
        text = as_text(value)[:MAX_CHARACTERS]
        for _, component in self._model.parts:
            if not isinstance(component, SparseComponent) or component.namespace not in self._weights:
                continue
            if field in component.fields and part_has(component, document.content):
                snippet = best_snippet(text, component.tokens(text), self._weights[component.namespace], width)
                if snippet.matches:
                    return snippet
        return best_snippet(text, [], {}, width)


def highlighter(
    searcher: Searcher, bound: BoundModel, text: str, condition: Filter | None, syntax: str | None
) -> Highlighter:
    """Shows where documents match a query, plain or in a query language."""
    if syntax is not None and text.strip():
        weights = WordQuery(searcher, bound, text, condition, syntax).weights_by_namespace
        return Highlighter(searcher.snapshot.model, weights)
    return Highlighter(searcher.snapshot.model, bound.query_weights(text, searcher.context(condition)))
