"""What every request passes: who asks, how much, how long; and what every answer has: headers, a line in the log.

A request takes one of a worker's places when its body has arrived. So clients that send slowly, or never end, keep
nobody else out.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from vizsla.errors import VizslaError
from vizsla.server.errors import RequestError, UnavailableError
from vizsla.server.hosting import public_error
from vizsla.server.logs import access_line
from vizsla.server.schemas import json_bytes
from vizsla.server.service import Service
from vizsla.server.settings import Keys, is_loopback

# The types of ASGI: what servers and applications say to each other

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


# Who asks: keys, and what each allows


class Rights(NamedTuple):
    """What the sender of a request may do besides reading."""

    write: bool = False
    judge: bool = False
    admin: bool = False
    needs_key: bool = False
    """Whether the request lacks a valid key: none was sent, or an unknown one."""
    problem: str = ""
    """Why a key is needed, as a sentence."""

    @property
    def may_judge_later(self) -> bool:
        """Whether judging is possible now or after the user enters a key."""
        return self.judge or self.needs_key


def check_write(scope: Scope) -> None:
    """Refuse a request whose sender may not change an index."""
    rights: Rights = scope["vizsla.rights"]
    if not rights.write:
        raise _no_right(rights, "this key may not write; use the key of a line 'write KEY'")


def check_judge(scope: Scope) -> None:
    """Refuse a request whose sender may not write judgements."""
    rights: Rights = scope["vizsla.rights"]
    if not rights.judge:
        raise _no_right(rights, "this key may not judge; use the key of a line 'judge KEY' or 'write KEY'")


def check_admin(scope: Scope) -> None:
    """Refuse a request whose sender may not create or delete collections."""
    rights: Rights = scope["vizsla.rights"]
    if not rights.admin:
        raise _no_right(rights, "this key may not create or delete collections; use the key of a line 'admin KEY'")


def _no_right(rights: Rights, sentence: str) -> RequestError:
    return _needs_key(rights.problem) if rights.needs_key else RequestError(rights.problem or sentence, 403)


def _needs_key(sentence: str) -> RequestError:
    return RequestError(sentence, 401, {"WWW-Authenticate": "Bearer"})


class AccessControl:
    """Who may do what. Keys are stored as hashes, which are compared in constant time."""

    def __init__(self, keys: Keys, host: str) -> None:
        self._hashes = {kind: [_hash(key.encode()) for key in given] for kind, given in asdict(keys).items()}
        self._has_keys = bool(keys)
        self._without_keys = Rights(write=True, judge=True, admin=True)
        if not is_loopback(host):
            self._without_keys = Rights(
                write=True,
                problem="judgements need a key if other machines can reach the server; start it with --keys FILE and a "
                "line 'judge KEY'",
            )

    def rights(self, headers: dict[bytes, bytes]) -> Rights:
        """What a request may do; 401 if it may not even read."""
        if not self._has_keys:
            return self._without_keys
        sent = _key_of(headers)
        given = _hash(sent)
        known = {
            kind: sum(hmac.compare_digest(given, one) for one in hashes) > 0 for kind, hashes in self._hashes.items()
        }
        if any(known.values()):
            may_write = known["write"] or known["admin"]
            return Rights(may_write, may_write or known["judge"], known["admin"])
        problem = "the key that was sent is not known here; send one that is, as" if sent else "a key is needed: send"
        problem += " Authorization: Bearer KEY or X-API-Key: KEY"
        if self._hashes["read"]:
            raise _needs_key(problem)
        return Rights(needs_key=True, problem=problem)


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _key_of(headers: dict[bytes, bytes]) -> bytes:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")


# How much: bodies on their way

WITH_BODY = ("POST", "PUT", "PATCH")


def too_large(limit: int) -> RequestError:
    """The answer to a body that is too large."""
    return RequestError(
        f"the body has more than {limit:,} bytes, the most this server reads", 413, {"Connection": "close"}
    )


def has_body(scope: Scope) -> bool:
    """Whether a request announces a body and has a method whose body is read."""
    headers = dict(scope["headers"])
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    return has_body and scope["method"] in WITH_BODY


class Place:
    """A slot: a worker answers a limited number of requests at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.is_taken = False

    def take(self, always: bool = False) -> None:
        """Take a slot; 429 if none is free, unless it must `always` succeed."""
        if not always and self._service.in_flight >= self._service.settings.limits.in_flight:
            raise HTTPException(429, "too many requests at a time; try again later", {"Retry-After": "1"})
        self._service.in_flight += 1
        self.is_taken = True

    def leave(self) -> None:
        """Release the slot."""
        self._service.in_flight -= self.is_taken
        self.is_taken = False


