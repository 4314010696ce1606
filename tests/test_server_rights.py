"""Who may do what over HTTP, and requests that keep nobody else out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from served import Client, build, served
from vizsla import VizslaError
from vizsla.server.settings import Keys, Limits, read_settings
from waiting import LIMIT

READ, JUDGE, WRITE = "a-key-for-reading", "a-key-for-judging", "a-key-for-writing"
JUDGEMENT = {"query": "dog", "id": "1", "grade": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "pets.index", [{"id": "1", "text": "a dog"}, {"id": "2", "text": "a cat"}])


def statuses(client: Client, key: str | None) -> tuple[int, int, int]:
    """What a search, a judgement and a commit are answered with."""
    asker = client if key is None else client.with_headers(x_api_key=key)
    search = asker.get("/v1/pets/search", query="dog").status
    return search, asker.send("PUT", "/v1/pets/judgements", JUDGEMENT).status, asker.post("/v1/pets/commit").status


def may_judge(client: Client, key: str | None) -> bool:
    asker = client if key is None else client.with_headers(x_api_key=key)
    return bool(asker.get("/v1/indexes").data["may_judge"])


@pytest.mark.parametrize(
    ("keys", "write", "expected"),
    [
        (Keys(), False, {None: (200, 200, 403), "wrong": (200, 200, 403)}),
        (Keys(), True, {None: (200, 200, 200)}),
        (
            Keys((READ,), (WRITE,), (JUDGE,)),
            True,
            {
                None: (401, 401, 401),
                "wrong": (401, 401, 401),
                READ: (200, 403, 403),
                JUDGE: (200, 200, 403),
                WRITE: (200, 200, 200),
            },
        ),
        (Keys((READ,), (WRITE,)), False, {READ: (200, 403, 403), WRITE: (200, 200, 403)}),
        (Keys((READ,)), False, {READ: (200, 403, 403)}),
        (Keys(write=(WRITE,)), True, {None: (200, 401, 401), "wrong": (200, 401, 401), WRITE: (200, 200, 200)}),
        (Keys(judge=(JUDGE,)), False, {None: (200, 401, 403), JUDGE: (200, 200, 403)}),
    ],
)
def test_what_each_key_may_do(
    folder: Path, keys: Keys, write: bool, expected: dict[str | None, tuple[int, int, int]]
) -> None:
    with served({"pets": folder}, keys=keys, write=write) as client:
        assert {key: statuses(client, key) for key in expected} == expected
        for key, (search, judge, _) in expected.items():
            if search == 200:  # who could judge with another key is shown the buttons, too
                assert may_judge(client, key) == (judge != 403)


def test_judgements_where_other_machines_reach_the_server(folder: Path) -> None:
    with served({"pets": folder}, host="0.0.0.0") as client:  # it listens on 127.0.0.1 all the same
        answer = client.send("PUT", "/v1/pets/judgements", JUDGEMENT)
        assert answer.status == 403
        assert answer.error.startswith("judgements need a key if other machines can reach the server; start it with")
        assert client.get("/v1/indexes").data["may_judge"] is False
        assert client.get("/v1/pets/judgements").data == {"queries": []}
    with served({"pets": folder}, host="0.0.0.0", keys=Keys(judge=(JUDGE,))) as client:
        assert statuses(client, JUDGE) == (200, 200, 403)


def test_what_is_said_about_keys(folder: Path) -> None:
    with served({"pets": folder}, keys=Keys((READ,), (WRITE,))) as client:
        missing, wrong = client.get("/v1/pets"), client.with_headers(x_api_key="wrong").get("/v1/pets")
        assert missing.error == "a key is needed: send Authorization: Bearer KEY or X-API-Key: KEY"
        assert wrong.error.startswith("the key that was sent is not known here; send one")
        judged = client.with_headers(x_api_key=READ).send("PUT", "/v1/pets/judgements", JUDGEMENT)
        assert judged.error == "this key may not judge; use the key of a line 'judge KEY' or 'write KEY'"


def test_keys_to_judge_in_a_file_and_in_the_environment(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"read {READ}\njudge {JUDGE}\nwrite {WRITE}\n")
    file.chmod(0o600)
    flags = {"indexes": {"pets": str(folder)}, "keys": str(file)}
    other = "another-key-for-judging"
    assert read_settings(flags, None, {"VIZSLA_JUDGE_KEY": other}).keys == Keys((READ,), (WRITE,), (other, JUDGE))
    file.write_text(f"judges {JUDGE}\n")
    with pytest.raises(VizslaError, match="expected 'read KEY', 'judge KEY', 'write KEY' or 'admin KEY'"):
        read_settings(flags, None, {})


# Bodies that do not come


BODY = b'{"query": "dog"}'


@contextmanager
def awaited(client: Client) -> Iterator[socket.socket]:
    """A search whose body the server waits for: it says so, since the head asks."""
    parts = urlsplit(client.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=LIMIT) as connection:
        head = f"POST /v1/pets/search HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(BODY)}\r\nexpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield connection


def test_bodies_that_do_not_come_keep_nobody_out(folder: Path) -> None:
    with served({"pets": folder}, limits=Limits(in_flight=2)) as client, ExitStack() as stack:
        slow = [stack.enter_context(awaited(client)) for _ in range(5)]
        assert client.get("/v1/pets/search", query="dog").status == 200
        assert client.post("/v1/pets/search", {"query": "dog"}).status == 200
        for connection in slow:
            connection.sendall(BODY)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_the_body_that_is_awaited_longest_is_given_up(folder: Path) -> None:
    with served({"pets": folder}, limits=Limits(bodies=2)) as client, ExitStack() as stack:
        first, second, third = (stack.enter_context(awaited(client)) for _ in range(3))
        assert first.recv(65536).startswith(b"HTTP/1.1 408 ")
        for connection in (second, third):
            connection.sendall(BODY)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
