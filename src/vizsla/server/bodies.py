"""What requests may have in their bodies, as the API documents it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

Number = Annotated[float, Field(allow_inf_nan=False)]
ConditionBody = StrictStr | dict[str, Any]
FilterBody = ConditionBody | Annotated[list[ConditionBody], Field(max_length=100)]
_CONDITION = 'A condition, as in `year >= 1999 and lang = "en"`, or fields with the values they must have.'
_FILTER = f"{_CONDITION} Of a list, all must hold."
_MODEL = "A model that reads the same postings, as in `bm25(k1=1.2)`, a part of the index's own, or a served name."


_SYNTAX = '`lucene` reads the query as Lucene\'s query language: `+dogs "big cats"~2 -title:fish`.'
_GENERATION = "Answer from this commit or a later one."


class Body(BaseModel):
    """A body with no other fields than those named."""

    model_config = ConfigDict(extra="forbid")


class HighlightBody(Body):
    """How matching words are shown."""

    fields: list[StrictStr] | None = Field(None, max_length=20, description="Default: the fields the model reads.")
    width: int = Field(240, ge=20, le=2000, description="About how many characters a snippet has.")


class FacetsBody(Body):
    """Which values are counted."""

    fields: list[StrictStr] = Field(max_length=20, description="May be empty, to count the documents alone.")
    over: Literal["all"] | Annotated[StrictInt, Field(ge=1)] = Field(
        "all", description="`all` counts all documents that match, exactly; a number counts the best so many."
    )
    size: int = Field(10, ge=1, le=1000, description="How many values of a field, the most frequent first.")


class ModelChoice(Body):
    """How queries are scored; the index's own model where nothing is said."""

    model: StrictStr | None = Field(None, max_length=1000, description=_MODEL)
    weights: list[Number] | None = Field(None, max_length=16, description="Weights of the parts of the own model.")
    expand: StrictStr | None = Field(None, max_length=200, description="Query expansion, as in `rm3`.")


class QueryLanguage(Body):
    """How queries are read; as plain words where nothing is said."""

    syntax: Literal["lucene"] | None = Field(None, description=_SYNTAX)


class SearchBody(ModelChoice, QueryLanguage):
    """A search: one query, many queries, or documents like one."""

    query: StrictStr | None = None
    queries: list[StrictStr] | None = None
    like: StrictStr | StrictInt | None = Field(None, description="The id of a document: find others like it.")
    k: StrictInt = Field(10, description="How many results; 0 for facets alone.")
    offset: StrictInt = Field(0, description="How many of the best are left out, for paging.")
    sort: StrictStr | None = Field(None, max_length=200, description="A field to sort all results by; `-year`: down.")
    collapse: StrictStr | None = Field(None, max_length=200, description="A field: the best result of each value.")
    min_score: Number | None = Field(None, description="Only results with this score or a higher one.")
    filter: FilterBody | None = Field(None, description=_FILTER)
    combine: StrictStr | None = Field(None, max_length=200, description="`sum`, `union` or `rrf`, for a sum of parts.")
    search_params: StrictStr | None = Field(None, max_length=200, description="As in `ef_search=200` or `exact`.")
    rerank: StrictStr | None = Field(None, max_length=100, description="The name of a reranker of the server.")
    depth: StrictInt = Field(100, ge=1, le=1000, description="How many documents are reranked.")
    fields: list[StrictStr] | None = Field(None, max_length=100, description="Fields to return; default: all.")
    highlight: StrictBool | HighlightBody = Field(False, description="Snippets with the places of matching words.")
    explain: StrictBool = Field(False, description="Why each document has its score.")
    facets: FacetsBody | None = None
    generation: StrictInt | None = Field(None, description=_GENERATION)


class SearchParameters(BaseModel):
    """The parameters of a search by GET. The first three are Anserini's and Pyserini's, the others Vizsla's own."""

    model_config = ConfigDict(extra="forbid")

    query: str
    hits: int = 10
    parse: bool = Field(True, description="false gives each document as its JSON text.")
    offset: int = 0
    filter: str | None = Field(None, description=_CONDITION)
    model: str | None = Field(None, max_length=1000, description=_MODEL)
    expand: str | None = Field(None, max_length=200)
    combine: str | None = Field(None, max_length=200)
    syntax: Literal["lucene"] | None = Field(None, description=_SYNTAX)


class ExplainBody(ModelChoice, QueryLanguage):
    """A query and a document whose score is explained."""

    query: StrictStr
    id: StrictStr | StrictInt
    filter: FilterBody | None = Field(None, description=_FILTER)
    generation: StrictInt | None = Field(None, description=_GENERATION)


class DocumentsBody(Body):
    """The documents to give."""

    ids: list[StrictStr | StrictInt] = Field(max_length=1000)
    generation: StrictInt | None = Field(None, description=_GENERATION)


class DeleteBody(Body):
    """The documents to delete: by id, or by a filter."""

    ids: list[StrictStr | StrictInt] | None = Field(None, min_length=1)
    filter: ConditionBody | None = Field(None, description=_CONDITION)


class JudgementBody(Body):
    """How well a document answers a query."""

    query: StrictStr
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
