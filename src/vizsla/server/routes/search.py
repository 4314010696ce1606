"""Search, documents, explanations, term statistics and suggestions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from vizsla.runs import document_id
from vizsla.server.errors import NotFoundError, RequestError
from vizsla.server.hosting import Hosted
from vizsla.server.routes import InIndex, InService, answer, ready
from vizsla.server.schemas import (
    WITH_WORDS,
    Candidates,
    DocumentsAnswer,
    DocumentsBody,
    ExplainAnswer,
    ExplainBody,
    SearchAnswer,
    SearchBody,
    SearchParameters,
    StoredDocument,
    SuggestAnswer,
    TermsAnswer,
    documented,
    json_bytes,
)
from vizsla.server.searching import answer_parameters, answer_search, check_query_text, model_name, parsed_filter

router = APIRouter(tags=["Search"])


@router.get("/v1/{index}/search", response_model=None, responses=documented(Candidates))
async def search(
    service: InService, hosted: InIndex, parameters: Annotated[SearchParameters, Query()]
) -> Response:  # `FastPath` answers before a request gets here
    """Search with one query; compatible with Anserini's and Pyserini's servers."""
    return ready(await answer_parameters(service, hosted, parameters))


@router.post("/v1/{index}/search", response_model=None, responses=documented(SearchAnswer))
async def search_with_body(body: SearchBody, service: InService, hosted: InIndex) -> Response:
    """Search with one or many queries, with filters, models, highlights, explanations and facets."""
    return ready(await answer_search(service, hosted, body))


@router.get("/v1/{index}/doc/{docid:path}", response_model=None, responses=documented(StoredDocument))
async def document(docid: str, service: InService, hosted: InIndex, parse: bool = True) -> Response:
    """A document by its id, as in Anserini's and Pyserini's servers."""
    stored = await service.read(hosted.index.get, docid)
    if stored is None:
        raise NotFoundError(f"there is no document with the id {docid[:200]!r}")
    content = {"id": stored.id, **stored.content}
    doc = content if parse else json_bytes(content).decode()
    return answer({"api": "v1", "index": hosted.name, "docid": stored.id, "doc": doc})


@router.post("/v1/{index}/docs", response_model=None, responses=documented(DocumentsAnswer))
async def documents(body: DocumentsBody, service: InService, hosted: InIndex) -> Response:
    """Many documents by their ids; those that are not there are left out."""
    await service.see(hosted, body.generation)
    stored = await service.read(hosted.index.get_many, body.ids)
    rows = [{"id": doc_id, "document": found.content} for doc_id, found in stored.items()]
    return answer({"index": hosted.name, "generation": hosted.generation, "documents": rows})


@router.post("/v1/{index}/explain", response_model=None, responses=documented(ExplainAnswer))
async def explain(body: ExplainBody, service: InService, hosted: InIndex) -> Response:
    """Why a document has its score for a query: a tree whose leaves add up to the score."""
    check_query_text(service.settings.limits, body.query)
    await service.see(hosted, body.generation)
    return answer(await service.read(_explained, hosted, body))


def _explained(hosted: Hosted, body: ExplainBody) -> dict[str, Any]:
    index, doc_id = hosted.index, document_id(body.id)
    model = hosted.models.model(body.model, body.weights, body.expand)
    if index.get(doc_id) is None:
        raise NotFoundError(f"there is no document with the id {doc_id[:200]!r}")
    way: dict[str, Any] = {"model": model, "syntax": body.syntax, "language": body.language}
    explanation = index.explain(body.query, doc_id, parsed_filter(body.filter), **way)
    return {
        "index": hosted.name,
        "model": model_name(hosted, model, body.language),
        "id": doc_id,
        "generation": hosted.generation,
        "explanation": explanation.as_dict(),
    }


@router.get("/v1/{index}/terms", response_model=None, responses=documented(TermsAnswer))
async def terms(
    text: Annotated[str, Query(json_schema_extra=WITH_WORDS)], service: InService, hosted: InIndex
) -> Response:
    """How common the terms of a text are in the collection."""
    check_query_text(service.settings.limits, text)
    found = await service.read(hosted.index.term_statistics, text)
    rows = [row._asdict() for row in found]
    return answer({"index": hosted.name, "generation": hosted.generation, "terms": rows})


@router.get("/v1/{index}/suggest", response_model=None, responses=documented(SuggestAnswer))
async def suggestions(
    service: InService,
    hosted: InIndex,
    prefix: str = "",
    size: Annotated[int, Query(ge=1, le=50)] = 8,
    language: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Words of the collection that complete the last word of what is typed."""
    limit = service.settings.limits.query_characters
    if len(prefix) > limit:
        raise RequestError(f"the prefix has {len(prefix)} characters, and this server reads {limit}")
    found = await service.read(partial(hosted.index.suggest, prefix, size, language=language))
    rows = [{"text": s.text, "documents": s.documents} for s in found]
    return answer({"index": hosted.name, "prefix": prefix, "suggestions": rows})
