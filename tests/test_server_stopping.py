"""What a server does with work that takes too long: it ends at the time limit, with its client, and with the server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from served import build, served
from vizsla import Index, stopping
from vizsla.server.routes import operations
from vizsla.server.settings import Limits
from waiting import LIMIT, eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "pets.index", [{"id": "1", "text": "A dog barks."}, {"id": "2", "text": "A cat."}])


class SlowDogs:
    """Searches for dogs go on until they are stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()
        search_many = Index.search_many

        def slow(index: Index, queries: list[str], *arguments: object, **options: object) -> object:
            if "dog" not in queries:
                return search_many(index, queries, *arguments, **options)  # type: ignore[arg-type]
            self.begun.set()
            try:
                eventually(stopping.check)  # which raises an error
            finally:
                self.stopped.set()

        monkeypatch.setattr(Index, "search_many", slow)


def test_the_work_ends_at_the_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served({"pets": folder}, limits=Limits(seconds=0.3)) as client:
        dogs = SlowDogs(monkeypatch)

        def began() -> bool:
            answer = client.get("/v1/pets/search", query="dog")
            assert (answer.status, answer.error) == (504, "this took more than 0.3 seconds; ask for less")
            return dogs.begun.is_set()

        eventually(began)  # its time may be over before the search begins
        assert dogs.stopped.wait(LIMIT)  # not only the answer ends
        eventually(lambda: client.get("/v1/pets/search", query="cat").status == 200)  # has as little time


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_work_ends_when_its_client_hangs_up(folder: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    with served({"pets": folder}, limits=Limits(seconds=3600)) as client:
        dogs = SlowDogs(monkeypatch)
        parts = urlsplit(client.url)
        body = json.dumps({"query": "dog"}) if method == "POST" else ""
        path = "/v1/pets/search" + ("?query=dog" if method == "GET" else "")
        kind = "content-type: application/json\r\n" if body else ""
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            head = f"{method} {path} HTTP/1.1\r\nhost: {parts.netloc}\r\n{kind}content-length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())
            assert dogs.begun.wait(LIMIT)
        assert dogs.stopped.wait(LIMIT)
        assert client.get("/v1/pets/search", query="cat").status == 200


def test_readiness_tells_that_searches_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "BUSY", 0.05)
    monkeypatch.setattr("vizsla.server.service.processors", lambda: 1)
    with served({"pets": folder}, limits=Limits(seconds=3600)) as client:
        begun, goes_on = threading.Event(), threading.Event()
        search_many = Index.search_many

        def slow(index: Index, queries: list[str], *arguments: object, **options: object) -> object:
            if "dog" in queries:
                begun.set()
                assert goes_on.wait(LIMIT)
            return search_many(index, queries, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Index, "search_many", slow)
        assert client.get("/readyz").status == 200
        waiting = [
            threading.Thread(target=client.get, args=("/v1/pets/search",), kwargs={"query": query})
            for query in ("dog", "cat")
        ]
        waiting[0].start()
        assert begun.wait(LIMIT)
        waiting[1].start()
        eventually(lambda: client.get("/readyz").status == 503)
        assert client.get("/readyz").data == {"status": "not ready", "indexes": {"pets": "busy"}}
        goes_on.set()
        for thread in waiting:
            thread.join()
        assert client.get("/readyz").status == 200


SERVER = """
import sys, time
from vizsla import stopping
from vizsla.index import Index
from vizsla.server import running
from vizsla.server.settings import Settings

running.GRACE = 7
search_many = Index.search_many

def slow(index, queries, *arguments, **options):
    if "dog" in queries:
        print("searching", flush=True)
    while "dog" in queries:
        if sys.argv[2] == "stops":
            stopping.check()
        time.sleep(0.01)
    return search_many(index, queries, *arguments, **options)

Index.search_many = slow
opened = running.bind("127.0.0.1", 0)
settings = Settings(indexes={"pets": sys.argv[1]}, access_log=False)
running.serve(settings, opened, lambda: print(running.url_of(opened), flush=True))
print("ended", flush=True)
"""


@pytest.mark.parametrize("search", ["stops", "does not stop"])
def test_a_server_ends_though_a_search_does_not(folder: Path, search: str) -> None:
    command = [sys.executable, "-c", SERVER, str(folder), search]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()

        def ask() -> None:
            with pytest.raises(OSError):
                urllib.request.urlopen(f"{url}/v1/pets/search?query=dog", timeout=LIMIT).read()

        asking = threading.Thread(target=ask)
        asking.start()
        assert server.stdout.readline() == "searching\n"
        server.send_signal(signal.SIGTERM)
        output, errors = server.communicate(timeout=LIMIT)
        asking.join()
    assert server.returncode == 0
    assert "Traceback" not in errors
    assert output.endswith("ended\n")


def test_a_request_asks_for_so_many_results_at_most(folder: Path) -> None:
    with served({"pets": folder}) as client:
        answer = client.post("/v1/pets/search", {"queries": ["cat"] * 1000, "k": 1000})
        assert answer.status == 400
        assert answer.error == (
            "1000 queries with 1000 results each are 1000000, and this server gives at most 100000 a request; "
            "send fewer queries at a time"
        )
        assert client.post("/v1/pets/search", {"queries": ["cat"] * 100, "k": 1000}).status == 200
        assert client.get("/v1/indexes").data["limits"]["results"] == 100_000
