"""The client of a vizsla server: what it does when a server misbehaves, and that it finds what the index finds."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import vizsla
from conftest import Cli
from scripted import HELLO, Act, answer, hang_up, hang_up_half_way, never, scripted
from served import build, running, served
from vizsla import AsyncRemoteIndex, Document, FusedRetriever, Index, RemoteIndex, Retriever, VizslaError
from vizsla.errors import CannotExplainError
from vizsla.index import Added
from vizsla.models import Part, Sum
from vizsla.retrievers.remote import MAX_WAIT, VARIABLE, Address, RemoteView, Timeouts
from vizsla.retrievers.remote_calls import CHUNK_BYTES, Pieces
from vizsla.server.settings import Keys

pytest.importorskip("httpx2")

KEY = "a-key-of-the-tests"
HITS = {"id": "d1", "score": 0.1, "rank": 1, "document": {"text": "Dogs."}}
FOUND = {"model": "bm25", "generation": 1, "results": [{"query": "dogs", "hits": [HITS]}]}


@pytest.fixture(autouse=True)
def _no_key_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(Timeouts, "pause", lambda *_: 0.0)


@pytest.fixture
def connect() -> Iterator[Callable[..., RemoteIndex]]:
    """Opens remote indexes, which are closed at the end of the test."""
    with ExitStack() as opened:
        yield lambda *arguments, **options: opened.enter_context(RemoteIndex(*arguments, **options))


Connect = Callable[..., RemoteIndex]

# Addresses and keys


def test_an_address_has_a_server_and_a_name() -> None:
    assert Address.parse("http://h:1/dogs") == Address("http://h:1", "dogs")
    assert Address.parse("HTTP://h:1") == Address("http://h:1", "")
    assert Address.parse("https://h/a/b/dogs") == Address("https://h/a/b", "dogs")
    assert Address.parse("https://h/a/") == Address("https://h/a", "")
    assert Address.parse("http://h/v1/dogs") == Address("http://h", "dogs")
    assert Address.parse("http://h/my%20dogs").index == "my dogs"


@pytest.mark.parametrize("address", ["http://", "http:dogs", "http:///dogs", "http://h:port/dogs", "http://[::1/dogs"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(VizslaError, match=r"is not an address.*http://localhost:8080/my"):
        vizsla.open(address)


@pytest.mark.parametrize("address", ["http://u:secret@h/dogs", "http://h/dogs?key=secret", "http://h/dogs#secret"])
def test_an_address_has_no_secrets_and_messages_do_not_repeat_them(address: str) -> None:
    with pytest.raises(VizslaError, match="give a key as key= or in VIZSLA_API_KEY") as e:
        vizsla.open(address)
    assert "secret" not in str(e.value)
    with pytest.raises(VizslaError) as e:
        Address.parse(address.replace("/dogs", ":port/dogs", 1))
    assert "secret" not in str(e.value)


def test_a_key_is_sent_in_a_header_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    refusal = answer({"error": "this server needs a key"}, 401)
    with scripted(answer(HELLO), refusal) as server:
        index = connect(server.address, key=KEY)
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        with pytest.raises(VizslaError) as e:
            index.search("dogs")
        assert str(e.value) == f"{server.address}: this server needs a key; give a key as key= or in VIZSLA_API_KEY"
        shown = [repr(index), str(index), repr(index._connection), repr(vars(index)), repr(index._calls), str(e.value)]
        assert not any(KEY in text for text in shown)
        assert len(server.asked) == 2  # a wrong key is not tried again
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    with scripted(answer(HELLO)) as server:
        vizsla.open(server.address).close()
        assert server.asked[0].headers["authorization"] == "Bearer from-the-environment"
    with pytest.raises(VizslaError, match="characters that a key cannot have") as e:
        RemoteIndex("http://127.0.0.1:1", key="two words")
    assert "two words" not in str(e.value)


def test_a_name_may_be_left_out_if_there_is_one_index(connect: Connect) -> None:
    several = {**HELLO, "indexes": [{"name": name, "model": "bm25"} for name in ("dogs", "cats")]}
    with scripted(answer(HELLO)) as server, RemoteIndex(server.address) as index:
        assert (index.address, index.name) == (f"{server.address}/dogs", "bm25")
    with scripted(answer(several)) as server:
        assert connect(f"{server.address}/cats").address.endswith("/cats")
        with pytest.raises(VizslaError, match="add the name of an index after a slash; there is dogs, cats"):
            connect(server.address)
        with pytest.raises(VizslaError, match="unknown index 'catz'; did you mean 'cats'"):
            connect(f"{server.address}/catz")
    with (
        scripted(answer({**HELLO, "indexes": [{"name": "dogs", "status": "unavailable", "reason": "gone"}]})) as server,
        pytest.raises(VizslaError, match="the index dogs cannot be searched now: gone"),
    ):
        connect(server.address)


# Servers that misbehave


def test_an_unreachable_server_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(VizslaError, match=f"http://127.0.0.1:{port}: the server cannot be reached .*is it running"):
        vizsla.open(f"http://127.0.0.1:{port}/dogs")


@pytest.mark.parametrize(
    "wrong",
    [
        answer(text="<html>hello</html>"),
        answer([1, 2]),
        answer({"hello": "world"}),
        answer({"vizsla": "1", "indexes": "dogs"}),
        answer(text="not here", status=404),
        answer(text="moved", status=302, location="http://elsewhere"),
    ],
)
def test_what_is_no_vizsla_server_is_refused(wrong: object) -> None:
    with scripted(wrong) as server:  # type: ignore[arg-type]
        with pytest.raises(VizslaError, match=r"this is not a vizsla server|redirects to another address") as e:
            vizsla.open(f"{server.address}/dogs")
        assert str(e.value).startswith(server.address)
        assert len(server.asked) == 1


def test_a_server_that_speaks_something_else_is_one_sentence() -> None:
    with scripted(lambda connection: connection.sendall(b"220 mail ready\r\n\r\n")) as server:  # noqa: SIM117
        with pytest.raises(VizslaError, match=r"closed the connection|cannot be read"):
            vizsla.open(server.address)


@pytest.mark.parametrize("fault", [hang_up, hang_up_half_way])
def test_a_hang_up_is_tried_again_and_then_is_one_sentence(fault: object, connect: Connect) -> None:
    with scripted(answer(HELLO), fault, fault, answer(FOUND)) as server:  # type: ignore[arg-type]
        assert connect(server.address).search("dogs")[0].id == "d1"
        assert len(server.asked) == 4
    with scripted(answer(HELLO), fault) as server:  # type: ignore[arg-type]
        index = connect(server.address, retries=2)
        with pytest.raises(VizslaError, match="the server closed the connection before its response was complete"):
            index.search("dogs")
        assert len(server.asked) == 1 + 3


def test_a_busy_server_is_asked_again_when_it_says(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    busy = answer({"error": "too many requests"}, 429, retry_after="2")
    starting = answer(text="", status=503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    with scripted(answer(HELLO), busy, starting, answer(FOUND)) as server:
        assert len(connect(server.address).search("dogs")) == 1
    assert waited == [2.0, 0.0]
    with scripted(answer(HELLO), busy) as server:
        index = connect(server.address)
        with pytest.raises(VizslaError, match="too many requests"):
            index.search("dogs")
        assert len(server.asked) == 5
    for_long = answer({"error": "come back tomorrow"}, 503, retry_after=str(MAX_WAIT + 1))
    with scripted(answer(HELLO), for_long) as server:
        index = connect(server.address)
        with pytest.raises(VizslaError, match="come back tomorrow"):
            index.search("dogs")
        assert len(server.asked) == 2


def test_pauses_grow_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    first, third = ([Timeouts(1, 1, 1, 1).pause(attempt) for _ in range(50)] for attempt in (0, 2))
    assert len(set(first)) > 10
    assert 0.1 <= min(first) <= max(first) <= 0.2
    assert 0.4 <= min(third) <= max(third) <= 0.8
    assert Timeouts(1, 1, 1, 1).pause(50) <= 5.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 504])
def test_a_refusal_is_not_tried_again(status: int, connect: Connect) -> None:
    with scripted(answer(HELLO), answer({"error": "no, for a reason"}, status)) as server:
        index = connect(server.address)
        with pytest.raises(CannotExplainError if status == 422 else VizslaError, match="no, for a reason"):
            index.explain("dogs", "d1")
        assert len(server.asked) == 2


def test_a_slow_server_is_one_sentence_and_not_asked_again(connect: Connect) -> None:
    with scripted(answer(HELLO), never) as server:
        index = connect(server.address, timeout=1)
        with pytest.raises(VizslaError, match="took too long to answer; ask for less, or give a larger timeout"):
            index.search("dogs")
        assert len(server.asked) == 2


@pytest.mark.parametrize("wrong", [{"connect_timeout": 0}, {"timeout": -1}, {"write_timeout": "1"}, {"retries": -1}])
def test_impossible_patience_is_refused(wrong: dict[str, Any]) -> None:
    for client in (RemoteIndex, AsyncRemoteIndex):
        with pytest.raises(VizslaError, match=r"a timeout is|retries must be"):
            client("http://127.0.0.1:1/dogs", **wrong)


def test_without_httpx2_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['httpx2'] = None; import vizsla\n"
        "try: vizsla.open('http://localhost:1/dogs')\n"
        "except vizsla.VizslaError as e: print(e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert out.strip().endswith('install it with: pip install "vizsla[client]"')


# Requests


def test_queries_are_sent_in_chunks_and_empty_ones_stay_here(connect: Connect) -> None:
    few = {**HELLO, "limits": {"queries": 2}}
    two = {**FOUND, "results": FOUND["results"] * 2}  # type: ignore[operator]
    with scripted(answer(few), answer(two), answer(FOUND)) as server:
        index = connect(server.address)
        found = index.search_many(["dogs", " ", "cats", "fish"], k=7)
        assert [len(hits) for hits in found] == [1, 0, 1, 1]
        assert [asked.json["queries"] for asked in server.asked[1:]] == [["dogs", "cats"], ["fish"]]
        assert server.asked[1].json == {"queries": ["dogs", "cats"], "k": 7}
        assert index.search_many(["", "  "]) == [[], []]
        assert len(server.asked) == 3
        for wrong in ("dogs", {"q": "dogs"}, [1]):
            with pytest.raises(VizslaError):
                index.search_many(wrong)  # type: ignore[arg-type]
        for call in (lambda: index.search(" "), lambda: index.search("dogs", 0), lambda: index.search("a", 1, "b >")):
            with pytest.raises(VizslaError):
                call()
        assert len(server.asked) == 3


def test_many_results_make_smaller_chunks(connect: Connect) -> None:
    with scripted(answer(HELLO), answer({**FOUND, "results": FOUND["results"] * 20})) as server:  # type: ignore[operator]
        connect(server.address).run({str(n): "dogs" for n in range(40)}, k=1000)
        assert [len(asked.json["queries"]) for asked in server.asked[1:]] == [20, 20]
        assert server.asked[1].json["fields"] == []  # ids and scores are enough


def test_more_results_than_a_server_gives_at_a_time_come_in_pages() -> None:
    def page(generation: int, *ids: str) -> Act:
        hits = [{"id": doc_id, "score": 1.0, "rank": 1, "document": {}} for doc_id in ids]
        return answer({"model": "bm25", "generation": generation, "results": [{"query": "dogs", "hits": hits}]})

    few = answer({**HELLO, "limits": {"queries": 2, "k": 2}})
    with scripted(few, page(1, "a", "b"), page(1, "c", "d"), page(1, "e")) as server:
        with RemoteIndex(server.address) as index:
            assert [hit.id for hit in index.search("dogs", 5)] == list("abcde")
        assert [(a.json["k"], a.json.get("offset", 0)) for a in server.asked[1:]] == [(2, 0), (2, 2), (1, 4)]
    with scripted(few, page(1, "a", "b"), page(1, "c")) as server, RemoteIndex(server.address) as index:
        assert [hit.id for hit in index.search("dogs", 5)] == list("abc")  # there are no more
        assert len(server.asked) == 3
    with scripted(few, page(1, "a", "b"), page(2, "b"), page(2, "c", "a"), page(2, "b")) as server:  # noqa: SIM117
        with RemoteIndex(server.address) as index:  # a commit came between two pages
            assert [hit.id for hit in index.search("dogs", 4)] == list("cab")


def test_documents_are_sent_in_pieces_that_can_be_sent_again(connect: Connect) -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        for n in range(9000):
            taken = n + 1
            yield {"id": str(n), "text": "x" * 1000}

    staged, busy = answer({"staged": 1, "committed": False}), answer({"error": "busy"}, 503)
    with scripted(answer(HELLO), staged, busy, hang_up, staged, answer({"generation": 7}), answer(FOUND)) as server:
        server.script[4:5] = [staged] * 4
        index = connect(server.address)
        assert index.add(endless()).documents == taken == 9000  # type: ignore[arg-type]
        bodies = [asked.body for asked in server.asked[1:]]
        assert all(len(body) < CHUNK_BYTES + 2000 for body in bodies)
        assert bodies[1] == bodies[2] == bodies[3]  # busy, hung up, taken
        sent = [json.loads(line)["id"] for body in [bodies[0], *bodies[3:]] for line in body.splitlines()]
        assert sent == [str(n) for n in range(9000)]
        assert server.asked[1].headers["content-type"] == "application/x-ndjson"
        assert server.asked[1].line.startswith("POST /v1/dogs/documents?commit=false ")


def test_searches_after_a_commit_see_it(connect: Connect) -> None:
    with scripted(answer(HELLO), answer(FOUND), answer({"generation": 7}), answer(FOUND)) as server:
        index = connect(server.address)
        view = index.with_model("bm25(k1=1.2)")
        assert index.commit() == 7
        index.search("dogs")
        view.search("dogs")
        assert "generation" not in server.asked[1].json
        assert [asked.json["generation"] for asked in server.asked[3:]] == [7, 7]


def test_pieces_take_little_memory_and_refuse_what_is_no_document() -> None:
    pieces = Pieces()
    assert pieces.rest() == b""
    assert pieces.take(Document("7", {"text": "é"})) is None
    assert json.loads(pieces.rest()) == {"_id": "7", "text": "é"}
    for wrong in ({"id": "1", "x": float("nan")}, {"id": "1", "x": object()}):
        with pytest.raises(VizslaError, match="the document '1' cannot be sent, since it cannot be written as JSON"):
            pieces.take(wrong)
    with pytest.raises(VizslaError, match="a document is a mapping"):
        pieces.take("dogs")  # type: ignore[arg-type]


def test_deletions_are_by_ids_or_by_a_filter(connect: Connect) -> None:
    with scripted(answer(HELLO), answer({"committed": False})) as server:
        index = connect(server.address)
        index.delete(["a", 7])
        index.delete(filter={"year": 1999})
        assert [asked.json for asked in server.asked[1:]] == [{"ids": ["a", "7"]}, {"filter": "year = 1999"}]
        for wrong in ({}, {"ids": ["a"], "filter": "b = 1"}, {"filter": "b ="}):
            with pytest.raises(VizslaError):
                index.delete(**wrong)  # type: ignore[arg-type]
        assert len(server.asked) == 3


def test_a_closed_client_says_so() -> None:
    with scripted(answer(HELLO)) as server:
        with RemoteIndex(server.address) as index:
            pass
        index.close()
        with pytest.raises(VizslaError, match="the connection has been closed"):
            index.search("dogs")


def test_connections_are_kept_and_threads_may_share_them() -> None:
    with scripted(answer(HELLO), answer(FOUND)) as server, RemoteIndex(server.address) as index:
        for _ in range(5):
            index.search("dogs")
        assert server.connections == 1
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: index.search("dogs")[0].id, range(200)))
        assert found == ["d1"] * 200
        assert server.connections <= 9


def _search_in_child(index: RemoteView, results: multiprocessing.SimpleQueue[object]) -> None:
    results.put((os.getpid(), index.search("dogs")[0].id))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_open_connections_of_their_own(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    context = multiprocessing.get_context(method)
    with scripted(answer(HELLO), answer(FOUND)) as server, RemoteIndex(server.address, key=KEY) as index:
        index.search("dogs")
        before = server.connections
        results: multiprocessing.SimpleQueue[object] = context.SimpleQueue()
        child = context.Process(target=_search_in_child, args=(index, results))
        child.start()
        assert results.get() == (child.pid, "d1")
        child.join()
        assert child.exitcode == 0
        index.search("dogs")
        assert server.connections > before
        assert server.asked[-2].headers["authorization"] == f"Bearer {KEY}"


def test_a_pickled_client_has_a_key_only_if_it_was_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    with scripted(answer(HELLO), answer(FOUND)) as server, RemoteIndex(server.address) as index:
        pickled = pickle.dumps(index)
        assert KEY.encode() not in pickled
        with pickle.loads(pickled) as again:
            assert isinstance(again, RemoteIndex)
            assert again.search("dogs")[0].id == "d1"


def test_the_asynchronous_client_is_as_patient() -> None:
    async def main() -> None:
        with scripted(answer(HELLO), hang_up, answer({"error": "busy"}, 503), answer(FOUND)) as server:
            async with AsyncRemoteIndex(server.address, key=KEY) as index:
                assert (await index.search("dogs"))[0].id == "d1"
                assert len(server.asked) == 4
                assert KEY not in repr(index)
            with pytest.raises(VizslaError, match="the connection has been closed"):
                await index.search("dogs")
        with scripted(answer(text="hello")) as server:  # noqa: SIM117
            with pytest.raises(VizslaError, match="this is not a vizsla server"):
                await AsyncRemoteIndex(server.address).open()
        with scripted(answer(HELLO), never) as server:
            async with AsyncRemoteIndex(server.address, timeout=1) as index:
                with pytest.raises(VizslaError, match="took too long"):
                    await index.search("dogs")

    asyncio.run(main())


def test_the_command_line_says_what_is_wrong_in_one_sentence(cli: Cli) -> None:
    with scripted(answer(text="hello")) as server:
        code, out, err = cli("search", f"{server.address}/dogs", "dogs")
        assert (code, out) == (2, "")
        assert err.startswith(f"vizsla: {server.address}: this is not a vizsla server")
        assert err.count("\n") == 1
    with scripted(answer(HELLO), answer(FOUND)) as server:
        code, out, err = cli("search", server.address, "dogs", "--json", "--model", "bm25(k1=1.2)", "--expand", "rm3")
        assert (code, json.loads(out)["results"][0]["id"]) == (0, "d1")
        assert server.asked[-1].json == {
            "queries": ["dogs"], "k": 10, "model": "bm25(k1=1.2)", "expand": "rm3", "typos": "suggest"
        }  # fmt: skip


def test_a_remote_index_is_a_retriever() -> None:
    with scripted(answer(HELLO), answer(FOUND)) as server, vizsla.open(f"{server.address}/dogs") as index:
        assert isinstance(index, Retriever)


# The real server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["dog", "cat", "bark", "purr", "point", "retrieve", "fish", "swim", "the", "a", "of", "house", "tree"]
    chosen = random.Random(7)
    documents: list[dict[str, object]] = [
        {
            "_id": f"d/{n}ü" if n % 50 == 0 else f"d{n}",
            "title": " ".join(chosen.choices(words, k=3)),
            "text": " ".join(chosen.choices(words, k=chosen.randint(3, 60))) + f" rare{chosen.randrange(150)}" * 3,
            "year": 1990 + n % 20,
            "share": n / 7,
        }
        for n in range(400)
    ]
    return build(tmp_path_factory.mktemp("remote") / "dogs.index", documents, SUM)


PARTS = "bm25(fields=title, namespace=titles)", "bm25(fields=text, namespace=texts)"
SUM = f"{PARTS[0]} + 0.3 * {PARTS[1]}"
QUERIES = ["barking dog", "the cat", "swim fish tree", "house", " ", "unicorn"]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with served({"dogs": folder}) as client:
        yield client.url


@pytest.fixture
def both(folder: Path, server: str) -> Iterator[tuple[Index, RemoteIndex]]:
    with Index.open(folder) as local, RemoteIndex(f"{server}/dogs") as remote:
        yield local, remote


Both = tuple[Index, RemoteIndex]


def test_hits_scores_and_documents_are_those_of_the_index(both: Both) -> None:
    local, remote = both
    assert (remote.name, len(remote)) == (local.name, len(local))
    for options in ({}, {"k": 3}, {"k": 400}, {"filter": "year >= 2000"}, {"filter": {"year": [1991, 1995]}}):
        assert remote.search_many(QUERIES, **options) == local.search_many(QUERIES, **options)  # type: ignore[arg-type]
        assert remote.search("the dog", **options) == local.search("the dog", **options)  # type: ignore[arg-type]
    assert remote.search("dog", 2000) == local.search("dog", 2000)
    assert remote.search_many(QUERIES, documents=False) == local.search_many(QUERIES, documents=False)
    queries = {str(n): text for n, text in enumerate(QUERIES * 20)}
    mine, theirs = remote.run(queries, 50), local.run(queries, 50)
    assert dict(mine) == dict(theirs)
    assert mine.name == theirs.name


def test_documents_are_those_of_the_index(both: Both) -> None:
    local, remote = both
    ids = ["d1", "d/50ü", "nobody", "d399", "d1"]
    assert remote.get_many(ids) == local.get_many(ids)
    assert remote.get("d/0ü") == local.get("d/0ü")
    assert remote.get("nobody") is None
    everything = [document.id for document in local.documents()] * 4
    assert remote.get_many(everything) == local.get_many(everything)
    assert remote.get_many([]) == {}


def test_explanations_are_those_of_the_index(both: Both) -> None:
    local, remote = both
    assert remote.explain("barking dog", "d1") == local.explain("barking dog", "d1")
    assert str(remote.explain("a cat", "d/50ü")) == str(local.explain("a cat", "d/50ü"))
    for wrong in ("nobody", ""):
        with pytest.raises(VizslaError):
            remote.explain("dog", wrong)


def test_other_models_and_ways_are_those_of_the_index(both: Both) -> None:
    local, remote = both
    own = local.model.parts[1].component
    for remote_options, local_options in [
        ({"weights": [1, 2]}, {"model": Sum((Part(1.0, local.model.parts[0].component), Part(2.0, own)))}),
        ({"combine": "rrf"}, {"combine": "rrf"}),
    ]:
        view = remote.with_model(**remote_options)  # type: ignore[arg-type]
        expected = local.with_model(**local_options)  # type: ignore[arg-type]
        assert view.search_many(QUERIES) == expected.search_many(QUERIES)
        assert view.name == expected.name
        assert view.run({"q": "dog"}).name == expected.name
    view = remote.with_model("texts")
    assert view.search("dog")[0].score == own_score(local, "dog")
    view.close()  # closes nothing
    assert view.explain("dog", view.search("dog")[0].id).score == pytest.approx(view.search("dog")[0].score)
    expanded = remote.with_model("texts", expand="rm3")
    assert expanded.search("dog") != view.search("dog")
    assert len(expanded.explain("dog", "d1").parts) > len(view.explain("dog", "d1").parts) == 1
    assert any(term.facts["added"] for term in expanded.explain("dog", "d1").parts)


def own_score(local: Index, query: str) -> float:
    """The best score of the second part of the index's model alone."""
    return local.search(query, model=local.model.parts[1].component)[0].score


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "bm225"}, "did you mean 'bm25'"),
        ({"model": "dense(checkpoint=/etc)"}, "a request cannot name the model dense"),
        ({"weights": [1]}, "2 parts"),
        ({"combine": "nonsense"}, "nonsense"),
        ({"expand": "nonsense"}, "nonsense"),
        ({"rerank": "nobody"}, "there is no reranker 'nobody' here"),
        ({"model": 7}, "a server takes a model as a text"),
    ],
)
def test_what_the_server_cannot_do_is_refused_at_once(both: Both, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(VizslaError, match=sentence):
        both[1].with_model(**options)


def test_facets_suggestions_and_similar_documents(both: Both) -> None:
    local, remote = both
    for options in ({}, {"filter": "year >= 2000"}, {"size": 3}):
        assert remote.facets(["year"], "dog", **options) == local.facets(["year"], "dog", **options)  # type: ignore[arg-type]
    top = remote.facets(["year"], "dog", over=20)
    assert top.documents == 20
    assert sum(value.count for value in top["year"].values) <= 20
    assert [s.text for s in remote.suggest("the ba")] == ["bark"]
    similar = remote.similar("d1", 5)
    assert len(similar) == 5
    assert "d1" not in [hit.id for hit in similar]
    with pytest.raises(VizslaError, match="there is no document with the id 'nobody'"):
        remote.similar("nobody")
    facts = remote.info()
    assert (facts["name"], facts["documents"], facts["fields"]) == ("dogs", 400, ["title", "text"])


def test_it_can_be_fused_with_others(both: Both) -> None:
    local, remote = both
    (fused, expected) = (FusedRetriever(pair).search("barking dog", 5) for pair in ([local, remote], [local, local]))
    assert fused == expected
    assert FusedRetriever([remote, remote]).explain("dog", fused[0].id).parts


def test_many_threads_get_the_answers_of_the_index(both: Both) -> None:
    local, remote = both
    expected = {query: local.search(query, 5) for query in QUERIES if query.strip()}
    asked = [query for query in expected for _ in range(20)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda query: remote.search(query, 5), asked))
    assert found == [expected[query] for query in asked]


