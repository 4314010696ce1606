"""Servers of a cluster: where they are, and how they are asked; where one fails another is asked.

Errors are one sentence each. Queries and points travel as plain JSON, many at a time, since Qdrant's client would make
an object of each.
"""

from __future__ import annotations

import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import httpx
from pydantic_core import from_json, to_json
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.plain_data import parse_json

PORT = 6333
SCHEMES = {"qdrant": "http", "qdrants": "https"}
_EXAMPLE = "as in qdrant://localhost:6333/my"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?")
_FORBIDDEN = '<>:"/\\|?*\0'  # in the name of a collection


@dataclass(frozen=True)
class Address:
    """The servers of a cluster, any of which answers for all, and the name of a collection.

    >>> Address.parse("qdrant://one:6333,two/dogs")
    Address(servers=('http://one:6333', 'http://two:6333'), name='dogs', reweigh=None)
    >>> Address.parse("qdrants://example.org/dogs").servers
    ('https://example.org:6333',)
    >>> Address.parse("qdrant://one/dogs?reweigh=auto").reweigh
    0.01
    """

    servers: tuple[str, ...]
    name: str
    reweigh: float | None = None
    """The drift of the mean length at which a commit renews all weights; None: it does not."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address from its text; `qdrants` is the same over an encrypted connection."""
        scheme, separator, rest = text.strip().partition("://")
        protocol = SCHEMES.get(scheme.lower())
        rest, question, option = rest.partition("?")
        hosts, slash, name = rest.partition("/")
        name = unquote(name.rstrip("/"))
        if "@" in hosts:
            raise VizslaError("the address of a cluster has no user or password; give a key in QDRANT_API_KEY")
        if protocol is None or not separator or not slash or not name:
            raise VizslaError(f"{text!r} is not the address of a collection; expected one {_EXAMPLE}")
        check_name(name)
        servers = []
        for host in hosts.split(","):
            match = _HOST.fullmatch(host.strip())
            if match is None or not 0 < int(match[2] or PORT) < 1 << 16:
                raise VizslaError(f"{host!r} in {text!r} is not a host with a port; expected an address {_EXAMPLE}")
            servers.append(f"{protocol}://{match[1]}:{int(match[2] or PORT)}")
        return cls(tuple(dict.fromkeys(servers)), name, _reweigh(option) if question else None)

    def __str__(self) -> str:
        scheme = "qdrants" if self.servers[0].startswith("https:") else "qdrant"
        hosts = ",".join(server.partition("://")[2] for server in self.servers)
        option = "" if self.reweigh is None else f"?reweigh={self.reweigh}"
        return f"{scheme}://{hosts}/{self.name}{option}"


def _reweigh(option: str) -> float:
    """The drift that the option at the end of an address names."""
    key, _, value = option.partition("=")
    try:
        threshold = THRESHOLD if value == "auto" else float(value)
        if key != "reweigh" or not 0 < threshold < float("inf"):
            raise ValueError
    except ValueError:
        raise VizslaError(
            f"{option!r} at the end of the address is unknown; expected reweigh=auto, or a share of the mean length "
            "above 0, as in reweigh=0.05"
        ) from None
    return threshold


def check_name(name: str) -> None:
    """Refuse a name that a collection cannot have."""
    if not name or len(name) > 200 or any(c in _FORBIDDEN or ord(c) < 32 for c in name):
        raise VizslaError(f"{name!r} cannot be the name of a collection; use letters, digits, - and _")


THRESHOLD = 0.01
"""The drift of the mean length at which weights are renewed, unless another one is named."""
VARIABLE = "QDRANT_API_KEY"
"""The environment variable that holds the key, unless it is given as an argument."""
OLDEST = (1, 14)
"""The oldest server with all that is needed: formulas over nested prefetches."""
SENDERS = 4
"""Concurrent requests of a writer."""
_REFUSED_KEY = (401, 403)
_PASSING = (408, 429, 500, 502, 503, 504)  # may be temporary, or affect only this server
_KEPT = 0  # keep-alive connections: on one, every response is delayed by 40 ms (delayed ACK)
_PLAIN = {"verify": False}  # without TLS no certificates are read, which takes five sixths of the making of a client
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0  # seconds between two rounds over all servers
_LEADER_LOST = "Strong ordering via leader"
_AGREEMENT = 12  # times the usual timeout while servers elect a leader, which takes long on busy machines

T = TypeVar("T")


class MissingCollectionError(CollectionError):
    """There is no collection of a name."""


class ExistingCollectionError(CollectionError):
    """There is a collection of a name already."""


class LeaderLostError(CollectionError):
    """The leader, which orders the changes of a collection, does not respond, but other servers do."""


