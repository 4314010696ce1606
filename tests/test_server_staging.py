"""A server that dies right after a commit does not apply what it had staged a second time; one that is stopped ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from qdrant_compared import documents
from qdrant_server import address, nodes
from served import Client, build, served
from vizsla import Index, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.server.writes import Staging
from waiting import LIMIT

# Commits what is staged, as a server does, and dies when the first commit is made.
DIES = """
import os, sys
from pathlib import Path
from vizsla.backends.qdrant.writer import QdrantWriter
from vizsla.index import Writer
from vizsla.server import writes
from vizsla.server.hosting import Hosted
from vizsla.server.settings import Limits, Settings
from vizsla.server.writes import Staging

location, staged = sys.argv[1:]
hosted = Hosted("dogs", location, Settings(indexes={"dogs": location}))
hosted.open()
for kind in (Writer, QdrantWriter):
    def commit(self, commit=kind.commit):
        commit(self)
        os._exit(9)
    kind.commit = commit
writes.commit(hosted, Staging(Path(staged)), Limits())
"""


def die_after_the_commit(location: Path | str, staged: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DIES, str(location), str(staged)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 9, ended.stderr


def text_of(client: Client, doc_id: str) -> str | None:
    found = client.post("/v1/dogs/search", {"query": "dog", "k": 100}).data["results"][0]["hits"]
    return next((hit["document"]["text"] for hit in found if hit["id"] == doc_id), None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "dogs.index", [{"id": str(n), "text": "a dog", "year": 1990 + n} for n in range(10)])


@pytest.fixture
def staging(folder: Path) -> Staging:
    return Staging(folder.with_name("dogs.index.serve") / "staged")


def test_a_newer_version_is_not_replaced_by_what_was_committed_before(folder: Path, staging: Staging) -> None:
    with served({"dogs": folder}, write=True) as client:
        client.add("dogs", [{"id": "a", "text": "a dog, staged"}], commit="false")
        client.send("POST", "/v1/dogs/delete", {"ids": ["1"]}, commit="false")
    die_after_the_commit(folder, staging.folder)
    assert len(staging.changes()) == 2
    with Index.open(folder) as index:
        assert index.get("a")["text"] == "a dog, staged"
        index.add([{"id": "a", "text": "a dog, newer"}, {"id": "1", "text": "a dog, again"}])
        index.commit()
    with served({"dogs": folder}, write=True) as client:
        client.add("dogs", [{"id": "b", "text": "a dog"}], commit="false")
        answer = client.post("/v1/dogs/commit").data
        assert (answer["added"], answer["replaced"], answer["deleted"]) == (1, 0, 0)
        assert text_of(client, "a") == "a dog, newer"
        assert text_of(client, "1") == "a dog, again"
    assert staging.changes() == []


def test_a_commit_in_between_is_noted_too(folder: Path, staging: Staging) -> None:
    """What comes before a deletion by filter is committed first, and only that is not applied again."""
    with served({"dogs": folder}, write=True) as client:
        client.add("dogs", [{"id": "a", "text": "a dog, staged", "year": 2020}], commit="false")
        client.send("POST", "/v1/dogs/delete", {"filter": "year < 1995"}, commit="false")
        client.add("dogs", [{"id": "b", "text": "a dog", "year": 1}], commit="false")
    die_after_the_commit(folder, staging.folder)
    with Index.open(folder) as index:
        assert len(index) == 11
        index.add([{"id": "a", "text": "a dog, newer", "year": 2021}])
        index.commit()
    with served({"dogs": folder}, write=True) as client:
        answer = client.post("/v1/dogs/commit").data
        assert (answer["added"], answer["deleted"]) == (1, 5)
        assert text_of(client, "a") == "a dog, newer"
        assert text_of(client, "b") == "a dog"


def test_two_servers_with_staged_changes_of_their_own(folder: Path, tmp_path: Path) -> None:
    states = [tmp_path / "one", tmp_path / "two"]
    for state in states:
        with served({"dogs": folder}, write=True, state=str(state)) as client:
            client.add("dogs", [{"id": state.name, "text": "a dog, staged"}], commit="false")
        die_after_the_commit(folder, state / "dogs" / "staged")
    with Index.open(folder) as index:
        index.add([{"id": state.name, "text": "a dog, newer"} for state in states])
        index.commit()
    for state in states:
        with served({"dogs": folder}, write=True, state=str(state)) as client:
            assert client.post("/v1/dogs/commit").data["added"] == 0
            assert text_of(client, state.name) == "a dog, newer"


def test_a_newer_version_in_a_cluster(tmp_path: Path) -> None:
    with nodes(tmp_path / "nodes") as (node,):
        where, state = address([node], "dogs"), tmp_path / "state"
        with QdrantIndex.create(where) as index:
            index.add(documents(5))
            index.commit()
        staging = Staging(state / "dogs" / "staged")
        with served({"dogs": where}, write=True, state=str(state)) as client:
            client.add("dogs", [{"id": "a", "text": "a dog, staged"}], commit="false")
        die_after_the_commit(where, staging.folder)
        with QdrantIndex(where) as index:
            index.add([{"id": "a", "text": "a dog, newer"}])
            index.commit()
        with served({"dogs": where}, write=True, state=str(state)) as client:
            assert client.post("/v1/dogs/commit").data["added"] == 0
            assert text_of(client, "a") == "a dog, newer"
        assert staging.changes() == []
        with QdrantIndex(where) as index, index.writer() as first, index.writer() as second:
            for writer in (first, second):
                writer.notes()
                writer.set_note("staged", ["1"])
            first.commit()
            with pytest.raises(VizslaError, match="another writer has committed the same changes; try again"):
                second.commit()


def test_notes_are_committed_with_the_documents_or_not_at_all(folder: Path) -> None:
    with Index.open(folder, memory=1) as index:
        with index.writer() as writer:
            assert writer.notes() == {}
            writer.set_note("read", 7)
            writer.add([{"id": str(i), "text": f"a dog w{i}"} for i in range(100, 140)])  # makes a segment at once
            writer.rollback()
            assert writer.notes() == {}
            writer.set_note("read", 8)
            writer.set_note("other", ["x"])
            writer.commit()
            with pytest.raises(VizslaError, match="the note 'read' must be a JSON value"):
                writer.set_note("read", object())
            writer.rollback()
        before = index.generation
        index.compact()
        with index.writer() as writer:
            assert writer.notes() == {"read": 8, "other": ["x"]}
            writer.set_note("other", None)
            writer.commit()
            assert writer.notes() == {"read": 8}
        assert (index.generation, len(index)) == (before + 2, 10)


# A server with one worker whose writes never end.
NEVER_ENDS = """
import sys, threading
from vizsla.server import running, writes
from vizsla.server.running import bind, serve, url_of
from vizsla.server.settings import Settings

def commit(*_):
    print("writing", flush=True)
    threading.Event().wait()

writes.commit = commit
running.GRACE, running.CLOSING = 1, 0.5
opened = bind("127.0.0.1", 0)
serve(Settings(indexes={"dogs": sys.argv[1]}, write=True), opened, lambda: print(url_of(opened), flush=True))
"""


def test_a_write_that_never_ends_does_not_keep_a_server_that_is_stopped(folder: Path) -> None:
    command = [sys.executable, "-c", NEVER_ENDS, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(process.stdout.readline().strip())
            with socket.create_connection((url.hostname, url.port)) as connection:
                connection.sendall(f"POST /v1/dogs/commit HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode())
                assert process.stdout.readline() == "writing\n"
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "A request has not finished 1 seconds after the signal to stop" in said
    with Index.open(folder) as index:
        assert len(index) == 10