def test_the_asynchronous_client_has_the_same_face(both: Both, server: str) -> None:
    local, _ = both

    async def main() -> None:
        async with AsyncRemoteIndex(server) as remote:
            assert (remote.name, await remote.count()) == (local.name, len(local))
            assert await remote.search_many(QUERIES) == local.search_many(QUERIES)
            found = await asyncio.gather(*(remote.search("dog", 5) for _ in range(30)))
            assert found == [local.search("dog", 5)] * 30
            assert await remote.get("d1") == local.get("d1")
            assert await remote.explain("dog", "d1") == local.explain("dog", "d1")
            run = await remote.run({"q": "dog"}, 20)
            assert dict(run) == dict(local.run({"q": "dog"}, 20))
            view = await remote.with_model("texts")
            assert (await view.search("dog"))[0].score == own_score(local, "dog")
            assert (await remote.facets(["year"], "dog")).documents > 0
            assert len(await remote.similar("d1", 3)) == 3
            assert await remote.suggest("bar")
            assert (await remote.info())["name"] == "dogs"

    asyncio.run(main())
    sync, other = (
        {name for cls in classes for name in vars(cls) if not name.startswith("_")}
        for classes in (RemoteIndex.__mro__, AsyncRemoteIndex.__mro__)
    )
    assert sync - other == set()
    assert other - sync == {"open"}