class Connection:
    """The servers of a cluster. All methods may be called from any thread.

    Any server answers for the whole cluster. The one that answered last is tried first, then the next one. All requests
    of Vizsla are idempotent: writing the same points twice leaves the same points. `patience`: how many seconds to
    retry while no server answers. `options`: further arguments of `QdrantClient`, such as `verify` for TLS
    certificates.

    >>> Connection.of_client(QdrantClient(":memory:")).call(QdrantClient.collection_exists, "dogs")
    False
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: float = 5.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("timeout", timeout), ("patience", patience)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise VizslaError(f"{name} is a number of seconds above 0, not {kind_of(value)}")
        self.servers = tuple(servers)
        self._given_key = key
        self._key = key if key is not None else os.environ.get(VARIABLE) or None
        self._options = dict(options or {})
        self._timeout = timeout
        self._patience = patience
        self._clients: dict[int, QdrantClient] = {}
        self._turn = threading.Lock()
        self._at = 0
        self._closed = False

    @classmethod
    def of_client(cls, client: QdrantClient, name: str = "this client") -> Connection:
        """A connection through an existing client, such as one in memory for tests."""
        made = cls([name], patience=0.1)
        made._clients[0] = client
        return made

    def __str__(self) -> str:
        return ", ".join(self.servers)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a connection of its own to the same servers; a key of the environment it has already."""
        return _connect, (self.servers, self._given_key, self._timeout, self._patience, self._options)

    def call(self, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """The result of a client method, from the first server that answers."""
        began, pause, failed = time.monotonic(), _FIRST_WAIT, 0
        while True:
            at = self._at
            try:
                return ask(self._client(at), *arguments, **options)
            except UnexpectedResponse as e:
                if e.status_code not in _PASSING:
                    raise self._refusal(e) from None
                message = _message_of(e)
                if _LEADER_LOST in message:  # another server would say the same
                    raise LeaderLostError(f"{self}: {message}") from None
                problem = f"answers {e.status_code}: {message}"
            except ResponseHandlingException as e:
                problem = _unreachable(e)
            except ResourceExhaustedResponse as e:
                problem = f"is busy: {e}"
            if self._at == at:
                self._at = (at + 1) % len(self.servers)
            failed += 1
            if failed % len(self.servers) == 0:
                patience = _AGREEMENT * self._patience if _is_undecided(problem) else self._patience
                if time.monotonic() - began > patience:
                    raise CollectionError(self._failure(at, problem))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_WAIT)

    def send(self, ask: Callable[..., Any], name: str, batches: Iterable[Any]) -> None:
        """Call a method that writes to a collection for each of some batches, a few at a time, and wait for all."""
        stream = iter(batches)
        with ThreadPoolExecutor(SENDERS) as pool:
            running: set[Future[Any]] = set()
            while some := list(islice(stream, SENDERS - len(running))):
                running |= {pool.submit(self.call, ask, name, batch, wait=True) for batch in some}
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
            for one in running:
                one.result()

    def check_version(self) -> None:
        """Refuse a server that is too old."""
        version = self.call(QdrantClient.info).version
        numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
        if len(numbers) == 2 and numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise CollectionError(f"{self}: this is Qdrant {version}; {oldest} or newer is needed")

    def close(self) -> None:
        """Close all clients."""
        with self._turn:
            clients, self._clients, self._closed = list(self._clients.values()), {}, True
        for client in clients:
            client.close()

    def _client(self, at: int) -> QdrantClient:
        client = self._clients.get(at)
        if client is not None:
            return client
        with self._turn:
            if self._closed:
                raise CollectionError(f"{self}: the connection has been closed")
            if at not in self._clients:
                with warnings.catch_warnings():  # about a key without TLS and another version; both are documented
                    warnings.simplefilter("ignore")
                    self._clients[at] = QdrantClient(
                        **{
                            "url": self.servers[at],
                            "api_key": self._key,
                            "timeout": max(int(self._timeout), 1),
                            "check_compatibility": False,
                            "limits": httpx.Limits(max_keepalive_connections=_KEPT),
                            **({} if self.servers[at].startswith("https:") else _PLAIN),
                            **self._options,
                        }
                    )
            return self._clients[at]

    def _failure(self, at: int, problem: str) -> str:
        if _is_undecided(problem):
            return f"{self}: the servers could not agree on a change ({problem}); are enough of them running?"
        if len(self.servers) == 1:
            return f"{self.servers[at]} {problem}; is this the address of a Qdrant server, and does it run?"
        return f"none of {self} answers; the last one {problem}; is one of them a Qdrant server that runs?"

    def _refusal(self, error: UnexpectedResponse) -> VizslaError:
        message = _message_of(error)
        if error.status_code in _REFUSED_KEY:
            given = "the key is wrong, or may not do this" if self._key else "it asks for a key"
            return CollectionError(f"{self}: {given} ({message}); set {VARIABLE}")
        if error.status_code == 404 and ("Collection" in message or "collection" in message):
            return MissingCollectionError(f"{self}: {message}")
        if error.status_code == 404 and "Qdrant" not in message and "status" not in str(error.content):
            return CollectionError(f"{self}: this is not a Qdrant server ({message or 'it answers 404'})")
        if error.status_code == 409:
            return ExistingCollectionError(f"{self}: {message}")
        return CollectionError(f"{self}: the server refuses this ({message})")


