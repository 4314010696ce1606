"""What answers look like, as the API documents it. Answers are written without these classes, since that is faster."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """An answer; fields may be added to it later."""

    model_config = ConfigDict(extra="allow")


class Error(Answer):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")


class QueryText(Answer):
    """The query of a search."""

    text: str


class Candidate(Answer):
    """A document that was found, as Anserini and Pyserini write it."""

    docid: str
    score: float
    rank: int
    doc: dict[str, Any] | str


class Candidates(Answer):
    """What a search found, as Anserini and Pyserini write it."""

    api: Literal["v1"]
    index: str
    query: QueryText
    candidates: list[Candidate]


class StoredDocument(Answer):
    """A document, as Anserini and Pyserini write it."""

    api: Literal["v1"]
    index: str
    docid: str
    doc: dict[str, Any] | str


class IdentifiedDocument(Answer):
    """A document, with its id beside its fields."""

    id: str
    document: dict[str, Any]


class DocumentsAnswer(Answer):
    """Documents by id; those that are not there are missing."""

    index: str
    generation: int
    documents: list[IdentifiedDocument]


class Snippet(Answer):
    """A part of a field; `matches` are places of matching words, counted in characters."""

    text: str
    matches: list[list[int]]
    at_start: bool
    at_end: bool


class Explanation(Answer):
    """A part of a score, and the parts it is the sum of; other fields are facts about it.

    A term has the `words` of the query that it comes from. `piece`: it is a piece of them only. `added`: no word of the
    query makes it; a learned model or query expansion added it.
    """

    name: str
    score: float
    parts: list[Explanation] | None = None


class FoundDocument(Answer):
    """A document that was found."""

    id: str
    score: float
    rank: int
    passage: int | None = None
    document: dict[str, Any]
    highlights: dict[str, Snippet] | None = None
    explanation: Explanation | None = None


class FacetCount(Answer):
    """A value, and how many documents have it."""

    value: str | float | bool
    count: int


class FieldCounts(Answer):
    """The values of a field, the most frequent first."""

    values: list[FacetCount]
    distinct: int
    missing: int


class FacetScope(Answer):
    """Which documents were counted: all that match, or the best `top`."""

    documents: int
    exact: bool
    top: int | None


class SearchResult(Answer):
    """What was found for one query."""

    query: str
    hits: list[FoundDocument]
    facets: dict[str, FieldCounts] | None = None
    facets_over: FacetScope | None = None


class SearchAnswer(Answer):
    """What was found for each query."""

    index: str
    model: str
    generation: int
    took_ms: float
    results: list[SearchResult]


class ExplainAnswer(Answer):
    """Why a document has its score."""

    index: str
    model: str
    id: str
    generation: int
    explanation: Explanation


class TermCount(Answer):
    """How common a term is."""

    namespace: str
    term: str
    documents: int
    occurrences: float
    words: list[str] = Field(description="The words of the text that make the term.")
    is_piece: bool = Field(description="Whether the term is a piece of these words only.")


class TermsAnswer(Answer):
    """How common the terms of a text are."""

    index: str
    generation: int
    terms: list[TermCount]


class SuggestedWord(Answer):
    """A word, and how many documents have it."""

    text: str
    documents: int


class SuggestAnswer(Answer):
    """Words that complete what is typed."""

    index: str
    prefix: str
    suggestions: list[SuggestedWord]


class IndexAnswer(Answer):
    """An index, and what can be asked of it."""

    name: str
    status: Literal["ready", "stale", "unavailable"]
    reason: str | None = None
    model: str | None = None
    documents: int | None = None
    generation: int | None = None


class IndexesAnswer(Answer):
    """All indexes of the server."""

    vizsla: str
    write: bool
    judging: bool = Field(description="Whether the server keeps judgements.")
    may_judge: bool = Field(description="Whether this request's key may judge, or a key can be given that may.")
    keys: bool
    limits: dict[str, float]
    abilities: list[str] = Field(description="What searches may ask for that servers of earlier versions do not know.")
    indexes: list[IndexAnswer]


class WriteAnswer(Answer):
    """What a change did, and the commit in which it can be seen."""

    index: str
    generation: int
    committed: bool | None = None
    added: int | None = None
    replaced: int | None = None
    deleted: int | None = None
    staged: int | None = None
    empty: list[str] | None = Field(None, description="Added documents that have nothing to be found by.")


class JudgementAnswer(Answer):
    """A judgement that is kept, and how many the query has."""

    query: str
    id: str
    grade: int | None
    judged: int


class JudgementsAnswer(Answer):
    """Judged queries; of one query its grades alone."""

    queries: list[dict[str, Any]] | None = None
    query: str | None = None
    qid: str | None = None
    grades: dict[str, int] | None = None


class MeasuredModel(Answer):
    """The measures of one model: means, values by query, and the share of its first 10 that nobody judged."""

    model: str
    mean: dict[str, float]
    per_query: dict[str, dict[str, float]]
    unjudged: float


class MeasuresAnswer(Answer):
    """The measures of models on the judged queries."""

    queries: int
    measures: list[str]
    models: list[MeasuredModel]


class StatusAnswer(Answer):
    """How the server does."""

    status: str
    indexes: dict[str, str] | None = None


def documented(model: type[Answer]) -> dict[int | str, dict[str, Any]]:
    """The answer of a route, for its documentation."""
    return {200: {"model": model}}