def test_writing_through_the_client(tmp_path: Path) -> None:
    folder = build(tmp_path / "w.index", [{"id": str(n), "text": "old dog", "year": n} for n in range(5)])
    with served({"w": folder}, write=True) as client, RemoteIndex(f"{client.url}/w") as index:
        view = index.with_model("bm25(k1=2)")
        assert index.add({"id": str(n), "text": f"new cat {n}"} for n in range(3, 8)) == Added(5, replaced=2)
        assert index.search("cat") == []
        generation = index.commit()
        assert {hit.id for hit in index.search("cat")} == {hit.id for hit in view.search("cat")} == set("34567")
        assert (len(index), index.info()["generation"]) == (8, generation)
        index.delete(["0", 7])
        index.delete(filter="year = 1")
        assert index.commit() > generation
        assert index.get_many(list("01237")).keys() == {"2", "3"}
        assert index.compact() > generation
        assert index.info()["deleted"] == 0
        assert index.commit() >= generation  # nothing to commit
        with Index.open(folder) as other:
            other.add([{"id": "new", "text": "unicorn"}])
            other.commit()
            newest = other.info()["generation"]
        assert index.wait_for(newest) >= newest
        assert index.search("unicorn")[0].id == "new"
        for wrong in ([{"n": "no id"}], [{"id": "1", "text": 7}]):
            with pytest.raises(VizslaError):
                index.add(wrong)
        added = index.add([{"id": "s1", "text": "a"}, {"n": 1}, {1, 2}, {"id": "s1", "text": "b"}], skip_bad=True)
        assert (added.documents, added.repeated, added.skipped.count) == (1, 1, 2)
        assert sorted((error.line or 0) for error in added.skipped.errors) == [2, 3]
        assert index.add([{"text": "no id"}] * 2).documents == 1
        index.rollback()

    async def main() -> None:
        async def documents() -> AsyncIterator[dict[str, object]]:
            for n in range(3):
                yield {"id": f"a{n}", "text": "asynchronous"}

        with served({"w": folder}, write=True) as client:
            async with AsyncRemoteIndex(client.url) as index:
                assert await index.add(documents()) == Added(3)
                assert await index.add([{"id": "a3", "text": "asynchronous"}]) == Added(1)
                await index.delete("a0")
                generation = await index.commit()
                assert {hit.id for hit in await index.search("asynchronous")} == {"a1", "a2", "a3"}
                assert await index.compact() > generation
                assert await index.wait_for(generation) >= generation

    asyncio.run(main())