def _connect(
    servers: Sequence[str], key: str | None, timeout: float, patience: float, options: Mapping[str, Any]
) -> Connection:
    return Connection(servers, key=key, timeout=timeout, patience=patience, options=options)


def _is_undecided(problem: str) -> bool:
    """Whether the servers of a cluster currently have no leader or no consensus, which is usually temporary."""
    return "consensus" in problem or "leader is not established" in problem


def _message_of(error: UnexpectedResponse) -> str:
    """What a server said, on one line."""
    content = error.content
    try:
        said = parse_json(content)["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
    return " ".join(str(said).split())[:300].rstrip(".") or error.reason_phrase


def _unreachable(error: ResponseHandlingException) -> str:
    source = error.source
    name = type(source).__name__
    if "Timeout" in name:
        return "does not answer in time"
    if "Connect" in name or "Protocol" in name or "Read" in name or "Write" in name:
        return f"cannot be reached ({' '.join(str(source).split())[:200] or name})"
    return f"returns an invalid response ({name})"


REQUEST_BYTES = 8_000_000
"""The size of a request in bytes, unless a single point is larger; a server accepts 32 MB."""
MAX_POINTS = 500
"""How many points are sent at once, at most."""

Json: TypeAlias = dict[str, Any]


def as_json(condition: models.Filter) -> Json:
    """A filter as a request has it.

    >>> as_json(models.Filter(must=[models.FieldCondition(key="year", match=models.MatchValue(value=1999))]))
    {'must': [{'key': 'year', 'match': {'value': 1999}}]}
    """
    return condition.model_dump(mode="json", exclude_none=True)


def query_batch(client: QdrantClient, name: str, requests: list[Json]) -> list[list[Json]]:
    """The points that each request finds, as the server returns them: `id`, `score`, `payload`.

    `requests`: bodies of Qdrant's "query points". A client without REST, such as one in memory, is called directly.
    """
    rest = _rest(client)
    if rest is None:
        answers = client.query_batch_points(name, [models.QueryRequest.model_validate(request) for request in requests])
        return [[point.model_dump() for point in answer.points] for answer in answers]
    body = to_json({"searches": requests})
    try:
        return [one["points"] for one in _result(rest, "POST", "/points/query/batch", name, body)]
    except (KeyError, TypeError, ValueError) as e:
        raise ResponseHandlingException(e) from None


def bodies(points: Iterable[Json], *, most: int | None = None, count: int | None = None) -> Iterator[bytes]:
    """Bodies of requests for `upsert`, each with as many points as fit into `most` bytes, and at most `count`.

    `points`: each with `id`, `vector` and `payload`. `most`: by default `REQUEST_BYTES`; a single point may have more.
    `count`: by default `MAX_POINTS`.

    >>> list(bodies([{"id": 1}, {"id": 2}, {"id": 3}], count=2))
    [b'{"points":[{"id":1},{"id":2}]}', b'{"points":[{"id":3}]}']
    """
    most, count = REQUEST_BYTES if most is None else most, MAX_POINTS if count is None else count
    some: list[bytes] = []
    size = empty = len(_body([]))
    for row in map(to_json, points):
        if some and (size + len(row) > most or len(some) >= count):
            yield _body(some)
            some, size = [], empty
        some.append(row)
        size += len(row) + 1
    if some:
        yield _body(some)


def _body(rows: list[bytes]) -> bytes:
    return b'{"points":[%b]}' % b",".join(rows)


def upsert(client: QdrantClient, name: str, body: bytes, *, wait: bool = True) -> None:
    """Write points, given as the body of a request; see `bodies`."""
    rest = _rest(client)
    if rest is None:
        client.upsert(name, [models.PointStruct.model_validate(p) for p in from_json(body)["points"]], wait=wait)
        return
    try:
        _result(rest, "PUT", "/points", name, body, {"wait": "true"} if wait else {})
    except (KeyError, TypeError, ValueError) as e:
        raise ResponseHandlingException(e) from None


def _rest(client: QdrantClient) -> Any:
    """The REST client; None for a client in memory."""
    try:
        return client.http.client
    except NotImplementedError:
        return None


def _result(rest: Any, method: str, path: str, name: str, body: bytes, params: Json | None = None) -> Any:
    """What a server answers to a request that concerns a collection."""
    answer = rest.request(
        type_=Json,
        method=method,
        url="/collections/{collection_name}" + path,
        path_params={"collection_name": name},
        params=params or {},
        headers={"Content-Type": "application/json"},
        content=body,
    )
    return answer["result"]
