"""Documents over HTTP: added, replaced, deleted, staged, committed; nothing half done."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from served import Client, build, doc_path, served
from vizsla import Index
from vizsla.server.settings import Limits
from vizsla.server.writes import Staging
from waiting import eventually

FIRST = [{"id": str(n), "text": f"a dog number{n}", "year": 1990 + n} for n in range(10)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "dogs.index", FIRST)


def found(client: Client, query: str = "dog") -> set[str]:
    return {c["docid"] for c in client.get("/v1/dogs/search", query=query, hits=1000).data["candidates"]}


def test_add_replace_and_delete(folder: Path) -> None:
    with served({"dogs": folder}, write=True) as client:
        answer = client.add("dogs", [{"id": "0", "text": "a cat"}, {"id": "new", "text": "a dog"}])
        assert answer.data == {
            "index": "dogs", "added": 2, "replaced": 1, "repeated": 0, "deleted": 0, "empty": [], "generation": 2,
            "committed": True,
        }  # fmt: skip
        assert found(client) == {str(n) for n in range(1, 10)} | {"new"}
        again = client.add("dogs", [{"id": "0", "text": "a cat"}, {"id": "new", "text": "a dog"}]).data
        assert (again["replaced"], len(found(client))) == (2, 10)
        assert client.post("/v1/dogs/delete", {"ids": ["1", 2, "nobody"]}).data["deleted"] == 2
        assert client.post("/v1/dogs/delete", {"filter": "year >= 1998"}).data["deleted"] == 2
        assert client.send("DELETE", doc_path("dogs", "new")).data["deleted"] == 1
        assert client.send("DELETE", doc_path("dogs", "new")).data["deleted"] == 0
        assert found(client) == {"3", "4", "5", "6", "7"}
        compacted = client.post("/v1/dogs/compact")
        assert compacted.status == 200
        assert compacted.data["generation"] == client.get("/v1/dogs").data["generation"]
        assert client.get("/v1/dogs").data["deleted"] == 0
    with Index.open(folder) as index:
        assert len(index) == 6


def test_read_only_unless_told(folder: Path) -> None:
    with served({"dogs": folder}) as client:
        for answer in (
            client.add("dogs", FIRST),
            client.post("/v1/dogs/delete", {"ids": ["1"]}),
            client.send("DELETE", doc_path("dogs", "1")),
            client.post("/v1/dogs/commit"),
            client.post("/v1/dogs/compact"),
            client.post("/v1/dogs/rollback"),
        ):
            assert (answer.status, answer.error) == (403, "this server is read-only; start it with --write")
    assert not folder.with_name("dogs.index.serve").exists()


def test_staged_changes_wait_for_the_commit_and_survive_the_server(folder: Path) -> None:
    with served({"dogs": folder}, write=True) as client:
        staged = client.add("dogs", [{"id": "a", "text": "a dog", "year": 1}], commit="false").data
        counts = {"staged": 1, "replaced": 0, "repeated": 0, "empty": []}
        assert staged == {"index": "dogs", **counts, "generation": 1, "committed": False}
        deleted = client.send("POST", "/v1/dogs/delete", {"filter": "year < 1995"}, commit="false").data
        assert (deleted["deleted"], deleted["committed"]) == (5, False)
        client.add("dogs", [{"id": "b", "text": "a dog", "year": 2}], commit="false")
        assert len(found(client)) == 10
    with served({"dogs": folder}, write=True) as client:
        done = client.post("/v1/dogs/commit").data
        assert (done["added"], done["deleted"], done["committed"]) == (2, 6, True)
        assert found(client) == {"5", "6", "7", "8", "9", "b"}  # a was there before the deletion, b after it
        assert client.post("/v1/dogs/commit").data["added"] == 0
        client.add("dogs", [{"id": "c", "text": "a dog"}], commit="false")
        assert client.post("/v1/dogs/rollback").data["discarded"] == 1
        assert client.post("/v1/dogs/commit").data["added"] == 0


def test_counts_of_staged_changes_look_at_those_before(folder: Path) -> None:
    """The newest change that names an id decides; a deletion by filter is held against earlier ones."""

    def add(*ids: str, **fields: Any) -> int:
        answer = client.add("dogs", [{"id": i, "text": "a dog", **fields} for i in ids], commit="false")
        return answer.data["replaced"]

    def delete(**what: Any) -> int:
        return client.send("POST", "/v1/dogs/delete", what, commit="false").data["deleted"]

    with served({"dogs": folder}, write=True) as client:
        assert add("a", "b", "0", year=2030) == 1
        assert (add("a"), add("a", "c", year=1995)) == (1, 1)
        assert (delete(ids=["b", "b", "1", "nobody"]), delete(ids=["b", "1"])) == (2, 0)
        assert add("b", "1", year=2030) == 0
        assert delete(filter="year >= 2030 or year = 1992") == 1  # committed ones; b, 0 and 1 when it is applied
        assert (add("0", "1", "2", "b"), add("3", "a", "c")) == (0, 3)
        assert client.post("/v1/dogs/rollback").data["discarded"] == 9
        assert (add("a", "0"), add("a", "1", "2")) == (1, 3)
        client.post("/v1/dogs/commit")
        assert add("a", "0", "new") == 2
        staged = folder.with_name("dogs.index.serve") / "staged"
        assert client.post("/v1/dogs/commit").data["replaced"] == 2
        assert [path.name for path in staged.iterdir()] == ["name"]


def test_state_is_kept_where_told(folder: Path, tmp_path: Path) -> None:
    with served({"dogs": folder}, write=True, state=str(tmp_path / "state")) as client:
        client.add("dogs", [{"id": "a", "text": "a dog"}], commit="false")
    assert len(Staging(tmp_path / "state" / "dogs" / "staged").changes()) == 1
    assert not folder.with_name("dogs.index.serve").exists()


@pytest.mark.parametrize("commit", ["true", "false"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"id": "x", "text": "fine"}\n{"id": "y", "text":', "documents:2: this line is not JSON"),
        (b'{"id": "x", "text": "fine"}\n{"n": "no id"}\n', "documents:2: the document has no id"),
        (b'{"id": "x", "text": 7}\n', "text"),
        (b"[1, 2]\n", "documents:1: expected a JSON object"),
        (b'{"id": "x", "text": "\xff"}\n', "documents:1: this is not UTF-8"),
        (b'{"id": "x", "text": "' + b"a" * 2000 + b'"}\n', "documents:1: this document has more than 1,000 bytes"),
        (b"".join(b'{"id": "%d", "text": "a"}\n' % n for n in range(6)), "there are more than 5 documents"),
        (b"x" * 20_001, "the body has more than 20,000 bytes"),
    ],
)  # fmt: skip
def test_a_bad_line_adds_nothing(folder: Path, body: bytes, message: str, commit: str) -> None:
    limits = Limits(line_bytes=1000, documents=5, upload_bytes=20_000)
    with served({"dogs": folder}, write=True, limits=limits) as client:
        answer = client.send("POST", "/v1/dogs/documents", body, commit=commit)
        assert answer.status in (400, 413), answer.body
        assert message in answer.error
        assert str(folder.parent) not in answer.error
        assert client.post("/v1/dogs/commit").data["added"] == 0
        assert len(found(client)) == 10
    assert list(folder.with_name("dogs.index.serve").rglob("*.*")) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "give either ids or a filter"),
        ({"ids": ["1"], "filter": "year > 1"}, "give either ids or a filter"),
        ({"ids": []}, "ids: list should have at least 1 item"),
        ({"filter": ""}, "filter"),
        ({"filter": {}}, "the filter is empty, so it would delete all documents"),
        ({"filter": "colour = 1"}, "no document has a field 'colour'"),
    ],
)  # fmt: skip
def test_deletions_that_are_refused(folder: Path, body: dict[str, Any], message: str) -> None:
    with served({"dogs": folder}, write=True) as client:
        answer = client.post("/v1/dogs/delete", body)
        assert answer.status == 400
        assert message in answer.error
        assert len(found(client)) == 10


def test_a_client_that_hangs_up_half_way_adds_nothing(folder: Path) -> None:
    with served({"dogs": folder}, write=True) as client:
        parts = urlsplit(client.url)
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            head = f"POST /v1/dogs/documents HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: 5000\r\n\r\n"
            connection.sendall(head.encode() + b'{"id": "half", "text": "a dog"}\n')
        time.sleep(0.3)
        assert len(found(client)) == 10
        assert client.add("dogs", [{"id": "after", "text": "a dog"}]).status == 200
        assert "half" not in found(client)
        staged = folder.with_name("dogs.index.serve") / "staged"
        eventually(lambda: list(staged.iterdir()) == [])


def test_large_uploads_in_bounded_memory(folder: Path) -> None:
    from vizsla.server.metrics import resident_bytes

    line = json.dumps({"id": "%d", "text": "many dogs and few other words " * 30}).encode() + b"\n"
    body = b"".join(line % n for n in range(30_000))
    with served({"dogs": folder}, write=True) as client:
        client.add("dogs", [{"id": "warm", "text": "a dog"}])
        before = resident_bytes()
        answer = client.send("POST", "/v1/dogs/documents", body)
        assert answer.data["added"] == 30_000
        assert resident_bytes() - before < 300 << 20


def test_a_search_may_wait_for_a_commit_of_another_process(folder: Path) -> None:
    with served({"dogs": folder}) as client, Index.open(folder) as other:
        other.add([{"id": "late", "text": "a late dog"}])
        other.commit()
        answer = client.post("/v1/dogs/search", {"query": "late", "generation": 2})
        assert [h["id"] for h in answer.data["results"][0]["hits"]] == ["late"]
        assert answer.data["generation"] == 2
        other.add([{"id": "later", "text": "a later dog"}])
        other.commit()
        eventually(lambda: "later" in found(client, "later"))


def test_an_error_while_it_looks_for_commits_does_not_end_the_looking(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served({"dogs": folder}) as client, Index.open(folder) as other:
        with monkeypatch.context() as patch:
            patch.setattr(Index, "is_outdated", lambda _: 1 / 0)
            eventually(lambda: "looking for new commits failed" in caplog.text)
        other.add([{"id": "late", "text": "a late dog"}])
        other.commit()
        eventually(lambda: "late" in found(client, "late"))


def test_a_generation_that_never_comes(folder: Path) -> None:
    with served({"dogs": folder}, limits=Limits(seconds=1)) as client:
        answer = client.post("/v1/dogs/search", {"query": "dog", "generation": 99})
        assert (answer.status, answer.error) == (503, "the index dogs has the generation 1, not 99 yet")


def test_commits_while_searching(folder: Path) -> None:
    """Every answer is that of some commit: as many documents as it says."""
    stop, problems = threading.Event(), []
    with served({"dogs": folder}, write=True) as client:

        def search() -> None:
            while not stop.is_set():
                answer = client.get("/v1/dogs/search", query="dog", hits=1000)
                if answer.status != 200 or len(answer.data["candidates"]) % 10:
                    problems.append(answer)

        threads = [threading.Thread(target=search) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(10):
            client.add("dogs", [{"id": f"{n}-{m}", "text": "one more dog"} for m in range(10)])
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(found(client)) == 110


def test_a_hit_that_is_deleted_before_it_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is done again: the answer is that of the new commit, not an error."""
    with served({"dogs": folder}, write=True) as client:
        explain, deleted = Index.explain, []

        def late(index: Index, query: str, doc_id: str, *rest: Any, **options: Any) -> Any:
            if not deleted:
                deleted.append(doc_id)
                assert client.post("/v1/dogs/delete", {"ids": [doc_id]}).status == 200
            return explain(index, query, doc_id, *rest, **options)

        monkeypatch.setattr(Index, "explain", late)
        answer = client.post("/v1/dogs/search", {"query": "dog", "k": 3, "explain": True})
        assert answer.status == 200, answer.body
        assert deleted[0] not in [hit["id"] for hit in answer.data["results"][0]["hits"]]