def test_a_client_sees_its_own_commits_whichever_worker_answers(tmp_path: Path) -> None:
    folder = build(tmp_path / "w.index", [{"id": "0", "text": "dog"}])
    with running(f"w={folder}", "--write", "--workers", "2") as server:
        with RemoteIndex(server.client.url) as index:
            for number in range(1, 6):
                index.add([{"id": str(number), "text": f"dog round{number}"}])
                index.commit()
                with ThreadPoolExecutor(8) as threads:  # over several connections, so over both workers
                    found = list(threads.map(lambda n: index.search(f"round{n}"), [number] * 16))
                    known = list(threads.map(index.get, [number] * 16))
                    counted = list(threads.map(lambda _: len(index), range(16)))
                    explained = list(threads.map(lambda n: index.explain("dog", n), [number] * 16))
                assert [[hit.id for hit in hits] for hits in found] == [[str(number)]] * 16
                assert None not in known
                assert counted == [number + 1] * 16
                assert len({explanation.score for explanation in explained}) == 1
        assert server.stop() == 0


def test_a_server_that_only_reads_and_one_with_keys(tmp_path: Path) -> None:
    folder = build(tmp_path / "k.index", [{"id": "1", "text": "dog"}])
    keys = Keys(("a-key-for-reading",), ("a-key-for-writing",))
    with served({"k": folder}) as client, RemoteIndex(client.url) as index:  # noqa: SIM117
        with pytest.raises(VizslaError, match="this server is read-only; start it with --write"):
            index.add([{"id": "2", "text": "cat"}])
    with served({"k": folder}, write=True, keys=keys) as client:
        with pytest.raises(VizslaError, match="a key is needed"):
            vizsla.open(client.url)
        with pytest.raises(VizslaError, match="the key that was sent is not known here"):
            RemoteIndex(client.url, key="some-other-key-that-is-wrong")
        with RemoteIndex(client.url, key=keys.read[0]) as index:
            assert index.search("dog")[0].id == "1"
            with pytest.raises(VizslaError, match="this key may not write"):
                index.commit()
        with RemoteIndex(client.url, key=keys.write[0]) as index:
            index.add([{"id": "2", "text": "cat"}])
            index.commit()
            assert index.search("cat")[0].id == "2"


