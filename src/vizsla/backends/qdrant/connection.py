"""Connections to the servers of a cluster: where one fails another is asked, and errors are one sentence each."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

import httpx
from qdrant_client import QdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.plain_data import parse_json

VARIABLE = "QDRANT_API_KEY"
"""The environment variable that holds the key, unless it is given as an argument."""
OLDEST = (1, 14)
"""The oldest server with all that is needed: formulas over nested prefetches."""
SENDERS = 4
"""Requests of a writer that are under way at once."""
_REFUSED_KEY = (401, 403)
_PASSING = (408, 429, 500, 502, 503, 504)  # may be over soon, or be only this server's
_KEPT = 0  # connections that are kept: on one that is, each answer waits 40 ms for an acknowledgement of its first part
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0  # seconds between two rounds over all servers
_LEADER_LOST = "Strong ordering via leader"
_AGREEMENT = 12  # times the patience while servers are electing a leader, which takes long on busy machines

T = TypeVar("T")


class MissingCollectionError(CollectionError):
    """There is no collection of a name."""


class ExistingCollectionError(CollectionError):
    """There is a collection of a name already."""


class LeaderLostError(CollectionError):
    """The server that puts the changes of a collection in order, strongly, does not answer; others do."""


class Connection:
    """The servers of a cluster. All methods may be called from any thread.

    Any server answers for the whole cluster. The one that answered last is asked first; where it fails, the next one
    is. All that Vizsla sends may be sent twice: reading changes nothing, and writing the same points twice leaves the
    same points. `patience`: how many seconds to go on while no server answers. `options`: more of `QdrantClient`'s own
    arguments, as `verify` for the certificates of TLS.

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
        """A connection through a client that is there already, as one in memory for tests."""
        made = cls([name], patience=0.1)
        made._clients[0] = client
        return made

    def __str__(self) -> str:
        return ", ".join(self.servers)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a connection of its own to the same servers."""
        return _connect, (self.servers, self._key, self._timeout, self._patience, self._options)

    def call(self, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """What a method of the client gives, called with the first server that answers."""
        began, pause, failed = time.monotonic(), _FIRST_WAIT, 0
        while True:
            at = self._at
            try:
                return ask(self._client(at), *arguments, **options)
            except UnexpectedResponse as e:
                if e.status_code not in _PASSING:
                    raise self._refusal(e) from None
                told = _told(e)
                if _LEADER_LOST in told:  # another server would say the same
                    raise LeaderLostError(f"{self}: {told}") from None
                problem = f"answers {e.status_code}: {told}"
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
                with warnings.catch_warnings():  # of a key without TLS, and of another version; both are documented
                    warnings.simplefilter("ignore")
                    self._clients[at] = QdrantClient(
                        **{
                            "url": self.servers[at],
                            "api_key": self._key,
                            "timeout": max(int(self._timeout), 1),
                            "check_compatibility": False,
                            "limits": httpx.Limits(max_keepalive_connections=_KEPT),
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
        told = _told(error)
        if error.status_code in _REFUSED_KEY:
            given = "the key is wrong, or may not do this" if self._key else "it asks for a key"
            return CollectionError(f"{self}: {given} ({told}); set {VARIABLE}")
        if error.status_code == 404 and ("Collection" in told or "collection" in told):
            return MissingCollectionError(f"{self}: {told}")
        if error.status_code == 404 and "Qdrant" not in told and "status" not in str(error.content):
            return CollectionError(f"{self}: this is not a Qdrant server ({told or 'it answers 404'})")
        if error.status_code == 409:
            return ExistingCollectionError(f"{self}: {told}")
        return CollectionError(f"{self}: the server refuses this ({told})")


def _connect(
    servers: Sequence[str], key: str | None, timeout: float, patience: float, options: Mapping[str, Any]
) -> Connection:
    return Connection(servers, key=key, timeout=timeout, patience=patience, options=options)


def _is_undecided(problem: str) -> bool:
    """Whether the servers of a cluster have no leader at the moment, or wait for each other: they soon agree again."""
    return "consensus" in problem or "leader is not established" in problem


def _told(error: UnexpectedResponse) -> str:
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
    return f"gives an answer that makes no sense ({name})"