def test_two_writers(folder: Path) -> None:
    with served({"dogs": folder}, write=True, limits=Limits(seconds=0.5)) as client, Index.open(folder) as other:
        with other.writer() as writer:
            writer.add([{"id": "other", "text": "a dog"}])
            answer = client.add("dogs", [{"id": "ours", "text": "a dog"}])
            assert (answer.status, answer.headers["retry-after"]) == (409, "1")
            assert str(folder.parent) not in answer.error
            writer.commit()
        eventually(lambda: client.add("dogs", [{"id": "ours", "text": "a dog"}]).status == 200)
        other.refresh()
        assert {"ours", "other"} <= {hit.id for hit in other.search("dog", 100)}
    with served({"dogs": folder}) as client:
        assert {"ours", "other"} <= found(client)


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """A disk of 3 MB: what does not fit is refused in one sentence, and all that was there stays."""
    folder = build(small_disk / "dogs.index", FIRST)
    text = " ".join(f"word{n}" for n in range(20_000))
    with served({"dogs": folder}, write=True) as client:
        answer = client.add("dogs", [{"id": f"x{n}", "text": text} for n in range(20)])  # the upload fills it
        assert (answer.status, answer.error.endswith("nothing was changed")) == (507, True)
        assert client.add("dogs", [{"id": "y", "text": "a dog"}]).status == 200
    with served({"dogs": folder}, write=True, state=str(tmp_path / "state")) as client:  # the index fills it
        answer = client.add("dogs", [{"id": f"x{n}", "text": text} for n in range(20)])
        assert answer.status == 507
        assert str(small_disk) not in answer.error
        assert found(client) == {*map(str, range(10)), "y"}
        assert client.add("dogs", [{"id": "z", "text": "a dog"}]).status == 200


