"""What every request passes: who asks, how much, how long; and what every answer has: headers, a line in the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException

from vizsla.errors import VizslaError
from vizsla.harmless import harmless
from vizsla.server.arriving import Body, Place, Waits, has_body, too_large, too_slow
from vizsla.server.asgi import App, Message, Receive, Scope, Send
from vizsla.server.errors import RequestError, UnavailableError
from vizsla.server.hosting import public_error
from vizsla.server.json_text import json_bytes
from vizsla.server.rights import Doors
from vizsla.server.service import Service
from vizsla.server.settings import is_loopback

_CSP_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _CSP_PAGE.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_PROBES = ("/healthz", "/readyz")  # by whatever name
_OPEN_TO_ALL = ("/openapi.json", "/docs", "/favicon.ico", "/")
_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_UPLOAD = "/documents"
_LOOK = 0.2  # seconds after which a request's client may have hung up
log = logging.getLogger("vizsla.server")


def no_deadline(scope: Scope) -> None:
    """Let a request take as long as it takes."""
    scope["vizsla.timeout"].reschedule(None)


@contextmanager
def _ending_with_client(receive: Receive, place: Place, timeout: asyncio.Timeout) -> Iterator[None]:
    """End a request at once when its client has hung up. That is looked for when it has taken some time."""
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if timeout.when() is not None:  # an upload that has arrived is written, whoever waits
            timeout.reschedule(loop.time())

    def begin() -> None:
        nonlocal watching
        if place.is_taken:  # its body has arrived: what comes now is the end of the connection
            watching = loop.create_task(watch())

    timer = loop.call_later(_LOOK, begin)
    try:
        yield
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


class Gate:
    """Wraps an application. It answers requests that are refused, and all errors, with one sentence of JSON."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        settings = service.settings
        self._limits = settings.limits
        self._log_texts = settings.log_texts
        self._access_log = settings.access_log
        self._waits = Waits(settings.limits.bodies, settings.limits.seconds)
        self._doors = Doors(settings.keys, settings.host)
        self._origins = frozenset(settings.cors)
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        if not self._hosts and is_loopback(settings.host):
            self._hosts = frozenset({"localhost", "127.0.0.1", "[::1]", settings.host.lower()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        answered = _Answered(send)
        if scope["method"] == "HEAD":  # as GET; the body is left out when it is sent
            scope = {**scope, "method": "GET"}
        place = Place(self._service)
        try:
            self._admit(scope, place)
            async with asyncio.timeout(self._limits.seconds) as timeout:
                scope["vizsla.timeout"] = timeout
                body = Body(receive, self._waits, place, self._body_limit(scope), _is_upload(scope))
                with _ending_with_client(receive, place, timeout):
                    await self._app(scope, body, answered)
        except asyncio.CancelledError:  # the server ends, and has waited as long as it does
            await answered.refuse(UnavailableError("the server is being stopped; try again later"))
        except TimeoutError:
            await answered.refuse(self._too_late(scope, place))
        except VizslaError as e:
            await answered.refuse(self._public(e, scope))
        except HTTPException as e:
            await answered.refuse(_refusal(e))
        except Exception:
            if not answered.is_error:  # else it was logged where it was answered
                log.exception("a request ended with an error that nobody expected")
            await answered.refuse(RequestError("the server made a mistake; its log tells more", 500))
        finally:
            place.leave()
            self._record(scope, answered.status, time.perf_counter() - started)

    def _public(self, error: VizslaError, scope: Scope) -> RequestError:
        """An error as clients may see it, without paths of this machine."""
        hosted = self._service.hosting.indexes.get(scope.get("path_params", {}).get("index", ""))
        return public_error(error, hosted)

    def _too_late(self, scope: Scope, place: Place) -> RequestError:
        if has_body(scope) and not place.is_taken:
            return _refusal(too_slow())
        return RequestError(f"this took more than {self._limits.seconds:g} seconds; ask for less", 504)

    def _admit(self, scope: Scope, place: Place) -> None:
        """Refuse a request before anything is done for it. One without a body takes its place."""
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        if path in _PROBES:
            return
        self._check_host(headers)
        if path in _OPEN_TO_ALL or path.startswith("/page/"):
            return
        if method in _CHANGING:
            self._check_origin(headers)
        if method != "OPTIONS":
            scope["vizsla.rights"] = self._doors.rights(headers)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._body_limit(scope):
            raise too_large(self._body_limit(scope))
        if not has_body(scope):
            place.take()

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse names that are not ours: a foreign page may have given its own name the address of this machine."""
        if self._hosts:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name not in self._hosts:
                raise RequestError("this server is not called by this name; name it with --allow-host", 421)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse changes that the page of another site sends."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or "*" in self._origins or origin in self._origins:
            return
        if origin.partition("://")[2] != headers.get(b"host", b"").decode("latin-1"):
            raise RequestError("pages of other sites may not do this; allow them with --cors", 403)

    def _body_limit(self, scope: Scope) -> int:
        return self._limits.upload_bytes if _is_upload(scope) else self._limits.body_bytes

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route: str = scope.get("vizsla.route") or getattr(scope.get("route"), "path", None) or "other"
        self._service.metrics.observe_request(route, status, seconds)
        if not self._access_log or route in (*_PROBES, "/metrics"):
            return
        asked = route
        if self._log_texts:
            asked = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        elif "path_params" in scope and "index" in scope["path_params"]:
            asked = route.replace("{index}", scope["path_params"]["index"])
        client = scope["client"][0] if scope.get("client") else "-"
        moment = time.strftime("%Y-%m-%dT%H:%M:%S")
        sys.stderr.write(
            f"{moment} {client} {scope['method']} {harmless(asked[:2000])} {status} {1000 * seconds:.1f} ms\n"
        )


def _is_upload(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.endswith(_UPLOAD) and path.startswith("/v1/")


def _refusal(error: HTTPException) -> RequestError:
    return RequestError(str(error.detail), error.status_code, dict(error.headers or {}))


class _Answered:
    """Sends an answer, with the headers that all have, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.is_error = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_error = self.status >= 500
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
            if not any(name == b"cache-control" for name, _ in message["headers"]):
                message["headers"].append((b"cache-control", b"no-store"))
        await self._send(message)

    async def refuse(self, error: RequestError) -> None:
        """Answer with an error, unless an answer has begun."""
        if self.status:
            return
        body = json_bytes({"error": str(error)})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
