"""A server that does as it is told: it answers requests from a list, and keeps what was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Act = Callable[[socket.socket], None]
"""What is done with a connection after a request was read."""

HELLO = {"vizsla": "0.1.0", "limits": {"queries": 50}, "indexes": [{"name": "dogs", "model": "bm25", "documents": 3}]}


@dataclass
class Asked:
    """A request that came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


@dataclass
class Scripted:
    """A server on this machine. `script` has an act for each request; the last one is repeated."""

    script: list[Act]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                headers = {}
                while (text := stream.readline().decode().strip()) != "":
                    name, _, value = text.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0)))
                with self._lock:
                    self.asked.append(Asked(line.decode().strip(), headers, body))
                    act = self.script[0] if len(self.script) == 1 else self.script.pop(0)
                try:
                    act(connection)
                except OSError:
                    return
                if connection.fileno() < 0:
                    return


def answer(value: object = None, status: int = 200, *, text: str | None = None, **headers: str) -> Act:
    """Answer with JSON, or with a text."""
    body = (json.dumps(value) if text is None else text).encode()

    def act(connection: socket.socket) -> None:
        sent = {"content-length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        connection.sendall(f"{head}\r\n".encode() + body)

    return act


def hang_up(connection: socket.socket) -> None:
    """Close the connection without an answer."""
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def hang_up_half_way(connection: socket.socket) -> None:
    """Close the connection in the middle of an answer."""
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"index"')
    hang_up(connection)


def never(connection: socket.socket) -> None:
    """Do not answer as long as the other side waits."""
    connection.recv(1)


@contextmanager
def scripted(*script: Act) -> Iterator[Scripted]:
    """A scripted server, closed at the end."""
    server = Scripted(list(script))
    try:
        yield server
    finally:
        server.close()