def test_an_index_replaced_while_it_is_served(folder: Path, tmp_path: Path) -> None:
    other = build(tmp_path / "other.index", [{"id": "cat", "text": "a cat"}])
    with served({"dogs": folder}) as client:
        assert len(found(client)) == 10
        folder.rename(tmp_path / "old")
        other.rename(folder)
        eventually(lambda: found(client, "cat") == {"cat"})
        assert found(client) == set()


def test_an_index_damaged_or_gone_while_it_is_served(folder: Path, tmp_path: Path) -> None:
    with served({"dogs": folder}) as client:
        folder.rename(tmp_path / "away")
        eventually(lambda: client.get("/v1/dogs").data["status"] == "stale")
        assert str(tmp_path) not in client.get("/v1/dogs").data["reason"]
        assert len(found(client)) == 10  # what was opened stays searchable
        (tmp_path / "away").rename(folder)
        eventually(lambda: client.get("/v1/dogs").data["status"] == "ready")
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "index.db").write_bytes(b"this is no database" * 100)
        eventually(lambda: client.get("/v1/dogs").data["status"] == "stale")
        assert client.get("/healthz").status == 200


@pytest.mark.parametrize("commit", ["true", "false"])
def test_bad_lines_are_left_out_if_asked_for(folder: Path, commit: str) -> None:
    body = (
        b'{"id": "x", "text": "an owl"}\n{"id": \n{"n": 1}\n{"id": "y", "text": 7}\n{"id": "z", "text": "\xff"}\n'
        b'{"text": "an owl without id"}\n{"id": "x", "text": "another owl"}\n{"id": "l", "text": "'
        + b"a" * 2000
        + b'"}\n{"id": "0", "text": "an owl"}'
    )
    with served({"dogs": folder}, write=True, limits=Limits(line_bytes=1000)) as client:
        assert client.send("POST", "/v1/dogs/documents", body, commit=commit).status == 400
        answer = client.send("POST", "/v1/dogs/documents", body, commit=commit, skip_bad="true").data
        assert answer["staged" if commit == "false" else "added"] == 3
        assert (answer["replaced"], answer["repeated"], answer["skipped"]["count"]) == (1, 1, 5)
        assert sorted(entry["line"] for entry in answer["skipped"]["first"]) == [2, 3, 4, 5, 8]
        client.post("/v1/dogs/commit")
        assert len(found(client, "owl")) == 3
        assert client.get("/v1/dogs/doc/x").data["doc"]["text"] == "another owl"
