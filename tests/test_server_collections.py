"""Collections over HTTP: created, described, changed and deleted; names, models and quotas; other requests beside."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import collections_crash
from served import Client, build, running, served
from vizsla import AsyncRemoteIndex, RemoteIndex, VizslaError
from vizsla.index import verify
from vizsla.server.collections import CollectionsFolder
from vizsla.server.hosting import Hosted
from vizsla.server.settings import Keys, Quotas, Settings, read_settings
from waiting import eventually

READ, WRITE, ADMIN = "a-key-for-reading", "a-key-for-writing", "a-key-for-creating"
DOGS = [{"id": "1", "text": "a dog barks", "year": 1999}, {"id": "2", "text": "a cat", "year": 2001}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "collections"


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with served({}, collections=str(folder), write=True) as client:
        yield client


def ids(client: Client, name: str = "dogs", query: str = "dog") -> list[str]:
    return [row["docid"] for row in client.get(f"/v1/{name}/search", query=query).data["candidates"]]


def test_the_life_of_a_collection(client: Client, folder: Path) -> None:
    assert client.get("/v1/dogs").status == 404
    made = client.send("PUT", "/v1/dogs", {"description": "Dogs.", "documents": 100})
    assert made.status == 201
    assert made.data["created"] is True
    assert client.get("/v1/dogs/search", query="dog").data["candidates"] == []
    assert client.add("dogs", DOGS).data["added"] == 2
    assert client.add("dogs", [{"id": "3", "text": "another dog"}], commit="false").data["staged"] == 1
    assert client.send("PUT", "/v1/dogs/judgements", {"query": "dog", "id": "1", "grade": 2}).status == 200
    assert ids(client) == ["1"]
    facts = client.get("/v1/dogs").data
    assert (facts["documents"], facts["model"], facts["status"]) == (2, "bm25", "ready")
    settings = {"description": "Dogs.", "read_only": False, "documents": 100, "bytes": None}
    assert facts["collection"]["settings"] == settings
    assert [row["name"] for row in client.get("/v1/indexes").data["indexes"]] == ["dogs"]
    assert client.get("/v1/indexes").data["collections"]["models"] == ["bm25"]
    assert verify(folder / "dogs" / "index") == []

    assert client.send("DELETE", "/v1/dogs").data == {"index": "dogs", "deleted": True}
    assert {path.name for path in folder.iterdir()} == {"lock"}
    for method, path, body in [
        ("GET", "/v1/dogs", None), ("GET", "/v1/dogs/search?query=dog", None), ("POST", "/v1/dogs/commit", None),
        ("POST", "/v1/dogs/search", {"query": "dog"}), ("DELETE", "/v1/dogs", None), ("PATCH", "/v1/dogs", {}),
        ("PUT", "/v1/dogs/judgements", {"query": "dog", "id": "1", "grade": 1}),
    ]:  # fmt: skip
        assert client.send(method, path, body).status == 404, (method, path)
    assert client.send("PUT", "/v1/dogs", {}).status == 201  # a new one, without anything of the old one
    assert client.post("/v1/dogs/commit").data["added"] == 0
    assert client.get("/v1/dogs/judgements").data == {"queries": []}
    assert client.get("/v1/dogs").data["collection"]["settings"]["description"] == ""


def test_creating_twice(client: Client) -> None:
    wanted = {"passages": 50, "positions": True}
    assert client.send("PUT", "/v1/dogs", wanted).status == 201
    client.add("dogs", DOGS)
    again = client.send("PUT", "/v1/dogs", wanted)
    assert (again.status, again.data["created"], again.data["collection"]["passages"]) == (200, False, 50)
    assert client.get("/v1/dogs").data["documents"] == 2
    other = client.send("PUT", "/v1/dogs", {"passages": 51})
    assert (other.status, other.error) == (409, "there is a collection dogs already, which was created in another way")


@pytest.mark.parametrize(
    "name",
    [
        *("indexes", "lock", "con", "nul", "com1", "lpt9", "Dogs", "dogs.index", ".dogs", "-dogs", "_dogs", "a" * 65),
        *("..", ".", "%2e%2e", "..%2fdogs", "%2fetc", "dogs%2f..%2fcats", "dogs%5ccats", "dogs%00", "dogs%0a", "dogs "),
        *(
            "dógs",
            "dogs\u200b",
            "ｄogs",
            "d\u043egs",
            "\u0131",
            "١",
            "dogs%20",
            "dogs:stream",
            "~",
            "$HOME",
            "*",
            ".new-1",
        ),
    ],
)
def test_hostile_names(client: Client, folder: Path, name: str) -> None:
    before = sorted(folder.parent.rglob("*"))
    for method in ("PUT", "DELETE", "PATCH"):
        answer = client.send(method, f"/v1/{quote(name, safe='%')}", {})
        assert answer.status in (400, 404, 405), (method, name, answer.body)
    assert client.get(f"/v1/{quote(name, safe='%')}/search", query="dog").status == 404
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("model", ["bm25(k1=2)", "dense(checkpoint=/etc)", "minilm", "/etc/passwd", "../other", ""])
def test_models_are_those_of_the_server(client: Client, folder: Path, model: str) -> None:
    answer = client.send("PUT", "/v1/dogs", {"model": model})
    assert (answer.status, "this server offers" in answer.error) == (400, True)
    assert {path.name for path in folder.iterdir()} == {"lock"}


def test_named_models(folder: Path) -> None:
    models = {"fine": "bm25(k1=1.2)", "loose": "bm25(b=0)"}
    with served({}, collections=str(folder), collection_models=models, write=True) as client:
        assert client.send("PUT", "/v1/a", {}).data["collection"]["model"] == "fine"
        assert client.send("PUT", "/v1/b", {"model": "loose"}).status == 201
        assert [client.get(f"/v1/{name}").data["model"] for name in "ab"] == ["bm25(k1=1.2)", "bm25(b=0)"]
        assert client.send("PUT", "/v1/c", {"model": "bm25"}).status == 400


def test_quotas(folder: Path) -> None:
    with served({}, collections=str(folder), write=True, quotas=Quotas(2, 3, 2_000_000)) as client:
        assert [client.send("PUT", f"/v1/{name}", {}).status for name in "abc"] == [201, 201, 507]
        assert client.send("DELETE", "/v1/b").status == 200
        assert client.send("PUT", "/v1/c", {"documents": 4}).status == 400
        assert client.send("PUT", "/v1/c", {"documents": 1}).status == 201
        more = [{"id": str(n), "text": "x"} for n in range(4)]
        refused = client.add("a", more)
        assert (refused.status, refused.error) == (
            507, "the collection a may have 3 documents, and this would make it 4",
        )  # fmt: skip
        assert client.add("a", more[:3]).status == 200
        assert client.add("a", more[:3]).status == 200  # the same ones again
        assert client.add("a", more[3:], commit="false").status == 200
        assert client.post("/v1/a/commit").status == 507
        assert client.get("/v1/a").data["documents"] == 3
        assert client.post("/v1/a/delete", {"ids": ["0"]}).status == 200 or client.post("/v1/a/rollback").status == 200
        assert client.add("c", more[:2]).status == 507
        assert client.send("PATCH", "/v1/c", {"documents": 2}).status == 200
        assert client.add("c", more[:2]).status == 200
        big = client.add("c", [{"id": "big", "text": "x" * 2_000_000}])
        assert (big.status, "there is no room for this" in big.error) == (507, True)
        assert client.send("PATCH", "/v1/c", {"bytes": 10}).status == 200
        assert client.add("c", more[:1]).status == 507
        assert client.post("/v1/c/delete", {"ids": ["0"]}).data["deleted"] == 1  # what makes room is allowed


def test_settings_of_a_collection(client: Client) -> None:
    client.send("PUT", "/v1/dogs", {"description": "one"})
    assert client.send("PATCH", "/v1/dogs", {"read_only": True}).data["collection"]["settings"] == {
        "description": "one", "read_only": True, "documents": None, "bytes": None,
    }  # fmt: skip
    for refused in (
        client.add("dogs", DOGS), client.post("/v1/dogs/delete", {"ids": ["1"]}), client.post("/v1/dogs/compact"),
    ):  # fmt: skip
        assert refused.error == "the collection dogs is read-only; one with an admin key can change that"
    assert client.send("PATCH", "/v1/dogs", {"read_only": False}).status == 200
    assert client.add("dogs", DOGS).status == 200
    for wrong in ({"model": "bm25"}, {"documents": -1}, {"documents": 10**9}, {"read_only": 1}, {"bytes": "1"}):
        assert client.send("PATCH", "/v1/dogs", wrong).status == 400, wrong


def test_indexes_of_the_operator_stay(tmp_path: Path, folder: Path) -> None:
    pets = build(tmp_path / "pets.index", DOGS)
    with served({"pets": pets}, collections=str(folder), write=True) as client:
        for method in ("PUT", "PATCH", "DELETE"):
            answer = client.send(method, "/v1/pets", {})
            assert answer.status == 403
            assert answer.error == "the index pets was named when the server was started; no request changes it"
        assert ids(client, "pets") == ["1"]
    with served({"pets": pets}, write=True) as client:
        answer = client.send("PUT", "/v1/dogs", {})
        assert answer.status == 403
        assert answer.error == "this server has no collections to create or delete; start it with --collections"


def test_what_the_settings_must_be(tmp_path: Path, folder: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"admin {ADMIN}\n")
    keys.chmod(0o600)
    flags: dict[str, Any] = {"collections": str(folder), "write": True, "quotas": {"documents": 5}}
    settings = read_settings({**flags, "keys": str(keys)}, None, {"VIZSLA_SERVE_QUOTA_BYTES": "7"})
    assert settings.quotas == Quotas(documents=5, bytes=7)
    assert settings.keys == Keys(admin=(ADMIN,))
    assert repr(settings.keys) == "Keys(0 to read, 0 to write, 0 to judge, 1 to admin)"
    with pytest.raises(VizslaError, match="so it needs --write"):
        read_settings({"collections": str(folder)}, None, {})
    with pytest.raises(VizslaError, match="a line 'admin KEY'"):
        read_settings(flags, None, {"VIZSLA_WRITE_KEY": WRITE})
    with pytest.raises(VizslaError, match="anybody who reaches"):
        read_settings({**flags, "host": "0.0.0.0"}, None, {})
    with pytest.raises(VizslaError, match="the quota documents must be 0 or more"):
        read_settings({**flags, "quotas": {"documents": -1}}, None, {})
    config = tmp_path / "serve.toml"
    config.write_text('write = true\ncollections = "here"\n[collection_models]\ngerman = "bm25"\n[quotas]\nbytes = 9\n')
    read = read_settings({}, str(config), {})
    assert (read.collections, read.quotas.bytes) == (str(tmp_path / "here"), 9)
    assert read.collection_models == {"german": "bm25"}


# Crashes


def test_a_listing_passes_over_what_is_deleted_meanwhile(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cats", "dogs"):
        client.send("PUT", f"/v1/{name}", {})

    def until_now(hosted: Hosted) -> bool:
        hosted.is_deleted |= hosted.name == "cats"
        return hosted._index is not None

    monkeypatch.setattr(Hosted, "is_open", property(until_now))
    assert [row["name"] for row in client.get("/v1/indexes").data["indexes"]] == ["dogs"]
    assert 'vizsla_index_documents{index="dogs"} 0.0' in client.get("/metrics").body.decode()
    assert client.get("/v1/cats").status == 404


def test_what_a_crash_leaves_is_removed(folder: Path) -> None:
    with served({}, collections=str(folder), write=True) as client:
        client.send("PUT", "/v1/dogs", {})
        for name in (".new-0123", ".gone-4567"):
            (folder / name / "index").mkdir(parents=True)
            (folder / name / "index" / "file").touch()
        assert [row["name"] for row in client.get("/v1/indexes").data["indexes"]] == ["dogs"]
        client.send("PUT", "/v1/cats", {})
        assert {path.name for path in folder.iterdir()} == {"lock", "dogs", "cats"}
    (folder / ".new-89").mkdir()
    CollectionsFolder(Settings(collections=str(folder))).prepare()
    assert {path.name for path in folder.iterdir()} == {"lock", "dogs", "cats"}


@pytest.mark.parametrize("step", range(12))
def test_a_creation_that_fails_at_any_step(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Every file operation of this module fails once; the collection is there as a whole or not at all."""
    import vizsla.server.collections as module

    collections = CollectionsFolder(Settings(collections=str(folder)))
    collections.prepare()
    done = 0

    def failing(call: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == step + 1:
                raise OSError(28, "No space left on device")
            return call(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patch:
        for owner, name in ((module, "sync_folder"), (os, "rename"), (os, "replace")):
            patch.setattr(owner, name, failing(getattr(owner, name)))
        outcome: object = None
        try:
            outcome = collections.create("dogs", module.Making("bm25"), module.CollectionSettings())
        except VizslaError as e:
            outcome = e
    assert {path.name for path in folder.iterdir()} <= {"lock", "dogs"}
    if collections.names() == ["dogs"]:
        assert verify(folder / "dogs" / "index") == []
        assert collections.create("dogs", module.Making("bm25"), module.CollectionSettings()) is False
    else:
        assert isinstance(outcome, VizslaError)
        assert collections.create("dogs", module.Making("bm25"), module.CollectionSettings()) is True


# Beside others


_CREATE_AND_DELETE = """
import sys
from vizsla.server.collections import CollectionSettings, CollectionsFolder, Making
from vizsla.server.settings import Settings
folder = CollectionsFolder(Settings(collections=sys.argv[1]))
while True:
    folder.create("dogs", Making("bm25"), CollectionSettings())
    print("created", flush=True)
    folder.delete("dogs", 1)
    print("deleted", flush=True)
"""


def test_a_process_that_is_killed_leaves_whole_collections(folder: Path) -> None:
    """`make collections-crash` does it with servers and clients."""
    rng = random.Random(49)
    for _ in range(3):
        command = [sys.executable, "-c", _CREATE_AND_DELETE, str(folder)]
        CollectionsFolder(Settings(collections=str(folder))).prepare()
        assert collections_crash.leftovers(folder) == []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(rng.randrange(1, 5)):
                child.stdout.readline()
            time.sleep(rng.uniform(0, 0.03))
            child.kill()
            said = child.stdout.read()
            assert child.wait() == -signal.SIGKILL, said
        assert collections_crash.halves(folder) == []


def test_requests_beside_creation_and_deletion(client: Client) -> None:
    """All requests are answered, with 200, or 404 while the collection is not there; none hangs, none is a 5xx."""
    stop, seen = threading.Event(), dict[tuple[str, int], int]()
    lines = b"".join(json.dumps(d).encode() + b"\n" for d in DOGS)
    requests: list[tuple[str, str, Any]] = [
        ("GET", "/v1/dogs/search?query=dog", None), ("POST", "/v1/dogs/search", {"query": "dog", "generation": 1}),
        ("POST", "/v1/dogs/documents", lines), ("POST", "/v1/dogs/documents?commit=false", lines),
        ("POST", "/v1/dogs/commit", None), ("PUT", "/v1/dogs/judgements", {"query": "a", "id": "1", "grade": 1}),
        ("GET", "/v1/dogs", None), ("GET", "/v1/indexes", None), ("GET", "/metrics", None), ("GET", "/readyz", None),
    ]  # fmt: skip

    def ask(method: str, path: str, body: Any) -> None:
        while not stop.is_set():
            key = (f"{method} {path}", client.send(method, path, body).status)
            seen[key] = seen.get(key, 0) + 1

    threads = [threading.Thread(target=ask, args=request) for request in requests]
    for thread in threads:
        thread.start()
    changed = []
    for _ in range(15):
        changed.append(client.send("PUT", "/v1/dogs", {}).status)
        changed.append(client.send("DELETE", "/v1/dogs").status)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(changed) == {201, 200}
    unexpected = {key: n for key, n in seen.items() if key[1] not in (200, 404)}
    unexpected = {k: n for k, n in unexpected.items() if k != ("POST /v1/dogs/search", 503)}  # no commit 1 in time
    assert unexpected == {}


def test_all_workers_see_what_one_has_created(folder: Path) -> None:
    with running("--collections", folder, "--write", "--workers", 3, "--quiet") as server:
        for round in range(5):
            assert server.client.send("PUT", "/v1/dogs", {"description": str(round)}).status == 201
            for _ in range(12):
                answer = server.client.get("/v1/dogs")
                assert answer.data["collection"]["settings"]["description"] == str(round)
            assert server.client.send("PATCH", "/v1/dogs", {"description": "changed"}).status == 200
            for _ in range(12):
                assert server.client.get("/v1/dogs").data["collection"]["settings"]["description"] == "changed"
            server.client.add("dogs", DOGS[: 1 + round % 2])
            assert server.client.send("DELETE", "/v1/dogs").status == 200
            assert {server.client.get("/v1/dogs/search", query="dog").status for _ in range(12)} == {404}
        deleted = [f"{folder}/.gone", f"{folder}/dogs"]

        def held() -> list[str]:
            links = (link for pid in server.workers() for link in Path(f"/proc/{pid}/fd").iterdir())
            return [t for t in (_target(link) for link in links) if any(t.startswith(d) for d in deleted)]

        eventually(lambda: held() == [])


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


# Clients


def test_the_clients(client: Client) -> None:
    address = f"{client.url}/dogs"
    with RemoteIndex.create(address, description="Dogs.", positions=True) as index:
        index.add(DOGS)
        index.commit()
        assert index.search("dog").ids == ["1"]
        assert index.configure(read_only=True) == {
            "description": "Dogs.", "read_only": True, "documents": None, "bytes": None,
        }  # fmt: skip
        with pytest.raises(VizslaError, match="is read-only"):
            index.add(DOGS)
        with RemoteIndex.create(address, description="Dogs.", positions=True, read_only=True) as again:
            assert len(again) == 2
        with pytest.raises(VizslaError, match="created in another way"):
            RemoteIndex.create(address, positions=False)
        with pytest.raises(VizslaError, match="cannot be the name of a collection"):
            RemoteIndex.create(f"{client.url}/Dogs")
        index.drop()
        with pytest.raises(VizslaError, match="there is no index 'dogs' here"):
            index.search("dog")

    async def main() -> None:
        async with await AsyncRemoteIndex.create(address, passages=20) as index:
            await index.add(DOGS)
            await index.commit()
            assert (await index.search("dog")).ids == ["1"]
            assert (await index.configure(documents=5))["documents"] == 5
            await index.drop()
            with pytest.raises(VizslaError, match="there is no index 'dogs' here"):
                await index.count()

    asyncio.run(main())
