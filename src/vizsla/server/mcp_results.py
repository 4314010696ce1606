"""What the tools for agents answer: short, typed, and cut where a text is long."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # what pydantic reads before Python 3.12

from vizsla.models import as_text, is_text
from vizsla.runs import Document, Explanation, Hit

TITLE, TEXT = "title", "text"
SNIPPET = 300
"""About how many characters of a document a search shows."""
MAX_SNIPPET = 2 * SNIPPET
"""A snippet ends between words; one of a text without any ends here."""
MAX_SHORT = 200
"""Characters of a field that is shown as a whole; what is longer is read with `get_document`."""
_MAX_FIELDS = 20

_described = with_config(ConfigDict(use_attribute_docstrings=True))  # texts under fields are part of the schema

Scalar = str | int | float | bool | None
Fields = dict[str, Scalar | list[Scalar]]


@_described
class FoundDocument(TypedDict):
    """A document that a search found."""

    rank: int
    id: str
    score: float
    title: NotRequired[str]
    snippet: str
    """The part of the text that matches best; … marks where it was cut."""
    passage: NotRequired[int]
    """The number of the passage that was found, from 0, in an index of passages."""
    fields: NotRequired[Fields]
    """Short fields that are stored with the document, such as a year."""


@_described
class SearchAnswer(TypedDict):
    """The best documents for a query, best first."""

    index: str
    model: str
    results: list[FoundDocument]
    note: NotRequired[str]
    """What to do if nothing was found."""


@_described
class DocumentAnswer(TypedDict):
    """A page of a document's text."""

    index: str
    id: str
    title: NotRequired[str]
    text: str
    """The text from `offset` on."""
    offset: int
    characters: int
    """How many characters the whole text has."""
    next_offset: NotRequired[int]
    """Where the next page begins; missing on the last page."""
    fields: NotRequired[Fields]
    note: NotRequired[str]


@_described
class ExplainedTerm(TypedDict):
    """What one term of the query adds to a score."""

    term: str
    score: float
    why: str


@_described
class ExplainedPart(TypedDict):
    """What one part of the model adds to a score."""

    name: str
    score: float
    weight: NotRequired[float]
    why: NotRequired[str]
    terms: NotRequired[list[ExplainedTerm]]
    """By score, the largest first."""


@_described
class ExplainAnswer(TypedDict):
    """Why a document has its score: the scores of the parts add up to it."""

    index: str
    id: str
    model: str
    score: float
    parts: list[ExplainedPart]


@_described
class IndexFacts(TypedDict):
    """An index that can be searched."""

    name: str
    documents: NotRequired[int]
    model: NotRequired[str]
    """What it is searched with, unless a search names another model."""
    text_fields: NotRequired[list[str]]
    """The fields that searches read."""
    filter_fields: NotRequired[Fields]
    """Other fields that documents have, each with an example of its value; a filter may name them."""
    unavailable: NotRequired[str]
    """Why it cannot be searched now; then the rest is missing."""


@_described
class IndexesAnswer(TypedDict):
    """All indexes that can be searched."""

    indexes: list[IndexFacts]


def found_document(hit: Hit, snippet: str, text_fields: Sequence[str]) -> FoundDocument:
    """A hit with its snippet and its short fields, without its whole text."""
    found: FoundDocument = {"rank": hit.rank, "id": hit.id, "score": hit.score, "snippet": snippet}
    if title := title_of(hit.document):
        found["title"] = _cut(title)
    if hit.passage is not None:
        found["passage"] = hit.passage
    if fields := short_fields(hit.document.content, text_fields):
        found["fields"] = fields
    return found


def title_of(document: Document) -> str:
    """The title of a document; empty if it has none."""
    title = document.get(TITLE)
    return title if isinstance(title, str) else ""


def snippet_fields(document: Document, text_fields: Sequence[str]) -> list[str]:
    """The fields to cut a snippet from: `text` first, then what else the model reads; the title only if it is alone."""
    filled = [f for f in text_fields if is_text(value := document.get(f)) and as_text(value).strip()]
    texts = sorted((field for field in filled if field != TITLE), key=lambda field: field != TEXT)
    return texts or filled or [TEXT]


def short_fields(content: Mapping[str, Any], text_fields: Sequence[str]) -> Fields:
    """The fields beside title and texts that are short enough to be shown with every result."""
    names = [name for name in content if name not in (TITLE, *text_fields) and not _is_long(content[name])]
    return {name: _plain(content[name]) for name in names[:_MAX_FIELDS]}


def whole_text(document: Document, text_fields: Sequence[str]) -> str:
    """All of a document that `short_fields` leaves out, beside the title; several fields are headed by their names."""
    content = document.content
    texts = {
        name: as_text(value) if is_text(value) else json.dumps(value, ensure_ascii=False)
        for name, value in content.items()
        if name != TITLE and value not in (None, "", []) and (name in text_fields or _is_long(value))
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "\n\n".join(f"{name}: {text}" for name, text in texts.items())


def explained(explanation: Explanation) -> list[ExplainedPart]:
    """The tree of an explanation as a list of parts, each with its terms."""
    has_parts = any("term" not in part.facts for part in explanation.parts)
    return [_part(part) for part in (explanation.parts if has_parts else (explanation,))]


def _part(explanation: Explanation) -> ExplainedPart:
    part: ExplainedPart = {"name": explanation.name, "score": explanation.score}
    if explanation.facts.get("weight", 1) != 1:
        part["weight"] = float(explanation.facts["weight"])
    others = [f"{leaf.name}: {leaf.note}" for leaf in explanation.parts if "term" not in leaf.facts]
    if why := "; ".join(filter(None, (explanation.note, *others))):
        part["why"] = why
    terms = sorted((leaf for leaf in explanation.parts if "term" in leaf.facts), key=lambda leaf: -leaf.score)
    if terms:
        part["terms"] = [{"term": leaf.name, "score": leaf.score, "why": leaf.note} for leaf in terms]
    return part


def _is_long(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_SHORT
    return isinstance(value, list | dict) and len(json.dumps(value, ensure_ascii=False)) > MAX_SHORT


def _plain(value: Any) -> Scalar | list[Scalar]:
    """A value of a field as it is shown; objects as their JSON."""
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Scalar:
    return value if isinstance(value, str | int | float | bool | None) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHORT else f"{text[: MAX_SHORT - 1]}…"