class PendingBodies:
    """The bodies that are being received. If there are more than `most`, the one that was idle longest is dropped."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._waiting: dict[asyncio.Timeout, None] = {}  # those that wait longest are first

    async def message(self, receive: Receive) -> Message:
        """The next message of a body; 408 if it does not arrive in time or is dropped."""
        try:
            async with asyncio.timeout(self._seconds) as wait:
                if len(self._waiting) >= self._most:
                    longest = next(iter(self._waiting))
                    del self._waiting[longest]
                    longest.reschedule(asyncio.get_running_loop().time())
                self._waiting[wait] = None
                try:
                    return await receive()
                finally:
                    self._waiting.pop(wait, None)
        except TimeoutError:
            raise too_slow() from None


def too_slow() -> HTTPException:
    """The response to a body that does not arrive in time."""
    return HTTPException(408, "the body of the request came too slowly")


class Body:
    """Receives the body of a request, and takes a slot when it has arrived. Routes read messages by calling it.

    An upload always gets a slot: its client has already sent a lot, and writes wait in their own queue.
    """

    def __init__(self, receive: Receive, waits: PendingBodies, place: Place, limit: int, is_upload: bool) -> None:
        self._receive, self._waits, self._place = receive, waits, place
        self._left = self._limit = limit
        self._is_upload = is_upload

    async def __call__(self) -> Message:
        if self._place.is_taken:  # the body has arrived: the next message is the end of the connection
            return await self._receive()
        message = await self._waits.message(self._receive)
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise HTTPException(413, str(too_large(self._limit)))
            if not message.get("more_body", False):
                self._place.take(always=self._is_upload)
        return message


# The gate

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
PROBES = ("/healthz", "/readyz")
"""What takes no key, and any Host header."""
_OPEN_TO_ALL = ("/openapi.json", "/docs", "/favicon.ico", "/")
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_UPLOAD = "/documents"
_LOOK = 0.2  # seconds after which to check whether a request's client has disconnected
log = logging.getLogger("vizsla.server")


def no_deadline(scope: Scope) -> None:
    """Remove the deadline of a request."""
    scope["vizsla.timeout"].reschedule(None)


@contextmanager
def _ending_with_client(receive: Receive, place: Place, timeout: asyncio.Timeout) -> Iterator[None]:
    """Cancel a request when its client has disconnected, which is checked once it has taken some time."""
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if timeout.when() is not None:  # an upload that has arrived is written even if its client is gone
            timeout.reschedule(loop.time())

    def begin() -> None:
        nonlocal watching
        if place.is_taken:  # its body has arrived: the next message is the end of the connection
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
        self._log_format = settings.log_format
        self._waits = PendingBodies(settings.limits.bodies, settings.limits.seconds)
        self._doors = AccessControl(settings.keys, settings.host)
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
        if scope["method"] == "HEAD":  # handled like GET, but the body is not sent
            scope = {**scope, "method": "GET"}
        place = Place(self._service)
        try:
            self._admit(scope, place)
            async with asyncio.timeout(self._limits.seconds) as timeout:
                scope["vizsla.timeout"] = timeout
                body = Body(receive, self._waits, place, self._body_limit(scope), _is_upload(scope))
                with _ending_with_client(receive, place, timeout):
                    await self._app(scope, body, answered)
        except asyncio.CancelledError:  # the server is stopping, and its grace period is over
            await answered.refuse(UnavailableError("the server is being stopped; try again later"))
        except TimeoutError:
            await answered.refuse(self._too_late(scope, place))
        except VizslaError as e:
            await answered.refuse(self._public(e, scope))
        except HTTPException as e:
            await answered.refuse(_refusal(e))
        except Exception:
            if not answered.is_error:  # otherwise it has been logged already
                log.exception("a request ended with an unexpected error")
            await answered.refuse(RequestError("an unexpected error occurred in the server; see its log", 500))
        finally:
            place.leave()
            self._record(scope, answered.status, time.perf_counter() - started)

    def _public(self, error: VizslaError, scope: Scope) -> RequestError:
        """The public form of an error, without paths of this machine."""
        return public_error(error, scope.get("vizsla.hosted"))

    def _too_late(self, scope: Scope, place: Place) -> RequestError:
        if has_body(scope) and not place.is_taken:
            return _refusal(too_slow())
        return RequestError(f"this took more than {self._limits.seconds:g} seconds; ask for less", 504)

    def _admit(self, scope: Scope, place: Place) -> None:
        """Check a request before anything is done for it. A request without a body takes its slot here."""
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        if path in PROBES:
            return
        self._check_host(headers)
        if path in _OPEN_TO_ALL or path.startswith("/page/"):
            return
        if method in CHANGING:
            self._check_origin(headers)
        if method != "OPTIONS":
            scope["vizsla.rights"] = self._doors.rights(headers)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._body_limit(scope):
            raise too_large(self._body_limit(scope))
        if not has_body(scope):
            place.take()

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse foreign host names, against DNS rebinding: a site may let its name resolve to this machine."""
        if self._hosts:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name not in self._hosts:
                raise RequestError("this server does not serve this host name; add it with --allow-host", 421)

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
        if not self._access_log or route in (*PROBES, "/metrics"):
            return
        asked = route
        if self._log_texts:
            asked = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        elif "path_params" in scope and "index" in scope["path_params"]:
            asked = route.replace("{index}", scope["path_params"]["index"])
        client = scope["client"][0] if scope.get("client") else "-"
        facts = {"client": client, "method": scope["method"], "path": asked[:2000], "status": status}
        facts["milliseconds"] = round(1000 * seconds, 1)
        sys.stderr.write(access_line(self._log_format, facts) + "\n")


def _is_upload(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.endswith(_UPLOAD) and path.startswith("/v1/")


def _refusal(error: HTTPException) -> RequestError:
    return RequestError(str(error.detail), error.status_code, dict(error.headers or {}))


class _Answered:
    """Sends a response with the common headers, and remembers its status."""

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
