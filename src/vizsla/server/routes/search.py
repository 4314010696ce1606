"""Searching and looking closer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from vizsla.index.inspection import suggest, term_statistics
from vizsla.runs import document_id
from vizsla.server.answers import (
    Candidates,
    ExplainAnswer,
    SearchAnswer,
    StoredDocument,
    SuggestAnswer,
    TermsAnswer,
    documented,
)
from vizsla.server.bodies import ExplainBody, SearchBody
from vizsla.server.errors import NotFoundError, RequestError
from vizsla.server.hosting import Hosted
from vizsla.server.json_text import json_bytes
from vizsla.server.limits import check_page, check_query_text
from vizsla.server.plans import SearchPlan, answer_search, filter_text
from vizsla.server.routes import InIndex, InService, answer, hosted_of, ready, service_of

router = APIRouter(tags=["Search"])


@router.get("/v1/{index}/search", response_model=None, responses=documented(Candidates))
async def search(
    request: Request,
    index: str,
    query: str,
    hits: int = 10,
    parse: bool = True,
    offset: int = 0,
    filter: str | None = None,
    model: str | None = None,
    expand: str | None = None,
    combine: str | None = None,
) -> Response:
    """Search with one query; request and answer are those of Anserini's and Pyserini's servers.

    `parse=false` gives each document as its JSON text. The last five parameters are Vizsla's own.
    """
    service, hosted = service_of(request), hosted_of(request, index)
    limits = service.settings.limits
    check_page(limits, hits, offset)
    if hits < 1:
        raise RequestError(f"hits, the number of results, must be 1 or more, not {hits}")
    text = check_query_text(limits, query)
    chosen = None
    if model is not None or expand is not None:  # a name that is new has to be parsed, off the event loop
        chosen = await service.read(hosted.models.model, model, None, expand)
    plan = SearchPlan(
        hosted, hits, offset, filter_text(filter), chosen, combine, as_pyserini=True, doc_as_text=not parse
    )
    return ready(await service.batcher.submit(plan.key, text, plan.answers))


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


@router.post("/v1/{index}/explain", response_model=None, responses=documented(ExplainAnswer))
async def explain(body: ExplainBody, service: InService, hosted: InIndex) -> Response:
    """Why a document has its score for a query: a tree whose leaves add up to the score."""
    check_query_text(service.settings.limits, body.query)
    return answer(await service.read(_explained, hosted, body))


def _explained(hosted: Hosted, body: ExplainBody) -> dict[str, Any]:
    index, doc_id = hosted.index, document_id(body.id)
    model = hosted.models.model(body.model, body.weights, body.expand)
    if index.get(doc_id) is None:
        raise NotFoundError(f"there is no document with the id {doc_id[:200]!r}")
    explanation = index.explain(body.query, doc_id, filter_text(body.filter), model=model)
    return {
        "index": hosted.name,
        "model": (model or index.model).name,
        "id": doc_id,
        "generation": hosted.generation,
        "explanation": explanation.as_dict(),
    }


@router.get("/v1/{index}/terms", response_model=None, responses=documented(TermsAnswer))
async def terms(text: str, service: InService, hosted: InIndex) -> Response:
    """How common the terms of a text are in the collection."""
    check_query_text(service.settings.limits, text)
    found = await service.read(term_statistics, hosted.index, text)
    rows = [row._asdict() for row in found]
    return answer({"index": hosted.name, "generation": hosted.generation, "terms": rows})


@router.get("/v1/{index}/suggest", response_model=None, responses=documented(SuggestAnswer))
async def suggestions(
    service: InService, hosted: InIndex, prefix: str = "", size: Annotated[int, Query(ge=1, le=50)] = 8
) -> Response:
    """Words of the collection that complete the last word of what is typed."""
    limit = service.settings.limits.query_characters
    if len(prefix) > limit:
        raise RequestError(f"the prefix has {len(prefix)} characters, and this server reads {limit}")
    found = await service.read(suggest, hosted.index, prefix, size)
    rows = [{"text": s.text, "documents": s.documents} for s in found]
    return answer({"index": hosted.name, "prefix": prefix, "suggestions": rows})
