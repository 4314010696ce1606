"""Back to an earlier generation of a collection in Qdrant: what it held, writable again, and nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from conftest import Cli
from qdrant_compared import contents, documents
from qdrant_server import Node, address
from vizsla import open as open_location
from vizsla.backends.qdrant import QdrantIndex, generations
from vizsla.backends.qdrant import lock as locks
from vizsla.backends.qdrant.connection import Address, Connection
from vizsla.backends.qdrant.generations import find_generations, revert, take_over
from vizsla.backends.qdrant.lock import WriteLock
from vizsla.backends.qdrant.reweighing import reweigh
from vizsla.backends.qdrant.state import BUILDING, WRITING, read_state, write_state
from vizsla.errors import CollectionError
from waiting import LIMIT


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "DEAD", 1.0)
    monkeypatch.setattr(locks, "BEAT", 0.2)


@pytest.fixture
def connection(server: Node) -> Iterator[Connection]:
    made = Connection([f"http://{server.host}"])
    yield made
    made.close()


@pytest.fixture
def where(where: str) -> str:
    """A collection with two generations, the second with new weights."""
    with QdrantIndex.create(where) as index:
        index.add(documents(30))
        index.commit()
        index.add([{"id": "long", "text": "word1 " * 400}])
        index.commit()
    assert reweigh(where, threshold=0).renewed
    return where


def name_of(where: str) -> str:
    return Address.parse(where).name


def test_there_and_back_again(where: str) -> None:
    name = name_of(where)
    with open_location(where) as client:
        assert isinstance(client, QdrantIndex)
        new = contents(where)
        report = revert(where)
        assert (report.base, report.replaced, report.documents) == (f"{name}@1", f"{name}@2", 31)
        old = contents(where)
        assert old["documents"].keys() == new["documents"].keys()
        assert old["documents"] != new["documents"]  # weights of the mean length before
        assert old["state.status"] == "ready"
        client.refresh()
        assert client.info()["collection"] == f"{name}@1"
        assert client.info()["kept"] == [f"{name}@2"]
        client.delete("long")
        client.commit()
        assert len(client) == 30
        report = revert(where, f"{name}@2")
        assert (report.base, report.replaced, report.documents) == (f"{name}@2", f"{name}@1", 31)
        assert contents(where) == new
        client.add([{"id": "more", "text": "word2"}])
        with pytest.raises(CollectionError, match="has been replaced by another one; open it again"):
            client.commit()  # it was a writer of the other generation
        client.rollback()
    with QdrantIndex(where) as client:
        client.add([{"id": "more", "text": "word2"}])
        client.commit()
        assert len(client) == 32


def test_what_cannot_be_gone_back_to(
    where: str, server: Node, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(where)
    revert(where)
    with pytest.raises(CollectionError, match=f"'{name}' at .* has no earlier generation; kept are {name}@2"):
        revert(where)
    with pytest.raises(CollectionError, match=f"cannot go to '{name}@1': it is the one that is searched"):
        revert(where, f"{name}@1")
    with pytest.raises(
        CollectionError, match=f"cannot go to 'x@7': it is no finished generation of it; kept are {name}@2"
    ):
        revert(where, "x@7")
    write_state(connection, replace(read_state(connection, f"{name}@2"), status=BUILDING))
    with pytest.raises(CollectionError, match=r"has no earlier generation$"):
        revert(where)
    with pytest.raises(CollectionError, match="is no finished generation of it; no other generation is kept"):
        revert(where, f"{name}@2")
    with pytest.raises(CollectionError, match="there is no collection 'nothing' at"):
        revert(address([server], "nothing"))
    monkeypatch.setattr(locks, "DEAD", LIMIT)
    with WriteLock(connection, f"{name}@1"), pytest.raises(CollectionError, match="is being written to"):
        revert(where, timeout=0.1)


def test_a_stopped_revert_can_be_done_again(
    where: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, swap = name_of(where), generations.swap

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(generations, "swap", stopped)
    with pytest.raises(KeyboardInterrupt):
        revert(where)
    assert find_generations(connection, name).live == f"{name}@2"
    with open_location(where) as client:
        assert client.search("word1")
    monkeypatch.setattr(generations, "swap", swap)
    assert revert(where).base == f"{name}@1"


def test_a_dead_writer_is_remembered(where: str, connection: Connection) -> None:
    """A collection that was replaced after its writer had died is counted again by the next writer."""
    name = name_of(where)
    write_state(connection, replace(read_state(connection, f"{name}@2"), status=WRITING, documents=5))
    take_over(connection, name, f"{name}@1", f"{name}@2", None)
    assert read_state(connection, f"{name}@2").status == "replaced while writing"
    revert(where, f"{name}@2")
    assert read_state(connection, name).status == WRITING
    with open_location(where) as client:
        assert isinstance(client, QdrantIndex)
        client.add([{"id": "more", "text": "word2"}])
        client.commit()
        assert len(client) == 32
        assert client.info()["status"] == "ready"


def test_the_command(where: str, cli: Cli) -> None:
    name = name_of(where)
    assert f"{name}@1; vizsla qdrant revert goes back" in cli("info", where)[1]
    code, _, words = cli("qdrant", "revert", where)
    assert code == 0
    assert f"{where} is the collection {name}@1 again, with 31 documents" in words
    assert f"vizsla qdrant revert {where} --to {name}@2" in words
    code, _, words = cli("qdrant", "revert", where)
    assert code == 2
    assert "has no earlier generation" in words
