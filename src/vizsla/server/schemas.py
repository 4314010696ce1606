"""The shapes of requests and answers, as the API documents them, and how answers are written as JSON.

Answers are written without these classes, since that is faster.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from vizsla.plain_data import parse_json

# Answers


class Answer(BaseModel):
    """An answer; fields may be added to it later."""

    model_config = ConfigDict(extra="allow")


class Error(Answer):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")


class QueryText(Answer):
    """The query of a search, and what is to be said about its spelling."""

    text: str
    did_you_mean: str | None = None
    corrected: str | None = None


class Candidate(Answer):
    """A document that was found, in the format of Anserini and Pyserini."""

    docid: str
    score: float
    rank: int
    doc: dict[str, Any] | str
    highlights: dict[str, Snippet] | None = None
    explanation: Explanation | None = None


class Candidates(Answer):
    """The results of a search, in the format of Anserini and Pyserini."""

    api: Literal["v1"]
    index: str
    query: QueryText
    total: int | None = Field(None, description="How many results all pages have, if asked for or known anyway.")
    facets: dict[str, FieldCounts] | None = None
    facets_over: FacetScope | None = None
    candidates: list[Candidate]


class StoredDocument(Answer):
    """A document, in the format of Anserini and Pyserini."""

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
    """A part of a field; `matches` are the character positions of matching words."""

    text: str
    matches: list[list[int]]
    at_start: bool
    at_end: bool


class Explanation(Answer):
    """A part of a score and its summands; other fields are facts about it.

    A term has the `words` of the query that it comes from. `piece`: it is only a piece of them. `added`: it comes from
    no word of the query; a learned model or query expansion added it.
    """

    name: str
    score: float
    parts: list[Explanation] | None = None


class FoundPlace(Answer):
    """Where a text stands: title and headings, first and last page, and its characters in the text of the document."""

    breadcrumb: list[str]
    pages: list[int] | None = None
    start: int
    end: int


class FoundDocument(Answer):
    """A document that was found."""

    id: str
    score: float
    rank: int
    passage: int | None = None
    place: FoundPlace | None = Field(None, description="Of a document with an outline or a passage: where it stands.")
    document: dict[str, Any]
    highlights: dict[str, Snippet] | None = None
    explanation: Explanation | None = None


class FacetCount(Answer):
    """A value or a bucket of values, and how many documents have it."""

    value: str | float | bool
    count: int
    filter: str | None = Field(None, description="Of a bucket the filter that selects it.")


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
    did_you_mean: str | None = Field(None, description="The query without what may be typing errors.")
    corrected: str | None = Field(None, description="The query that was searched instead.")
    total: int | None = Field(None, description="How many results all pages have, if asked for or known anyway.")
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
    words: list[str] = Field(description="The words of the text that the term comes from.")
    is_piece: bool = Field(description="Whether the term is only a piece of these words.")


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


class CollectionFacts(Answer):
    """How a collection was created, and its settings."""

    created: str
    model: str
    passages: int | None
    store: bool
    positions: bool
    settings: dict[str, Any]


class IndexAnswer(Answer):
    """An index and its capabilities."""

    name: str
    status: Literal["ready", "stale", "unavailable"]
    reason: str | None = None
    model: str | None = None
    documents: int | None = None
    generation: int | None = None
    collection: CollectionFacts | None = Field(None, description="Of an index that a request has created.")
    words: bool | None = Field(None, description="Whether half-typed words are found, and typing errors corrected.")


class OfferedCollections(Answer):
    """What requests with an admin key may create."""

    may_create: bool = Field(description="Whether this request may, or could with a suitable key.")
    models: list[str] = Field(description="The models that a collection may have, the first by default.")
    quotas: dict[str, int]


class IndexesAnswer(Answer):
    """All indexes of the server."""

    vizsla: str
    write: bool
    collections: OfferedCollections | None = Field(None, description="What requests may create, if they may.")
    judging: bool = Field(description="Whether the server keeps judgements.")
    may_judge: bool = Field(description="Whether this request may judge, or could with a suitable key.")
    keys: bool
    limits: dict[str, float]
    indexes: list[IndexAnswer]


class CollectionAnswer(Answer):
    """A collection that was created or changed."""

    index: str
    generation: int
    created: bool | None = Field(None, description="Whether this request has created it; false: it was there already.")
    collection: CollectionFacts


class DeletedAnswer(Answer):
    """A collection that was deleted."""

    index: str
    deleted: Literal[True]


class SkippedLine(Answer):
    """A line that was left out."""

    reason: str
    file: str | None = None
    line: int | None = None


class SkippedAnswer(Answer):
    """How many lines were left out, and the first of them."""

    count: int
    first: list[SkippedLine]


class WriteAnswer(Answer):
    """What a change did, and the commit in which it can be seen."""

    index: str
    generation: int
    committed: bool | None = None
    added: int | None = None
    replaced: int | None = None
    repeated: int | None = Field(None, description="Documents left out because a later one has the same id.")
    skipped: SkippedAnswer | None = Field(None, description="What was left out, with skip_bad.")
    updated: int | None = Field(None, description="Documents of which fields were changed.")
    missing: list[str] | None = Field(None, description="Ids of changes for which there is no document.")
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
    """The measures of one model: means, values by query, and the share of unjudged documents in its top 10."""

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
    """The health of the server."""

    status: str
    indexes: dict[str, str] | None = None


def documented(model: type[Answer]) -> dict[int | str, dict[str, Any]]:
    """The answer of a route, for its documentation."""
    return {200: {"model": model}}


# Requests

# What the server refuses in sentences of its own, as the description of the API has it.
WITH_WORDS: dict[str, Any] = {"pattern": r"\S"}
_FROM_ZERO: dict[str, Any] = {"minimum": 0}
Number = Annotated[float, Field(allow_inf_nan=False)]
ConditionBody = StrictStr | dict[str, Any]
FilterBody = ConditionBody | Annotated[list[ConditionBody], Field(max_length=100)]
_CONDITION = 'A condition, as in `year >= 1999 and lang = "en"`, or fields with the values they must have.'
_FILTER = f"{_CONDITION} All conditions of a list must hold."
_MODEL = "A model that reads the same postings, as in `bm25(k1=1.2)`, a part of the index's own, or a served name."


_SYNTAX = (
    '`lucene` reads the query as Lucene\'s query language: `+dogs "big cats"~2 -title:fish`. '
    "`typing` reads plain words of which the last may be half typed."
)
_LANGUAGE = (
    "Of documents in several languages, the one that the query is analysed in, as in `de` or `de,en`; default: all."
)
_TYPOS = (
    "`suggest` says in `did_you_mean` what may be meant by words that the collection does not have; `on` searches for "
    "that, and says so in `corrected`."
)
_PASSAGES = "How many passages of a document there may be among the results, in an index of passages."
_WINDOW = "How many passages before and after each are shown with it; `document`: all of them."
_MAX_TOKENS = "The best results whose texts have at most so many tokens together, about."
_TOTAL = "Count all results exactly: `total` says how many all pages have."
_OFFSET = "How many of the best results to skip, for paging."
_GENERATION = "Answer from this commit or a later one."


class Body(BaseModel):
    """A body with no other fields than those named."""

    model_config = ConfigDict(extra="forbid")


class HighlightBody(Body):
    """How matching words are shown."""

    fields: list[StrictStr] | None = Field(None, max_length=20, description="Default: the fields the model reads.")
    width: int = Field(240, ge=20, le=2000, description="About how many characters a snippet has.")


_FACETS = (
    "Fields; in parentheses ranges or a unit of dates: `year(..1900, 1900..1950)`, `published(month)`. "
    "May be empty, to count only documents."
)


class FacetsBody(Body):
    """Which values are counted."""

    fields: list[StrictStr] = Field(max_length=20, description=_FACETS)
    over: Literal["all"] | Annotated[StrictInt, Field(ge=1)] = Field(
        "all", description="`all` counts all matching documents exactly; a number counts only that many of the best."
    )
    size: int = Field(10, ge=1, le=1000, description="How many values of a field, the most frequent first.")


class ModelChoice(Body):
    """How queries are scored; by default with the index's own model."""

    model: StrictStr | None = Field(None, max_length=1000, description=_MODEL)
    weights: list[Number] | None = Field(None, max_length=16, description="Weights of the parts of the own model.")
    expand: StrictStr | None = Field(None, max_length=200, description="Query expansion, as in `rm3`.")


