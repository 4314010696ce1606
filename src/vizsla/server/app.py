"""The application: routes, errors as sentences, the lifespan of a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route

import vizsla
from vizsla.errors import VizslaError
from vizsla.server.collections import no_collection
from vizsla.server.errors import without_paths
from vizsla.server.gate import CHANGING, PROBES, WITH_BODY, App, Gate
from vizsla.server.hosting import Hosted, public_error
from vizsla.server.mcp import McpApp, mcp_server
from vizsla.server.routes import JSON, answer, collections, documents, judging, known_parameters, operations, search
from vizsla.server.schemas import Error
from vizsla.server.searching import FastPath
from vizsla.server.service import Service
from vizsla.server.settings import Settings

log = logging.getLogger("vizsla.server")
_ABOUT = """Search, explain, filter, count and change indexes of Vizsla.

Errors are `{"error": "one sentence"}`. If the server has keys, send `Authorization: Bearer KEY` or `X-API-Key: KEY`.
`GET /v1/{index}/search` and `GET /v1/{index}/doc/{docid}` are compatible with Anserini's and Pyserini's servers."""


@dataclass(frozen=True)
class AppFactory:
    """Makes the application of a worker; it can be sent to other processes."""

    settings: Settings

    def __call__(self) -> App:
        return create_app(self.settings)


def create_app(settings: Settings) -> App:
    """The whole application as one ASGI callable."""
    service = Service(settings)
    app = FastAPI(
        title="Vizsla", version=vizsla.__version__, description=_ABOUT, docs_url=None, redoc_url=None,
        lifespan=_lifespan,
    )  # fmt: skip
    app.state.service = service
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    for router in _ROUTERS:
        app.include_router(router, dependencies=[Depends(known_parameters)])
    for router in (operations.router, operations.page):
        app.include_router(router)
    if settings.mcp:
        app.state.tools = McpApp(lambda: mcp_server(service.hosting), hosts=None)  # the gate checks hosts
        app.router.routes.append(Route("/mcp", endpoint=app.state.tools, include_in_schema=False))
    app.add_exception_handler(VizslaError, _refusal)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _mistake)
    whole: App = FastPath(app, service)
    if settings.cors:
        headers = ["authorization", "content-type", "x-api-key"]
        whole = CORSMiddleware(whole, allow_origins=list(settings.cors), allow_methods=["*"], allow_headers=headers)
    return Gate(whole, service)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description of the API; every error is `{"error": sentence}`."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema["components"]["schemas"]["Error"] = Error.model_json_schema()
        refused = {"$ref": "#/components/schemas/Error"}
        schema["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A key, as `Authorization: Bearer KEY`."},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key."},
        }
        needed = roles()
        for path, operations_of_path in schema["paths"].items():
            for method, operation in operations_of_path.items():
                role = needed[method.upper(), path]
                operation["x-role"] = role
                optional: list[dict[str, Any]] = (
                    [{}] if role in ("none", "read") else []
                )  # to read, a key is needed if there are read keys
                operation["security"] = [] if role == "none" else [*optional, {"bearer": []}, {"key": []}]
                operation["responses"].pop("422", None)
                for status in _refusals(role, method.upper(), path):
                    response = {"description": _REFUSED[status], "content": {JSON: {"schema": refused}}}
                    operation["responses"].setdefault(str(status), response)
        app.openapi_schema = schema
    return app.openapi_schema


_REFUSED = {
    400: "The request is wrong: a name, a type or a value.",
    401: "A key is needed, or the one that was sent is not known.",
    403: "The server, the key or the collection does not allow this.",
    404: "There is no such index, document or reranker.",
    408: "The body came too slowly.",
    409: "Another change is under way, or what is there was made in another way.",
    413: "The body is too large.",
    421: "The server does not serve this host name.",
    422: "An index of this kind cannot do this.",
    429: "Too many requests at a time.",
    500: "The server has made a mistake.",
    503: "The index or the commit cannot be read now.",
    504: "This took too long.",
    507: "There is no room for this.",
}


def _refusals(role: str, method: str, path: str) -> list[int]:
    """The statuses with which a route of the API may refuse a request."""
    if role == "none":
        return []
    found = {400, 401, 421, 429, 500, 503, 504}
    if "{index}" in path:
        found |= {404, 422}
    if method in CHANGING or "/judgements" in path:
        found |= {403}
    if method in WITH_BODY:
        found |= {408, 413}
    if role != "read":
        found |= {409, 507}
    return sorted(found)


_ROUTERS = (operations.indexes, collections.router, search.router, documents.router, judging.router)
_ALL_ROUTERS = (*_ROUTERS, operations.router, operations.page)
_ROLES = {documents.may_write: "write", judging.may_judge: "judge", collections.may_administer: "admin"}


def roles() -> dict[tuple[str, str], str]:
    """The kind of key that each route of the API needs at least, by method and path: read, judge, write or admin.

    A server without keys of a kind may need none, see docs/serving.md; `none` never needs one.
    """
    found = {}
    for route in (route for router in (*_ROUTERS, operations.router) for route in router.routes):
        assert isinstance(route, APIRoute)
        calls = {dependency.dependency for dependency in route.dependencies}
        role = next((role for call, role in _ROLES.items() if call in calls), "read")
        for method in sorted(route.methods or ()):
            found[method, route.path_format] = "none" if route.path in PROBES else role
    return found


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await service.read(service.start)
    polling = asyncio.create_task(service.poll())
    try:
        yield
    finally:
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
        if service.settings.mcp:
            await app.state.tools.close()
        service.close()


async def _refusal(request: Request, error: Exception) -> Response:
    """The answer to a request that Vizsla refuses."""
    assert isinstance(error, VizslaError)
    refused = public_error(error, request.scope.get("vizsla.hosted"))
    found = answer({"error": str(refused)}, refused.status)
    found.headers.update(refused.headers)
    return found


async def _wrong_request(request: Request, error: Exception) -> Response:
    """The answer to a request whose fields have wrong names or types."""
    assert isinstance(error, RequestValidationError)
    return answer({"error": sentence_of(error.errors(), request.headers.get("content-type", ""))}, 400)


def sentence_of(problems: Any, content_type: str = JSON) -> str:
    """What is wrong with a request whose body is of a type, in one sentence.

    >>> sentence_of([{"loc": ("body", "k"), "msg": "Input should be a valid integer", "type": "int_type"}])
    'k: input should be a valid integer'
    """
    first = problems[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["loc"] == ("body",) and first["type"] in ("missing", "model_attributes_type"):
        if content_type.partition(";")[0].strip().lower() != JSON:
            return "the body must be JSON and say so: send it with the header Content-Type: application/json"
        return "the body must be a JSON object with named fields, as in {...}"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place[:200]} is not known here"
    if first["type"] == "json_invalid":
        return f"the body is not JSON ({first.get('ctx', {}).get('error', 'it cannot be parsed')})"
    message = str(first["msg"])
    return without_paths(f"{place}: {message[:1].lower()}{message[1:]}")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is nothing at this address; see /docs", 405: "this address does not take this method"}
    found = answer({"error": sentences.get(error.status_code, str(error.detail))}, error.status_code)
    found.headers.update(error.headers or {})
    if error.status_code == 405:  # the error knows those of one route, in any order
        allowed = _allowed(request) or sorted(found.headers.get("allow", "").split(", "))
        found.headers["allow"] = ", ".join(allowed)
    return found


def _allowed(request: Request) -> list[str]:
    """The methods that an address takes, those of all routes with its path."""
    routes = [route for router in _ALL_ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    paths = [route.path for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes if route.path in paths[:1] for method in route.methods or ()})


async def _gone(request: Request, error: Exception) -> Response:
    """The response to a client that has disconnected; it is not sent."""
    del request, error
    return Response(status_code=499)


async def _mistake(request: Request, error: Exception) -> Response:
    """The response to an unexpected error of the server; one beside the deletion of its index is expected."""
    hosted: Hosted | None = request.scope.get("vizsla.hosted")
    if hosted is not None and hosted.is_gone():
        return answer({"error": str(no_collection(hosted.name))}, 404)
    log.error("a request to %s ended with an unexpected error", request.scope["path"], exc_info=error)
    return answer({"error": "an unexpected error occurred in the server; see its log"}, 500)
