"""A server for tests: the real application behind a real socket, in a thread or in processes of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from vizsla import Index
from vizsla.server.running import _Server, bind, url_of
from vizsla.server.settings import Settings
from waiting import LIMIT


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        (key,) = self.data
        assert key == "error", self.data
        return str(self.data["error"])


@dataclass(frozen=True)
class Client:
    """Sends requests one by one, each over its own connection."""

    url: str
    headers: Mapping[str, str]

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        **parameters: object,
    ) -> Answer:
        if parameters:
            path += "?" + urlencode(parameters)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if body is None or isinstance(body, bytes) else {"content-type": "application/json"}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=LIMIT)
        try:
            connection.request(method, path, data, {**kind, **self.headers, **(headers or {})})
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, received, response.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: object) -> Answer:
        return self.send("GET", path, **parameters)

    def post(self, path: str, body: object = None, **parameters: object) -> Answer:
        return self.send("POST", path, body, **parameters)

    def add(self, index: str, documents: list[dict[str, Any]], **parameters: object) -> Answer:
        lines = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        return self.send("POST", f"/v1/{index}/documents", lines, **parameters)

    def with_headers(self, **headers: str) -> Client:
        return Client(self.url, {name.replace("_", "-"): value for name, value in headers.items()})


def doc_path(index: str, doc_id: str) -> str:
    return f"/v1/{index}/doc/{quote(doc_id, safe='')}"


@contextmanager
def served(indexes: Mapping[str, Path | str], **settings: Any) -> Iterator[Client]:
    """The application in a thread of this process."""
    chosen = Settings(indexes={name: str(folder) for name, folder in indexes.items()}, access_log=False, **settings)
    opened = bind("127.0.0.1", settings.get("port", 0))
    ready = threading.Event()
    server = _Server(chosen, ready.set)
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    try:
        assert ready.wait(LIMIT)
        yield Client(url_of(opened), {})
    finally:
        server.should_exit = True
        thread.join(LIMIT)
        opened.close()


@dataclass
class Running:
    """`vizsla serve` as a user starts it."""

    process: subprocess.Popen[str]
    client: Client
    log: list[str]

    def stop(self, number: int = signal.SIGTERM, seconds: float = LIMIT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def workers(self) -> list[int]:
        """The processes that answer: children of the supervisor, without the tracker of resources."""
        return [
            pid for pid in _children(self.process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@contextmanager
def running(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """`vizsla serve` in processes of its own, on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vizsla", "serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    log: list[str] = []
    rest: threading.Thread | None = None
    try:
        url = ""
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"Serving (http\S+)", line):
                url = found[1]
                break
        assert url, "".join(log)
        rest = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        rest.start()
        yield Running(process, Client(url, {}), log)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if rest is not None:
            rest.join(LIMIT)
        for stream in (process.stdout, process.stderr):
            stream.close()


def build(folder: Path, documents: list[dict[str, Any]], model: Any = "bm25", **options: Any) -> Path:
    with Index.create(folder, model, **options) as index:
        index.add(documents)
        index.commit()
    return folder
