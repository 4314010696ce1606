"""Indexes, health, metrics, and the files of the search page."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from fastapi import APIRouter, Request, Response

import vizsla
from vizsla.errors import VizslaError
from vizsla.models import SparseComponent
from vizsla.server.errors import NotFoundError
from vizsla.server.hosting import Hosted
from vizsla.server.metrics import CONTENT_TYPE
from vizsla.server.routes import InIndex, InService, answer
from vizsla.server.schemas import IndexAnswer, IndexesAnswer, StatusAnswer, documented
from vizsla.server.service import Service

router = APIRouter(tags=["Operations"])
BUSY = 5.0
"""If searches wait longer than this many seconds, a worker reports that it is not ready."""
indexes = APIRouter(tags=["Operations"])
page = APIRouter(include_in_schema=False)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}


@indexes.get("/v1/indexes", response_model=None, responses=documented(IndexesAnswer))
async def all_indexes(request: Request, service: InService) -> Response:
    """The indexes of this server, and what it allows."""
    settings = service.settings
    described = await service.read(_all_described, service)
    return answer(
        {
            "vizsla": vizsla.__version__,
            "write": settings.write,
            **_offered(request, service),
            "judging": settings.judging,
            "may_judge": settings.judging and request.scope["vizsla.rights"].may_judge_later,
            "keys": bool(settings.keys),
            "limits": {"k": settings.limits.k, "offset": settings.limits.offset, "queries": settings.limits.queries,
                       "results": settings.limits.results,
                       "query_characters": settings.limits.query_characters, "seconds": settings.limits.seconds},
            "indexes": described,
        }
    )  # fmt: skip


def _all_described(service: Service) -> list[dict[str, Any]]:
    """All indexes; one that cannot be read now, or is deleted meanwhile, does not hide the others."""
    found = []
    for hosted in list(service.hosting.indexes.values()):
        try:
            found.append(describe(service, hosted))
        except VizslaError as e:
            if not hosted.is_gone():
                found.append({"name": hosted.name, "status": "unavailable", "reason": hosted.sentence(e)})
    return found


def _offered(request: Request, service: Service) -> dict[str, Any]:
    collections, rights = service.hosting.collections, request.scope["vizsla.rights"]
    if collections is None:
        return {}
    quotas, may_create = asdict(collections.quotas), rights.admin or rights.needs_key
    return {"collections": {"may_create": may_create, "models": list(collections.models), "quotas": quotas}}


@indexes.get("/v1/{index}", response_model=None, responses=documented(IndexAnswer))
async def index_info(service: InService, hosted: InIndex, generation: int | None = None) -> Response:
    """One index: its model, size and capabilities; `generation`: as of this commit or a later one."""
    await service.see(hosted, generation)
    return answer(await service.read(describe, service, hosted))


def describe(service: Service, hosted: Hosted) -> dict[str, Any]:
    """An index, as the API describes it."""
    if not hosted.is_open:
        return {"name": hosted.name, "status": "unavailable", "reason": hosted.problem}
    index = hosted.index
    info = index.info()
    facets, sort_fields = hosted.fields()
    parts = [
        {
            "name": part.component.name,
            "namespace": part.component.namespace,
            "weight": part.weight,
            "kind": "sparse" if isinstance(part.component, SparseComponent) else "dense",
        }
        for part in index.model.parts
    ]
    same = ("model", "documents", "passages", "deleted", "generation", "stored", "index_bytes", "document_bytes")
    return {
        "name": hosted.name,
        "status": "ready" if hosted.problem is None else "stale",
        **({} if hosted.problem is None else {"reason": hosted.problem}),
        **{name: info.get(name) for name in same},
        **({} if hosted.collection is None else {"collection": hosted.collection.record.public()}),
        "fields": list(index.model.fields),
        "parts": parts,
        "words": index.has_words,
        "models": hosted.models.choices(),
        "expanders": hosted.models.expanders(),
        "rerankers": list(service.settings.rerankers),
        "facets": facets,
        "sort_fields": sort_fields,
    }


@router.get("/healthz", response_model=None, responses=documented(StatusAnswer))
async def healthz() -> Response:
    """Liveness: whether the process responds."""
    return answer({"status": "ok"})


@router.get("/readyz", response_model=None, responses={**documented(StatusAnswer), 503: {"model": StatusAnswer}})
async def readyz(service: InService) -> Response:
    """Readiness: whether all indexes can be searched without long waits; 503 if not."""
    is_busy = service.batcher.longest_wait > BUSY
    open_state = "busy" if is_busy else "ready"
    states = {name: open_state if h.is_open else "unavailable" for name, h in list(service.hosting.indexes.items())}
    is_ready = all(state == "ready" for state in states.values())
    return answer({"status": "ready" if is_ready else "not ready", "indexes": states}, 200 if is_ready else 503)


@router.get("/metrics", response_model=None, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: InService) -> Response:
    """Figures for Prometheus, over all workers."""
    return Response(await service.read(service.metrics.text), media_type=CONTENT_TYPE)


@page.get("/")
async def start() -> Response:
    """The page to search with."""
    return _file("index.html")


@page.get("/docs")
async def docs() -> Response:
    """The page of the API."""
    return _file("docs.html")


@page.get("/favicon.ico")
async def favicon() -> Response:
    """The icon of the page."""
    return _file("favicon.svg")


@page.get("/page/{name}")
async def page_file(name: str, request: Request) -> Response:
    """A file of the page."""
    found = _file(name)
    if request.headers.get("if-none-match") == found.headers["etag"]:
        return Response(status_code=304, headers={"etag": found.headers["etag"]})
    return found


@cache
def _contents() -> dict[str, tuple[bytes, str, str]]:
    """The files of the page by name, each with its type and a hash."""
    from hashlib import sha256

    folder = resources.files("vizsla.server").joinpath("page")
    found = {}
    for file in folder.iterdir():
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            data = file.read_bytes()
            found[file.name] = (data, _TYPES[suffix], f'"{sha256(data).hexdigest()[:16]}"')
    return found


def _file(name: str) -> Response:
    known = _contents()
    if name not in known:
        raise NotFoundError("there is no such page")
    data, kind, tag = known[name]
    return Response(data, media_type=kind, headers={"etag": tag, "cache-control": "no-cache"})