class QueryReading(Body):
    """How queries are parsed and analysed; by default as plain words, in every language of the index."""

    syntax: Literal["lucene", "typing"] | None = Field(None, description=_SYNTAX)
    language: StrictStr | None = Field(None, max_length=200, description=_LANGUAGE)


class SearchBody(ModelChoice, QueryReading):
    """A search: one query, many queries, or documents like one."""

    query: StrictStr | None = Field(None, json_schema_extra=WITH_WORDS)
    queries: list[Annotated[StrictStr, Field(json_schema_extra=WITH_WORDS)]] | None = None
    like: StrictStr | StrictInt | None = Field(None, description="The id of a document: find others like it.")
    k: StrictInt = Field(
        10, description="How many results; 0 for facets or a total only.", json_schema_extra=_FROM_ZERO
    )
    offset: StrictInt = Field(0, description=_OFFSET, json_schema_extra=_FROM_ZERO)
    sort: StrictStr | None = Field(None, max_length=200, description="A field to sort results by; `-year`: descending.")
    collapse: StrictStr | None = Field(None, max_length=200, description="A field: the best result of each value.")
    min_score: Number | None = Field(None, description="Only results with this score or a higher one.")
    filter: FilterBody | None = Field(None, description=_FILTER)
    combine: StrictStr | None = Field(None, max_length=200, description="`sum`, `union` or `rrf`, for a sum of parts.")
    search_params: StrictStr | None = Field(None, max_length=200, description="As in `ef_search=200` or `exact`.")
    rerank: StrictStr | None = Field(None, max_length=100, description="The name of a reranker of the server.")
    depth: StrictInt = Field(100, ge=1, le=1000, description="How many documents are reranked.")
    typos: Literal["off", "suggest", "on"] | None = Field(None, description=_TYPOS)
    total: StrictBool = Field(False, description=_TOTAL)
    passages: StrictInt = Field(1, ge=1, le=1000, description=_PASSAGES)
    window: Annotated[StrictInt, Field(ge=0, le=1000)] | Literal["document"] = Field(0, description=_WINDOW)
    max_tokens: StrictInt | None = Field(None, ge=1, description=_MAX_TOKENS)
    fields: list[StrictStr] | None = Field(None, max_length=100, description="Fields to return; default: all.")
    highlight: StrictBool | HighlightBody = Field(False, description="Snippets with the places of matching words.")
    explain: StrictBool = Field(False, description="Why each document has its score.")
    facets: FacetsBody | None = None
    generation: StrictInt | None = Field(None, description=_GENERATION)


