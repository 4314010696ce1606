"""Judgements of results, and the measures of models on the judged queries."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response

from vizsla.retrievers import RerankedRetriever
from vizsla.runs import Retriever, document_id
from vizsla.server.errors import NotFoundError, RequestError
from vizsla.server.gate import check_judge
from vizsla.server.hosting import Hosted
from vizsla.server.judgements import JudgedQuery, measures
from vizsla.server.routes import InIndex, InService, answer
from vizsla.server.schemas import (
    JudgementAnswer,
    JudgementBody,
    JudgementsAnswer,
    MeasuresAnswer,
    MeasuresBody,
    SystemBody,
    documented,
)
from vizsla.server.searching import check_query_text
from vizsla.server.service import Service


async def is_judging(service: InService) -> None:
    """Refuse judgements if the server does not accept any."""
    if not service.settings.judging:
        raise RequestError("this server takes no judgements; it was started with --no-judging", 403)


async def may_judge(request: Request) -> None:
    """Refuse judgements from clients that may only read."""
    check_judge(request.scope)


router = APIRouter(tags=["Judging"], dependencies=[Depends(is_judging)])
_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}


@router.put(
    "/v1/{index}/judgements",
    response_model=None,
    responses=documented(JudgementAnswer),
    dependencies=[Depends(may_judge)],
)
async def judge(body: JudgementBody, service: InService, hosted: InIndex) -> Response:
    """Judge how well a document answers a query, or remove the judgement; needs a key that may judge or write."""
    check_query_text(service.settings.limits, body.query)
    return answer(await service.read(_judged, service, hosted, body))


def _judged(service: Service, hosted: Hosted, body: JudgementBody) -> dict[str, Any]:
    doc_id = document_id(body.id)
    if body.grade is not None and hosted.index.get(doc_id) is None:
        raise NotFoundError(f"there is no document with the id {doc_id[:200]!r}")
    count = service.judgements(hosted).set(body.query, doc_id, body.grade)
    return {"query": body.query, "id": doc_id, "grade": body.grade, "judged": count}


@router.get("/v1/{index}/judgements", response_model=None, responses=documented(JudgementsAnswer))
async def judgements(service: InService, hosted: InIndex, query: str | None = None) -> Response:
    """All judged queries with the grades of documents, or one of them."""
    kept = service.judgements(hosted)
    if query is None:
        return answer({"queries": [_query(q) for q in await service.read(kept.queries)]})
    found = await service.read(kept.find, query)
    grades = {} if found is None else found.grades
    return answer({"query": query, "qid": None if found is None else found.qid, "grades": grades})


def _query(query: JudgedQuery) -> dict[str, Any]:
    return {**asdict(query), "judged": query.judged, "relevant": query.relevant}


@router.get("/v1/{index}/judgements/qrels", response_model=None, responses=_FILE)
async def qrels(service: InService, hosted: InIndex, format: Literal["trec", "beir"] = "trec") -> Response:
    """All judgements as qrels; the ids of queries are those of `judgements/queries`.

    `format=beir` has tabs between columns, so ids of documents may have blanks.
    """
    text = await service.read(lambda: service.judgements(hosted).export_qrels(tabs=format == "beir"))
    return _attachment(text, f"{hosted.name}.{'tsv' if format == 'beir' else 'qrels'}")


@router.get("/v1/{index}/judgements/queries", response_model=None, responses=_FILE)
async def queries(service: InService, hosted: InIndex) -> Response:
    """All judged queries as JSON lines."""
    text = await service.read(service.judgements(hosted).export_queries)
    return _attachment(text, f"{hosted.name}.queries.jsonl")


def _attachment(text: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


@router.post("/v1/{index}/judgements/measures", response_model=None, responses=documented(MeasuresAnswer))
async def measured(body: MeasuresBody, service: InService, hosted: InIndex) -> Response:
    """The measures of models on the judged queries. A document that nobody judged counts as not relevant."""
    return answer(asdict(await service.read(_measured, service, hosted, body)))


def _measured(service: Service, hosted: Hosted, body: MeasuresBody) -> Any:
    systems: dict[str, Retriever] = {}
    for given in body.models:
        system = SystemBody.model_validate({"model": given}) if isinstance(given, str) else given
        name, retriever = _retriever(service, hosted, system)
        if name not in systems:
            systems[name] = retriever
    return measures(service.judgements(hosted), systems, body.measures, body.depth)


def _retriever(service: Service, hosted: Hosted, system: SystemBody) -> tuple[str, Retriever]:
    """The name of a system in a table, and its retriever."""
    model = hosted.models.model(system.model, system.weights, system.expand)
    view = hosted.index.with_model(model, combine=system.combine, threads=1)
    name = view.name + (f", {system.combine}" if system.combine else "")
    if system.rerank is None:
        return name, view
    return f"{name}, reranked by {system.rerank}", RerankedRetriever(view, service.hosting.reranker(system.rerank))
