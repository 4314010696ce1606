"""A load generator: clients in a closed loop over connections that stay open, in one thread of one process.

    python bench/load_generator.py < COMMAND.json

COMMAND: {"port", "requests": FILE, "clients", "seconds", "first"}. FILE has a line of JSON for each request:
["GET", "/path"] or ["POST", "/path", "body"]. Each client sends a request, waits for the whole answer, and sends the
next one of the list, which all clients share and which begins again at its end; `first` is where to begin. Prints one
line of JSON: how long it took, the milliseconds of every request, and how many answers had which status. It works
with plain sockets and reads no more of an answer than its length, so that the processors are left to the server.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK = 1 << 18
_PATIENCE = 60.0  # seconds without any answer


class Client:
    """A connection with one request under way."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.socket = self._connect()
        self._answer = b""
        self._missing = 0
        self._chunked = False
        self._head = False
        self.status = 0
        self.started = 0.0

    def _connect(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def send(self, request: bytes) -> None:
        self._answer, self._head, self.status = b"", False, 0
        self.started = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Take what has arrived; returns whether the answer is complete. A closed connection is opened again."""
        data = self.socket.recv(_CHUNK)
        if not data:
            self.socket.close()
            self.socket = self._connect()
            return True
        if not self._head:
            self._answer += data
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._read_head(self._answer[:end], self._answer[end + 4 :])
        elif self._chunked:
            self._answer = (self._answer + data)[-5:]
        else:
            self._missing -= len(data)
        return self._answer.endswith(b"0\r\n\r\n") if self._chunked else self._missing <= 0

    def _read_head(self, head: bytes, rest: bytes) -> None:
        self._head = True
        self.status = int(head[9:12])
        lower = head.lower()
        at = lower.find(b"\r\ncontent-length:")
        self._chunked = at < 0
        if at >= 0:
            self._missing = int(lower[at + 17 :].partition(b"\r\n")[0]) - len(rest)
        elif b"chunked" in lower:
            self._answer = rest[-5:]
        else:
            raise SystemExit("an answer has neither a length nor chunks")


def read_requests(file: str, port: int) -> list[bytes]:
    """The requests of a file as they are sent."""
    found = []
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        method, path, *body = json.loads(line)
        data = body[0].encode() if body else b""
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if body else ""
        found.append(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{kind}\r\n".encode() + data)
    return found


def run(port: int, requests: Iterator[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Send requests for so many seconds, and wait for the last answers."""
    statuses: Counter[int] = Counter()
    milliseconds: list[float] = []
    with selectors.DefaultSelector() as selector:
        connected = [Client(port) for _ in range(clients)]
        began = time.perf_counter()
        for client in connected:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send(next(requests))
        waiting = clients
        while waiting:
            ready = selector.select(_PATIENCE)
            if not ready:
                raise SystemExit(f"no answer for {_PATIENCE:.0f} seconds")
            for key, _ in ready:
                client = key.data
                if not client.receive():
                    continue
                now = time.perf_counter()
                if client.socket is not key.fileobj:  # it was closed and opened again; its request has failed
                    selector.unregister(key.fileobj)
                    selector.register(client.socket, selectors.EVENT_READ, client)
                statuses[client.status] += 1
                milliseconds.append(1000 * (now - client.started))
                if now - began < seconds:
                    client.send(next(requests))
                else:
                    waiting -= 1
                    selector.unregister(client.socket)
                    client.socket.close()
        took = time.perf_counter() - began
    return {"seconds": took, "milliseconds": milliseconds, "statuses": dict(statuses)}


def main() -> None:
    command = json.loads(sys.stdin.read())
    requests = read_requests(command["requests"], command["port"])
    first = command.get("first", 0) % len(requests)

    def endless() -> Iterator[bytes]:
        while True:
            yield from requests[first:]
            yield from requests[:first]

    before = resource.getrusage(resource.RUSAGE_SELF)
    found = run(command["port"], endless(), command["clients"], command["seconds"])
    after = resource.getrusage(resource.RUSAGE_SELF)
    found["own_seconds"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps(found))


if __name__ == "__main__":
    main()
