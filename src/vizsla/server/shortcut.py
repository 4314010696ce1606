"""The way of `GET /v1/{index}/search`, the request that comes most often, past all that it does not need.

It reads the same parameters and gives the same answer as the route of the API. Beside the search it takes less than
half of the processor time.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from pydantic import ValidationError

from vizsla.errors import VizslaError
from vizsla.server.asgi import App, Receive, Scope, Send
from vizsla.server.bodies import SearchParameters
from vizsla.server.hosting import public_error
from vizsla.server.json_text import json_bytes
from vizsla.server.searching import answer_parameters
from vizsla.server.service import Service

ROUTE = "/v1/{index}/search"
_PATH = re.compile(r"/v1/([^/]+)/search")


class Shortcut:
    """Wraps an application, and answers searches by GET itself."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        hosted = None if found is None else self._service.hosting.indexes.get(found[1])
        asked = None if hosted is None else _parameters(scope["query_string"])
        if hosted is None or asked is None:  # the application says what is wrong
            await self._app(scope, receive, send)
            return
        scope["vizsla.route"], scope["path_params"] = ROUTE, {"index": hosted.name}
        try:
            status, body, more = 200, await answer_parameters(self._service, hosted, asked), {}
        except VizslaError as e:
            refused = public_error(e, hosted)
            status, body, more = refused.status, json_bytes({"error": str(refused)}), refused.headers
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in more.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _parameters(query_string: bytes) -> SearchParameters | None:
    """The parameters of a request; None if there is something wrong with them."""
    given = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    try:
        return SearchParameters.model_validate(given)
    except ValidationError:
        return None
