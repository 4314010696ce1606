"""The routes of the API, grouped by purpose."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Response

from vizsla.errors import in_words
from vizsla.server.errors import RequestError
from vizsla.server.hosting import Hosted
from vizsla.server.schemas import json_bytes
from vizsla.server.service import Service

JSON = "application/json"


async def service_of(request: Request) -> Service:
    """The shared state of this worker. (A function that is not async would be called in a thread, which is slower.)"""
    service: Service = request.app.state.service
    return service


async def hosted_of(request: Request, index: str) -> Hosted:
    """The index that a path names."""
    service: Service = request.app.state.service
    if not service.hosting.is_current(index):
        await service.read(service.hosting.look, index)
    hosted = service.hosting[index]
    request.scope["vizsla.hosted"] = hosted
    return hosted


InService = Annotated[Service, Depends(service_of)]
InIndex = Annotated[Hosted, Depends(hosted_of)]


async def known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not know, instead of ignoring them."""
    if not request.query_params:
        return
    described = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = [parameter["name"] for parameter in described.get("parameters", ()) if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            expected = f"the parameters here are {in_words(known)}" if known else "this address takes none"
            raise RequestError(f"there is no parameter {name[:80]!r}; {expected}")


def answer(value: object, status: int = 200) -> Response:
    """A value as a JSON answer."""
    return ready(json_bytes(value), status)


def ready(body: bytes, status: int = 200) -> Response:
    """A response with a body that is already JSON."""
    return Response(body, status, media_type=JSON)
