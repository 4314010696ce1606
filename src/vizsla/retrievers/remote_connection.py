"""Connections to a vizsla server: timeouts, what is tried again, and errors in one sentence each."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from vizsla import __version__
from vizsla.errors import CannotExplainError, VizslaError, kind_of
from vizsla.plain_data import parse_json
from vizsla.retrievers.remote_calls import Call, Request

if TYPE_CHECKING:
    import httpx2

VARIABLE = "VIZSLA_API_KEY"
"""The environment variable that holds the key, unless it is given as an argument."""
MAX_WAIT = 30.0
"""Seconds that a server may ask us to wait before we try again; if it asks for more, we give up at once."""
_TRIED_AGAIN = (429, 502, 503)
_CANNOT_EXPLAIN = 422
_EXAMPLE = "as in http://localhost:8080/my"

T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """Where an index is served: the address of the server and the name of the index, empty if it is left out.

    >>> Address.parse("http://localhost:8080/dogs")
    Address(server='http://localhost:8080', index='dogs')
    >>> Address.parse("https://example.org/search/").server
    'https://example.org/search'
    """

    server: str
    index: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address from its text: what comes after the last slash is the name of the index."""
        try:
            parts = urlsplit(text.strip())
            host, _ = parts.hostname, parts.port
        except ValueError as e:
            raise VizslaError(f"{_without_secrets(text)!r} is not an address ({e}); expected one {_EXAMPLE}") from None
        if parts.scheme.lower() not in ("http", "https") or not host:
            raise VizslaError(f"{_without_secrets(text)!r} is not an address; expected one {_EXAMPLE}")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise VizslaError(
                f"an address has no user, password, query or fragment; give a key as key= or in {VARIABLE}"
            )
        folder, _, name = parts.path.rpartition("/")
        folder = re.sub(r"(^|/)v1/?$", "", folder.rstrip("/"))  # of the API itself
        return cls(f"{parts.scheme.lower()}://{parts.netloc}{folder}", unquote(name))

    def __str__(self) -> str:
        return f"{self.server}/{self.index}"


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, in seconds, and how often to try again; see `RemoteIndex`."""

    connect: float
    read: float
    write: float
    retries: int

    def __post_init__(self) -> None:
        for name in ("connect", "read", "write"):
            if not isinstance(getattr(self, name), int | float) or not getattr(self, name) > 0:
                raise VizslaError(f"a timeout is a number of seconds above 0, not {kind_of(getattr(self, name))}")
        if not isinstance(self.retries, int) or self.retries < 0:
            raise VizslaError(f"retries must be 0 or more, not {kind_of(self.retries)}")

    def pause(self, attempt: int) -> float:
        """Seconds to wait after an attempt, counted from 0: more after each, and never the same for all clients."""
        return float(min(0.2 * 2**attempt, 5.0) * random.uniform(0.5, 1.0))


@dataclass
class _Connection:
    """What both kinds of connection share: how requests are made, and what follows from an answer or a failure."""

    server: str
    patience: Patience
    key: str | None = field(default=None, repr=False)
    closed: bool = False

    def __post_init__(self) -> None:
        _httpx2()
        key = self.key or os.environ.get(VARIABLE)
        if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
            raise VizslaError("the key of the server has characters that a key cannot have")
        self._headers = {"User-Agent": f"vizsla/{__version__}", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def _arguments(self, request: Request) -> dict[str, Any]:
        """What httpx2 is asked to send."""
        if self.closed:
            raise VizslaError(f"{self.server}: the connection has been closed")
        http, patience = _httpx2(), self.patience
        read = patience.write if request.writes else patience.read
        arguments: dict[str, Any] = {
            "method": request.method,
            "url": self.server + request.path,
            "timeout": http.Timeout(read, connect=patience.connect),
        }
        if request.parameters:
            arguments["params"] = dict(request.parameters)
        if request.lines is not None:
            arguments |= {"content": request.lines, "headers": {"Content-Type": "application/x-ndjson"}}
        elif request.body is not None:
            body = json.dumps(request.body, allow_nan=False).encode()
            arguments |= {"content": body, "headers": {"Content-Type": "application/json"}}
        return arguments

    def _judge(self, outcome: httpx2.Response | httpx2.HTTPError, attempt: int) -> float:
        """Seconds until a request is sent again after an outcome that is no answer; raises where that is no use.

        All requests may be repeated: reads change nothing, and writes leave the same documents when they come twice.
        """
        http = _httpx2()
        last = attempt >= self.patience.retries
        if not isinstance(outcome, Exception):
            wanted = _seconds(outcome.headers.get("retry-after"))
            if last or outcome.status_code not in _TRIED_AGAIN or (wanted or 0) > MAX_WAIT:
                raise self._refusal(outcome)
            return max(self.patience.pause(attempt), wanted or 0.0)
        passes = isinstance(outcome, http.NetworkError | http.ConnectTimeout | http.RemoteProtocolError)
        if last or not passes:
            raise self._failure(outcome)
        return self.patience.pause(attempt)

    def _failure(self, error: httpx2.HTTPError) -> VizslaError:
        """Why there is no answer."""
        http = _httpx2()
        if isinstance(error, http.ConnectTimeout):
            return self._error(f"no connection within {self.patience.connect:g} s; is the server running there?")
        if isinstance(error, http.ConnectError | http.ProxyError):
            return self._error(f"the server cannot be reached ({error}); is it running, and is the address right?")
        if isinstance(error, http.TimeoutException):
            return self._error("the server took too long to answer; ask for less, or give a larger timeout")
        if isinstance(error, http.NetworkError | http.RemoteProtocolError):
            return self._error("the server hung up before its answer was complete; try again")
        return self._error(f"the server cannot be understood ({type(error).__name__}: {error})")

    def _refusal(self, response: httpx2.Response) -> VizslaError:
        """What a server says when it refuses."""
        status = response.status_code
        try:
            sentence = parse_json(response.content)["error"]
        except (ValueError, KeyError, TypeError):
            sentence = None
        if isinstance(sentence, str):
            hint = f"; give a key as key= or in {VARIABLE}" if status == 401 and VARIABLE not in sentence else ""
            kind = CannotExplainError if status == _CANNOT_EXPLAIN else VizslaError
            refusal = kind(f"{self.server}: {sentence}{hint}")
            refusal.has_lines = "\n" in sentence  # a mistake in a query, shown in its place
            return refusal
        if 300 <= status < 400:
            return self._error("the server sends us to another address; open that one")
        if status in (502, 503, 504):
            return self._error(f"the server does not answer now (status {status}); try again later")
        return self._error(f"this is not a vizsla server (status {status}); expected an address {_EXAMPLE}")

    def _answer(self, response: httpx2.Response) -> Any:
        """The JSON of an answer."""
        try:
            answer = parse_json(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._error(f"this is not a vizsla server: its answer is not JSON; expected an address {_EXAMPLE}")
        return answer

    def _error(self, sentence: str) -> VizslaError:
        return VizslaError(f"{self.server}: {sentence}")


class Connection(_Connection):
    """Connections to a server, kept for the next requests. Threads may share them; a forked child opens its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._clients: dict[int, httpx2.Client] = {}  # by process

    def run(self, call: Call[T]) -> T:
        """Send the requests of a call one after the other; its result."""
        try:
            request = next(call)
            while True:
                request = call.send(self._ask(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _ask(self, request: Request) -> Any:
        arguments, http, attempt = self._arguments(request), _httpx2(), 0
        while True:
            outcome: httpx2.Response | httpx2.HTTPError
            try:
                outcome = self._client.request(**arguments)
            except http.HTTPError as e:
                outcome = e
            if not isinstance(outcome, Exception) and outcome.is_success:
                return self._answer(outcome)
            time.sleep(self._judge(outcome, attempt))
            attempt += 1

    @property
    def _client(self) -> httpx2.Client:
        client = self._clients.get(os.getpid())
        if client is None:
            made = _httpx2().Client(headers=self._headers)
            client = self._clients.setdefault(os.getpid(), made)
            if client is not made:  # another thread was faster
                made.close()
        return client

    def close(self) -> None:
        """Close all connections; nothing can be asked any more."""
        self.closed = True
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self.server, self.patience, self.key, self.closed)


class AsyncConnection(_Connection):
    """Connections to a server for the tasks of one event loop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own: httpx2.AsyncClient | None = None

    async def run(self, call: Call[T]) -> T:
        """Send the requests of a call one after the other; its result."""
        try:
            request = next(call)
            while True:
                request = call.send(await self.ask(request))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def ask(self, request: Request) -> Any:
        """The answer to one request."""
        arguments, http, attempt = self._arguments(request), _httpx2(), 0
        while True:
            outcome: httpx2.Response | httpx2.HTTPError
            try:
                outcome = await self._client.request(**arguments)
            except http.HTTPError as e:
                outcome = e
            if not isinstance(outcome, Exception) and outcome.is_success:
                return self._answer(outcome)
            await asyncio.sleep(self._judge(outcome, attempt))
            attempt += 1

    @property
    def _client(self) -> httpx2.AsyncClient:
        if self._own is None:
            self._own = _httpx2().AsyncClient(headers=self._headers)
        return self._own

    async def close(self) -> None:
        """Close all connections; nothing can be asked any more."""
        self.closed = True
        if self._own is not None:
            await self._own.aclose()
            self._own = None


def _seconds(text: str | None) -> float | None:
    """The seconds that a header Retry-After asks to wait, as a number or as a date; None if it does not say."""
    try:
        return max(float(text or ""), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(text or "").timestamp() - time.time(), 0.0)
    except ValueError:
        return None


def _without_secrets(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//", re.sub(r"[?#].*", "", text))


def _httpx2() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError:
        raise VizslaError(
            'an address of a server needs the package httpx2; install it with: pip install "vizsla[client]"'
        ) from None
    return httpx2
