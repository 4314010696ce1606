"""An index that a vizsla server serves, as a collection: `vizsla.open("http://localhost:8080/my")`.

`remote_calls.py` describes the calls once. Here are the two ways to send them, and the two clients: `RemoteIndex`, and
`AsyncRemoteIndex` for programs with an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import re
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast
from urllib.parse import unquote, urlsplit

from vizsla import __version__
from vizsla.datasets import RawLines
from vizsla.errors import CannotExplainError, UnsupportedError, VizslaError, kind_of
from vizsla.index import Added, AsyncCollection, AsyncCollectionView, Collection, CollectionView
from vizsla.models import Model
from vizsla.plain_data import parse_json
from vizsla.retrievers.locations import LOCATIONS
from vizsla.retrievers.remote_calls import (
    Call,
    Calls,
    CollectionProperties,
    CollectionSettings,
    Pieces,
    RemoteKeywords,
    Request,
    meet,
)
from vizsla.runs import Document, Retriever

if TYPE_CHECKING:
    import httpx2

VARIABLE = "VIZSLA_API_KEY"
"""The environment variable that holds the key, unless it is given as an argument."""
MAX_WAIT = 30.0
"""The longest Retry-After in seconds that is honoured; if a server asks for more, the request fails at once."""
_TRIED_AGAIN = (429, 502, 503)
_UNSUPPORTED = 422
_EXAMPLE = "as in http://localhost:8080/my"

P = ParamSpec("P")
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
class Timeouts:
    """How long to wait for a server, in seconds, and how many times to try again; see `RemoteIndex`."""

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
        """Seconds to wait after an attempt, counted from 0: exponential backoff with jitter."""
        return float(min(0.2 * 2**attempt, 5.0) * random.uniform(0.5, 1.0))


class ConnectionSettings(TypedDict, total=False):
    """How a server is reached; see `RemoteIndex`."""

    key: str | None
    timeout: float
    connect_timeout: float
    write_timeout: float
    retries: int


class CreationOptions(ConnectionSettings, CollectionProperties, total=False):
    """What a collection of a server is created with, and how the server is reached."""


def _parted(options: CreationOptions) -> tuple[ConnectionSettings, CollectionProperties]:
    """How the server is reached, and what the collection is created with."""
    settings = {name: value for name, value in options.items() if name in ConnectionSettings.__annotations__}
    properties = {name: value for name, value in options.items() if name not in settings}
    return cast("ConnectionSettings", settings), cast("CollectionProperties", properties)


@dataclass
class _Connection:
    """What both kinds of connection share: how requests are made, and what follows from an answer or a failure."""

    server: str
    timeouts: Timeouts
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

    @classmethod
    def to(
        cls,
        where: Address,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        write_timeout: float = 600.0,
        retries: int = 3,
    ) -> Self:
        """A connection to the server of an index."""
        return cls(where.server, Timeouts(connect_timeout, timeout, write_timeout, retries), key)

    def _arguments(self, request: Request) -> dict[str, Any]:
        """The arguments of the httpx2 request."""
        if self.closed:
            raise VizslaError(f"{self.server}: the connection has been closed")
        http, timeouts = _httpx2(), self.timeouts
        read = timeouts.write if request.writes else timeouts.read
        arguments: dict[str, Any] = {
            "method": request.method,
            "url": self.server + request.path,
            "timeout": http.Timeout(read, connect=timeouts.connect),
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
        """Seconds to wait before a failed request is retried; raises an error if a retry is pointless.

        All requests are idempotent: reads change nothing, and writing the same twice leaves the same documents.
        """
        http = _httpx2()
        last = attempt >= self.timeouts.retries
        if not isinstance(outcome, Exception):
            wanted = _seconds(outcome.headers.get("retry-after"))
            if last or outcome.status_code not in _TRIED_AGAIN or (wanted or 0) > MAX_WAIT:
                raise self._refusal(outcome)
            return max(self.timeouts.pause(attempt), wanted or 0.0)
        passes = isinstance(outcome, http.NetworkError | http.ConnectTimeout | http.RemoteProtocolError)
        if last or not passes:
            raise self._failure(outcome)
        return self.timeouts.pause(attempt)

    def _failure(self, error: httpx2.HTTPError) -> VizslaError:
        """Why there is no answer."""
        http = _httpx2()
        if isinstance(error, http.ConnectTimeout):
            return self._error(f"no connection within {self.timeouts.connect:g} s; is the server running there?")
        if isinstance(error, http.ConnectError | http.ProxyError):
            return self._error(f"the server cannot be reached ({error}); is it running, and is the address right?")
        if isinstance(error, http.TimeoutException):
            return self._error("the server took too long to answer; ask for less, or give a larger timeout")
        if isinstance(error, http.NetworkError | http.RemoteProtocolError):
            return self._error("the server closed the connection before its response was complete; try again")
        return self._error(f"the response of the server cannot be read ({type(error).__name__}: {error})")

    def _refusal(self, response: httpx2.Response) -> VizslaError:
        """What a server says when it refuses."""
        status = response.status_code
        try:
            sentence = parse_json(response.content)["error"]
        except (ValueError, KeyError, TypeError):
            sentence = None
        if isinstance(sentence, str):
            hint = f"; give a key as key= or in {VARIABLE}" if status == 401 and VARIABLE not in sentence else ""
            cannot = CannotExplainError if response.url.path.endswith("/explain") else UnsupportedError
            refusal = (cannot if status == _UNSUPPORTED else VizslaError)(f"{self.server}: {sentence}{hint}")
            refusal.has_lines = "\n" in sentence  # a mistake in a query, shown in its place
            return refusal
        if 300 <= status < 400:
            return self._error("the server redirects to another address; open that address")
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
        """Close all connections; no more requests can be sent."""
        self.closed = True
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self.server, self.timeouts, self.key, self.closed)


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
        """Close all connections; no more requests can be sent."""
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


class _Client:
    """What both clients are: a connection, and the calls to one index."""

    def __init__(self, connection: _Connection, calls: Calls) -> None:
        self._connection = connection
        self._calls = calls
        self.name = calls.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {self.name}>"

    @property
    def address(self) -> str:
        """Where the index is served."""
        return f"{self._connection.server}/{self._calls.index}"


def _call(call: Callable[Concatenate[Calls, P], Call[T]]) -> Callable[Concatenate[_Answered, P], T]:
    """A method of the synchronous client: it makes the call, and gives its result."""

    @wraps(call)
    def method(self: _Answered, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._connection.run(call(self._calls, *arguments, **options))

    method.__doc__ = call.__doc__ or inspect.getdoc(getattr(Collection, call.__name__))
    return _with_result(method, call)


def _with_result(method: T, call: Callable[..., Any]) -> T:
    """A method whose signature says what it gives, not how it is asked for."""
    signature = inspect.signature(call)
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return method


class _Answered(_Client):
    """The calls that read, each answered when it is made."""

    _connection: Connection

    search = _call(Calls.search)
    search_many = _call(Calls.search_many)
    run = _call(Calls.run)
    get = _call(Calls.get)
    get_many = _call(Calls.get_many)
    explain = _call(Calls.explain)
    facets = _call(Calls.facets)
    count = _call(Calls.count)
    similar = _call(Calls.similar)
    suggest = _call(Calls.suggest)
    term_statistics = _call(Calls.term_statistics)
    info = _call(Calls.info)

    def __len__(self) -> int:
        """How many documents there are now."""
        return self.count()


class RemoteView(_Answered, CollectionView):
    """An index of a server, searched in one way. It shares the connections of its `RemoteIndex`: close that one."""

    def with_model(self, model: str | Model | None = None, **options: Unpack[RemoteKeywords]) -> RemoteView:
        """The same index, searched with another model or in another way. What the server cannot do is refused here.

        `model`: a text, as in `bm25(k1=1.2)`. `weights`: of the parts of the index's own model. `expand`: a query
        expander, as in `rm3`. `rerank`: the name of a reranker of the server, and `depth`: how many documents it reads.
        For `combine`, `search_params`, `syntax` and `language` see `Collection.search_many`.
        """
        return RemoteView(self._connection, self._connection.run(self._calls.with_model(model, **options)))


class RemoteIndex(RemoteView, Collection):
    """An index that a vizsla server serves: a `Collection`. Ids and scores are those of the `Index` behind it.

    `address`: the server and the name of the index, as in `http://localhost:8080/my`; the name may be left out if the
    server has only one index. `key`: the API key of the server, by default the environment variable VIZSLA_API_KEY.
    `timeout`: how many seconds to wait for a response, and for the next part of one; by default 60. `connect_timeout`:
    the same for connecting; 5. `write_timeout`: the same for requests that add or delete documents, `commit` and
    `compact`; 600. `retries`: how many times a request is sent again after a temporary failure; 3. That is no
    connection, a dropped connection, a server that is busy or starting. All requests are idempotent: reading changes
    nothing, and writing the same twice leaves the same documents.

    What is added or deleted is visible after `commit`, and every later search of this object sees it, whichever process
    of the server answers. Use it as a context manager, or call `close`. All methods may be called from any thread.
    """

    def __init__(self, address: str, **settings: Unpack[ConnectionSettings]) -> None:
        where = Address.parse(address)
        connection = Connection.to(where, **settings)
        try:
            calls = connection.run(meet(where.server, where.index))
        except BaseException:
            connection.close()
            raise
        super().__init__(connection, calls)

    add = _call(Calls.add)

    @classmethod
    def create(cls, address: str, **options: Unpack[CreationOptions]) -> RemoteIndex:
        """A new, empty index on a server that was started with `--collections`; this needs an admin key if it has keys.

        `options`: `model`, a name of the server's list; `passages`, `store` and `positions` as in `Index.create`; the
        settings of `configure`; and how the server is reached, as in `RemoteIndex`. An index that was created in the
        same way is opened as it is.
        """
        where, settings, properties = Address.parse(address), *_parted(options)
        with closing(Connection.to(where, **settings)) as connection:
            connection.run(Calls(where.index).create(properties))
        return cls(address, **settings)

    configure = _call(Calls.configure)
    drop = _call(Calls.drop)
    update = _call(Calls.update)
    delete = _call(Calls.delete)
    commit = _call(Calls.commit)
    rollback = _call(Calls.rollback)
    compact = _call(Calls.compact)
    refresh = _call(Calls.refresh)
    wait_for = _call(Calls.wait_for)

    @property
    def generation(self) -> int:
        """The number of the commit that searches see."""
        return self._connection.run(self._calls.generation())

    def close(self) -> None:
        """Free the connections."""
        self._connection.close()


class AsyncRemoteView(_Client, AsyncCollectionView):
    """An index of a server, searched in one way. It shares the connections of its `AsyncRemoteIndex`."""

    _connection: AsyncConnection

    async def _call(self, method: str, /, *arguments: Any, **options: Any) -> Any:
        return await self._connection.run(getattr(Calls, method)(self._calls, *arguments, **options))

    async def with_model(self, model: str | Model | None = None, **options: Unpack[RemoteKeywords]) -> AsyncRemoteView:
        """The same index, searched with another model or in another way; see `RemoteIndex.with_model`."""
        return AsyncRemoteView(self._connection, await self._connection.run(self._calls.with_model(model, **options)))


class AsyncRemoteIndex(AsyncRemoteView, AsyncCollection):
    """An index that a vizsla server serves: an `AsyncCollection`, `RemoteIndex` for the tasks of one event loop.

        async with AsyncRemoteIndex("http://localhost:8080/my") as index:
            hits = await index.search("barking dogs")

    Outside of `async with`, await `open` first and `close` last. The arguments are those of `RemoteIndex`, and so are
    the methods, `await index.generation()` included.
    """

    def __init__(self, address: str, **settings: Unpack[ConnectionSettings]) -> None:
        self._where = Address.parse(address)
        super().__init__(AsyncConnection.to(self._where, **settings), Calls(self._where.index))

    async def open(self) -> Self:
        """Connect to the server and check that the index can be searched."""
        try:
            self._calls = await self._connection.run(meet(self._where.server, self._where.index))
        except BaseException:
            await self.close()
            raise
        self.name = self._calls.name
        return self

    @classmethod
    async def create(cls, address: str, **options: Unpack[CreationOptions]) -> AsyncRemoteIndex:
        """A new, empty index on a server, which is open; see `RemoteIndex.create`."""
        settings, properties = _parted(options)
        index = cls(address, **settings)
        try:
            await index._connection.run(index._calls.create(properties))
        except BaseException:
            await index.close()
            raise
        return await index.open()

    async def configure(self, **settings: Unpack[CollectionSettings]) -> dict[str, Any]:
        """Change settings of the collection; see `RemoteIndex.configure`."""
        return await self._connection.run(self._calls.configure(**settings))

    async def drop(self) -> None:
        """Delete the collection from the server, with all its documents, with an admin key."""
        await self._connection.run(self._calls.drop())

    async def wait_for(self, generation: int) -> int:
        """Wait until searches see a commit of any client, or a later one; returns the generation they see."""
        return await self._connection.run(self._calls.wait_for(generation))

    async def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines] | AsyncIterable[Document | Mapping[str, Any]],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Send documents, in pieces while they are read; see `Collection.add`. `commit` makes them findable."""
        if not isinstance(documents, AsyncIterable):
            return await self._connection.run(self._calls.add(documents, workers=workers, skip_bad=skip_bad))
        pieces = Pieces(skip_bad=skip_bad)
        async for document in documents:
            if piece := pieces.take(document):
                pieces.sent(await self._connection.ask(self._calls.piece(piece, skip_bad=skip_bad)))
        if piece := pieces.rest():
            pieces.sent(await self._connection.ask(self._calls.piece(piece, skip_bad=skip_bad)))
        return pieces.added

    async def close(self) -> None:
        """Free the connections."""
        await self._connection.close()


@LOCATIONS.register("http", help="An index that a vizsla server serves: http://localhost:8080/my", needs=("httpx2",))
def open_http(location: str) -> Retriever:
    """The index at an address; the key is that of the environment variable VIZSLA_API_KEY."""
    return RemoteIndex(location)


@LOCATIONS.register("https", help="The same over an encrypted connection.", needs=("httpx2",))
def open_https(location: str) -> Retriever:
    """The index at an address; the key is that of the environment variable VIZSLA_API_KEY."""
    return RemoteIndex(location)
