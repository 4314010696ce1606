"""Writers of collections in Qdrant, one at a time, and what is wrong, said in one sentence."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from qdrant_compared import WORDS, both, differences, documents, queries
from qdrant_server import Node, address, nodes
from scattered import Scattered
from vizsla import open as open_location
from vizsla import parse_model
from vizsla.backends.qdrant import QdrantIndex
from vizsla.backends.qdrant import lock as locks
from vizsla.errors import CollectionError

# Writers, one at a time


def test_writers_take_turns_and_wait_for_each_other(where: str) -> None:
    with QdrantIndex.create(where) as one, QdrantIndex(where) as two:
        base, connection = one.reader.state.base, one.reader.connection
        with locks.WriteLock(connection, base):
            two.add([{"id": "1", "text": "dog"}])
            with two.writer(timeout=0.3) as writer:
                writer.add([{"id": "2", "text": "dog"}])
                with pytest.raises(CollectionError, match=r"is being written to \(process \d+ on .*, since .*\)"):
                    writer.commit()
        two.commit()  # what was staged is still there
        assert len(two) == 1
        errors: list[BaseException] = []

        def write(index: QdrantIndex, first: int) -> None:
            try:
                for i in range(first, first + 5):
                    with index.writer(timeout=None) as writer:
                        writer.add([{"id": str(i), "text": f"dog number{i}"}])
                        writer.commit()
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=write, args=a) for a in ((one, 10), (two, 20))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        one.refresh()
        assert len(one) == 11
        assert one.term_statistics("dog")[0].documents == 11
        assert len({h.document.id for h in one.search("dog", 50)}) == 11


def test_a_dead_writer_is_replaced_and_its_statistics_counted_again(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, cluster = both(tmp_path, where, "bm25(b=0)", documents(60))
    monkeypatch.setattr(locks, "DEAD", 1.0)
    monkeypatch.setattr(locks, "BEAT", 0.2)
    with local, cluster:
        process = multiprocessing.get_context("fork").Process(target=_write_and_stop, args=(where,))
        process.start()
        process.join()
        assert cluster.info()["status"] == "writing"
        cluster.add(documents(20, seed=5))
        cluster.commit()
        kept = {d.id: d for d in cluster.documents()}
        assert len(kept) == len(cluster)
        local.delete([d.id for d in local.documents()])
        local.add([{"id": d.id, **d.content} for d in kept.values()])
        local.commit()
        assert differences(local, cluster, queries(20), 30) == []
        text = " ".join(WORDS)
        assert cluster.term_statistics(text) == local.term_statistics(text)


def _write_and_stop(where: str) -> None:
    """A commit that is killed after half of its documents were sent."""
    from vizsla.backends.qdrant import connection

    sent = 0

    def send(*_: object, **__: object) -> None:
        nonlocal sent
        sent += 1
        if sent > 2:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.MAX_POINTS = 15
    index = QdrantIndex(where)
    original, turn = index._connection.call, threading.Lock()

    def call(ask: Any, *arguments: Any, **options: Any) -> Any:
        if ask.__name__ == "upsert" and not arguments[0].endswith(".terms"):
            with turn:
                send()
        return original(ask, *arguments, **options)

    index._connection.call = call  # type: ignore[method-assign]
    index.delete([f"d{i}" for i in range(10)])
    index.add([{**d, "text": d["text"] + " newword"} for d in documents(60, seed=3)])
    index.commit()


# What is wrong is said in one sentence


def test_nobody_listens() -> None:
    with pytest.raises(CollectionError, match=r"http://127\.0\.0\.1:1 cannot be reached .*does it run\?$"):
        QdrantIndex("qdrant://127.0.0.1:1/my", patience=0.2)
    with pytest.raises(CollectionError, match=r"none of http://127\.0\.0\.1:1, http://127\.0\.0\.1:2 answers"):
        QdrantIndex("qdrant://127.0.0.1:1,127.0.0.1:2/my", patience=0.2)


def test_another_server_is_asked_where_one_fails(server: Node) -> None:
    where = f"qdrant://127.0.0.1:1,{server.host}/failing-over"
    with QdrantIndex.create(where, overwrite=True) as index:
        index.add(documents(3))
        index.commit()
        assert len(index) == 3


def test_a_key_is_asked_for(tmp_path: Path, qdrant_command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes(tmp_path, key="secret", command=qdrant_command) as (node,):
        where = address([node], "locked")
        with pytest.raises(CollectionError, match=r"it asks for a key .*; set QDRANT_API_KEY"):
            open_location(where)
        with pytest.raises(CollectionError, match="the key is wrong"):
            QdrantIndex(where, key="wrong")
        monkeypatch.setenv("QDRANT_API_KEY", "secret")
        with QdrantIndex.create(where) as index:
            assert len(index) == 0


def test_what_is_not_ours_or_not_there(server: Node, where: str) -> None:
    with pytest.raises(CollectionError, match="there is no collection"):
        open_location(where)
    with QdrantIndex.create(where, Scattered()) as index:
        base, client = index.reader.state.base, index.reader.connection._client(0)
        with pytest.raises(CollectionError, match="already; choose another name, or replace it"):
            QdrantIndex.create(where)
        from qdrant_client import models

        client.create_collection("foreign", {"v": models.VectorParams(size=3, distance=models.Distance.DOT)})
        with pytest.raises(CollectionError, match=r"'foreign' at .* was not made by Vizsla: there is no collection"):
            open_location(address([server], "foreign"))
        client.delete_collection(base)
        wide = models.VectorParams(size=3, distance=models.Distance.DOT)
        client.create_collection(base, {"dense.scattered": wide})
        with pytest.raises(CollectionError, match=r"needs vectors of 8 numbers.*has vectors of 3 numbers"):
            open_location(where)
        client.upsert("foreign", [models.PointStruct(id=1, vector={"v": [1, 2, 3]}, payload={"a": 1})])


def test_half_an_upload_is_not_searched(where: str) -> None:
    from vizsla.backends.qdrant.connection import Address, Connection
    from vizsla.backends.qdrant.generations import create_collection

    place = Address.parse(where)
    connection = Connection(place.servers)
    create_collection(connection, place.name, parse_model("bm25"), status="building")
    with pytest.raises(CollectionError, match="is not finished: its upload goes on, or was stopped"):
        open_location(where)
    connection.close()


def test_a_server_that_is_too_old(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vizsla.backends.qdrant import connection

    monkeypatch.setattr(connection, "OLDEST", (99, 1))
    with pytest.raises(CollectionError, match=r"this is Qdrant 1\.\d+\.\d+; 99\.1 or newer is needed"):
        open_location(where)


def test_a_collection_of_a_newer_or_damaged_format(where: str) -> None:
    from vizsla.backends.qdrant.layout import STATE_ID

    QdrantIndex.create(where).close()
    with QdrantIndex(where) as index:
        client, terms = index.reader.connection._client(0), index.reader.state.base + ".terms"
        client.set_payload(terms, {"generation": "many"}, [STATE_ID])
        with pytest.raises(CollectionError, match=r"the state of the collection .* is damaged"):
            open_location(where)
        client.set_payload(terms, {"format": 99}, [STATE_ID])
        with pytest.raises(CollectionError, match="has the format 99, and this version of Vizsla reads 2;"):
            open_location(where)