def test_the_command_line_searches_evaluates_and_explains_over_http(
    cli: Cli, folder: Path, server: str, tmp_path: Path
) -> None:
    def of_both(*arguments: object) -> list[Any]:
        told = []
        for where in (str(folder), f"{server}/dogs"):
            code, out, err = cli(*(where if a == "INDEX" else a for a in arguments))
            assert code == 0, err
            told.append(json.loads(out) if "--json" in arguments else out)
        return told

    here, there = of_both("search", "INDEX", "barking dog", "--json", "--filter", "year > 1995")
    assert (here["results"], here["model"]) == (there["results"], there["model"])
    here, there = of_both("explain", "INDEX", "barking dog", "d1")
    assert here == there
    queries, corpus = tmp_path / "queries.jsonl", tmp_path / "set"
    queries.write_text("".join(json.dumps({"_id": str(n), "text": t}) + "\n" for n, t in enumerate(QUERIES)))
    here, there = of_both("search", "INDEX", "--queries", queries, "-o", "-")
    assert here == there
    here, there = of_both("search", "INDEX", "dog")
    assert here.splitlines()[0] == there.splitlines()[0]
    (corpus / "qrels").mkdir(parents=True)
    (corpus / "queries.jsonl").write_text('{"_id": "q", "text": "barking dog"}\n')
    (corpus / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td1\t1\nq\td7\t1\n")
    here, there = of_both("eval", corpus, "--index", "INDEX", "--json")
    assert here["measures"] == there["measures"]
    here, there = of_both(
        "run", "overlap", "--index", "INDEX", "--queries", queries, "--json", "--model", PARTS[0], "--model", PARTS[1]
    )
    assert here == there
    code, _, err = cli("search", f"{server}/dogs", "--queries", queries, "-o", "-", "--threads", 2)
    assert (code, "a server takes neither --approximate nor --threads" in err) == (2, True)
    code, _, err = cli("search", f"{server}/dog", "dog")
    assert (code, "unknown index 'dog'; did you mean 'dogs'?" in err) == (2, True)