_JSON_PARAMETERS = frozenset({"weights", "fields", "highlight", "facets"})


class SearchParameters(BaseModel):
    """The parameters of a search by GET: those of `SearchBody`, but for several queries; lists and objects are JSON.

    `query`, `hits` (the same as `k`) and `parse` are also those of Anserini and Pyserini.
    """

    model_config = ConfigDict(extra="forbid")

    query: str | None = Field(None, json_schema_extra=WITH_WORDS)
    hits: int | None = Field(None, description="The same as k.")
    parse: bool = Field(True, description="false gives each document as its JSON text.")
    like: str | None = Field(None, description="The id of a document: find others like it.")
    k: int = Field(10, description="How many results; 0 for facets or a total only.", json_schema_extra=_FROM_ZERO)
    offset: int = Field(0, description=_OFFSET, json_schema_extra=_FROM_ZERO)
    sort: str | None = Field(None, max_length=200, description="A field to sort results by; `-year`: descending.")
    collapse: str | None = Field(None, max_length=200, description="A field: the best result of each value.")
    min_score: Number | None = Field(None, description="Only results with this score or a higher one.")
    filter: str | None = Field(None, description=_CONDITION)
    model: str | None = Field(None, max_length=1000, description=_MODEL)
    weights: str | None = Field(None, max_length=1000, description="As in `[1, 0.5]`.")
    expand: str | None = Field(None, max_length=200)
    combine: str | None = Field(None, max_length=200)
    search_params: str | None = Field(None, max_length=200, description="As in `ef_search=200` or `exact`.")
    rerank: str | None = Field(None, max_length=100, description="The name of a reranker of the server.")
    depth: int = Field(100, ge=1, le=1000, description="How many documents are reranked.")
    fields: str | None = Field(None, max_length=10_000, description='Fields to return, as in `["title", "year"]`.')
    highlight: str | None = Field(None, max_length=10_000, description="`true`, or an object as in a search by POST.")
    explain: bool = Field(False, description="Why each document has its score.")
    facets: str | None = Field(None, max_length=10_000, description='As in `{"fields": ["lang"]}`.')
    generation: int | None = Field(None, description=_GENERATION)
    syntax: Literal["lucene", "typing"] | None = Field(None, description=_SYNTAX)
    language: str | None = Field(None, max_length=200, description=_LANGUAGE)
    typos: Literal["off", "suggest", "on"] | None = Field(None, description=_TYPOS)
    total: bool = Field(False, description=_TOTAL)
    passages: int = Field(1, ge=1, le=1000, description=_PASSAGES)
    window: Annotated[int, Field(ge=0, le=1000)] | Literal["document"] = Field(0, description=_WINDOW)
    max_tokens: int | None = Field(None, ge=1, description=_MAX_TOKENS)

    def as_body(self) -> SearchBody:
        """The same search as one by POST; what is no JSON, or no such JSON, is a ValueError."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"hits", "parse"}}
        if self.hits is not None:
            given.setdefault("k", self.hits)
        if given.keys().isdisjoint(_JSON_PARAMETERS):  # all is checked
            return _ANY_SEARCH.model_copy(update=given)
        for name in _JSON_PARAMETERS & given.keys():
            given[name] = parse_json(given[name])
        return SearchBody.model_validate(given)


_ANY_SEARCH = SearchBody.model_validate({})


class ExplainBody(ModelChoice, QueryReading):
    """A query and a document whose score is explained."""

    query: StrictStr = Field(json_schema_extra=WITH_WORDS)
    id: StrictStr | StrictInt
    filter: FilterBody | None = Field(None, description=_FILTER)
    generation: StrictInt | None = Field(None, description=_GENERATION)


class DocumentsBody(Body):
    """The documents to return."""

    ids: list[StrictStr | StrictInt] = Field(max_length=1000)
    generation: StrictInt | None = Field(None, description=_GENERATION)


class DeleteBody(Body):
    """The documents to delete: by id, or by a filter."""

    ids: list[StrictStr | StrictInt] | None = Field(None, min_length=1)
    filter: FilterBody | None = Field(None, description=_FILTER)


_DESCRIPTION = "What the collection is, for people."
_READ_ONLY = "Whether its documents cannot be changed."
_MOST_DOCUMENTS = "How many documents it may have; null: as many as the server allows."
_MOST_BYTES = "How large it may become on disk; null: as large as the server allows."
_Quota = Annotated[StrictInt, Field(ge=0, le=1 << 60)]


class SettingsBody(Body):
    """New settings of a collection; those that are left out stay."""

    description: StrictStr = Field("", max_length=1000, description=_DESCRIPTION)
    read_only: StrictBool = Field(False, description=_READ_ONLY)
    documents: _Quota | None = Field(None, description=_MOST_DOCUMENTS)
    bytes: _Quota | None = Field(None, description=_MOST_BYTES)


class CollectionBody(SettingsBody):
    """A new collection."""

    model: StrictStr | None = Field(None, max_length=100, description="One of the server's; null: the first of them.")
    passages: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = Field(
        None, description="Cut documents into passages of so many words."
    )
    store: StrictBool = Field(True, description="Keep the texts that the model reads.")
    positions: StrictBool = Field(False, description="Keep where words stand, so that phrases are found fast.")


class JudgementBody(Body):
    """How well a document answers a query."""

    query: StrictStr = Field(json_schema_extra=WITH_WORDS)
    id: StrictStr | StrictInt
    grade: Annotated[StrictInt, Field(ge=0, le=3)] | None = Field(
        description="0 is not relevant, 1 to 3 are relevant; null forgets the judgement."
    )


class SystemBody(ModelChoice):
    """A model and the way it is searched with."""

    combine: StrictStr | None = Field(None, max_length=200)
    rerank: StrictStr | None = Field(None, max_length=100)


class MeasuresBody(Body):
    """Models to be measured on the judged queries."""

    models: list[StrictStr | SystemBody] = Field(min_length=1, max_length=4)
    measures: list[StrictStr] = Field(["nDCG@10", "P@5", "R@10", "RR"], min_length=1, max_length=12)
    depth: StrictInt = Field(100, ge=1, le=1000)


# JSON

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def json_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; halves of surrogate pairs, which UTF-8 does not have, are escaped.

    >>> json_bytes({"a": "\\u00e9"}).decode()
    '{"a":"é"}'
    """
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return _encode_ascii(value).encode()
