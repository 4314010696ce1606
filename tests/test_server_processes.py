"""`vizsla serve` as a user starts it: words on the screen, workers, signals, a worker killed under load."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from served import Client, build, running
from vizsla import Index
from waiting import LIMIT, eventually

DOCUMENTS = [{"id": str(n), "text": f"a dog number{n}"} for n in range(50)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("processes") / "dogs.index", DOCUMENTS)


def refused(*arguments: object, env: dict[str, str] | None = None) -> str:
    """What `vizsla serve` says when it does not start; it exits with 2."""
    command = [sys.executable, "-m", "vizsla", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=LIMIT)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line.removeprefix("vizsla: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_stops(folder: Path, number: int) -> None:
    with running(folder) as server:
        assert "dogs: 50 documents, bm25\n" in server.log
        assert server.client.get("/v1/dogs/search", query="dog").status == 200
        assert server.stop(number) == 0
        eventually(lambda: server.log[-1] == "Stopped.\n")
        (line,) = [line for line in server.log if "GET" in line]
        assert "/v1/dogs/search 200" in line
        assert "query" not in line


def test_texts_are_logged_only_when_told(folder: Path) -> None:
    with running(folder, "--log-texts") as server:
        server.client.get("/v1/dogs/search", query="secret\x1b[2Jdog")
        eventually(lambda: any("query=secret%1B%5B2Jdog" in line for line in server.log))


@pytest.mark.slow
def test_what_does_not_start(folder: Path, tmp_path: Path) -> None:
    assert refused() == "nothing to serve: name at least one index, as in vizsla serve my.index"
    assert str(tmp_path / "none") in refused(tmp_path / "none")
    assert refused(folder, f"dogs={folder}").startswith("two indexes have the name 'dogs'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(folder, "--port", port) == f"port {port} of 127.0.0.1 is in use; choose another with --port"
    assert "is not the name or address of a machine" in refused(folder, "--host", "no.such.host.invalid")
    assert refused(folder, "--port", 70000) == "a port is a number from 0 to 65535, not 70000"
    assert refused(folder, "--write", "--host", "0.0.0.0").startswith("anybody who reaches 0.0.0.0 could change")
    assert "did you mean 'bm25'" in refused(folder, "--model", "x=bm225")
    assert refused(folder, "--limits", "k=many") == "--limits: k takes a number, not 'many'"
    keys = tmp_path / "keys"
    keys.write_text("read " + "k" * 20)
    keys.chmod(0o644)
    assert (
        refused(folder, "--keys", keys) == f"{keys}: other users can read this file of keys; protect it with: chmod 600"
    )
    keys.chmod(0o600)
    assert refused(folder, "--keys", keys, "--write").startswith("--write needs a key to write with")


def test_settings_from_a_file_and_the_environment(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nread " + "k" * 20 + "\n")
    keys.chmod(0o600)
    config = tmp_path / "serve.toml"
    config.write_text(
        f'keys = "keys"\n[indexes]\nhounds = "{folder}"\n'
        '[models]\ntuned = "bm25(k1=1.2)"\n[limits]\nk = 7\nqueries = 3\n'
    )
    with running("--config", config, env={"VIZSLA_SERVE_LIMIT_K": "5"}) as server:
        assert server.client.get("/v1/indexes").status == 401
        client = server.client.with_headers(x_api_key="k" * 20)
        data = client.get("/v1/indexes").data
        assert (data["limits"]["k"], data["limits"]["queries"]) == (5, 3)
        assert [index["name"] for index in data["indexes"]] == ["hounds"]
        assert (
            client.post("/v1/hounds/search", {"query": "dog", "k": 5, "model": "tuned"}).data["model"] == "bm25(k1=1.2)"
        )
    assert "unknown setting VIZSLA_SERVE_PROT" in refused(folder, env={"VIZSLA_SERVE_PROT": "1"})
    assert refused(folder, env={"VIZSLA_SERVE_PORT": "x"}) == "VIZSLA_SERVE_PORT is 'x', and not a whole number"
    config.write_text("prot = 1")
    assert f"{config}: unknown setting 'prot'" in refused(folder, "--config", config)


@pytest.mark.slow
def test_a_worker_killed_under_load(folder: Path) -> None:
    """No wrong answer, and no errors once another one has started."""
    with running(folder, "--workers", 2, "--quiet") as server:
        eventually(lambda: len(server.workers()) == 2)
        time.sleep(2)  # both answer
        expected = server.client.get("/v1/dogs/search", query="number7 dog", hits=5).data
        stop, wrong, failures, answers = threading.Event(), [], [], []

        def ask() -> None:
            while not stop.is_set():
                try:
                    answer = server.client.get("/v1/dogs/search", query="number7 dog", hits=5)
                    if answer.status != 200 or answer.data != expected:
                        wrong.append(answer)
                    answers.append(1)
                except OSError:
                    failures.append(1)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(answers) > 100)
        victim = server.workers()[0]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: any("another one starts" in line for line in server.log))
        eventually(lambda: len(server.workers()) == 2 and victim not in server.workers())
        failed, answered = len(failures), len(answers)
        eventually(lambda: len(answers) > answered + 500)
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(failures) == failed
        assert server.stop() == 0


def test_workers_see_commits_and_share_figures(tmp_path: Path) -> None:
    own = build(tmp_path / "own.index", DOCUMENTS)
    with running(own, "--workers", 2, "--write", "--quiet") as server:
        eventually(lambda: len(server.workers()) == 2)
        generation = server.client.add("own", [{"id": "new", "text": "a new dog"}]).data["generation"]
        for _ in range(20):
            body = {"query": "new", "generation": generation}
            assert server.client.post("/v1/own/search", body).data["results"][0]["hits"][0]["id"] == "new"
        with Index.open(own) as other:
            other.add([{"id": "newer", "text": "a newer dog"}])
            other.commit()
        newer = "/v1/own/search"
        eventually(lambda: all(server.client.get(newer, query="newer").data["candidates"] for _ in range(20)))
        text = server.client.get("/metrics").body.decode()
        counted = [line for line in text.splitlines() if line.startswith("vizsla_requests_total{")]
        assert sum(float(line.split()[-1]) for line in counted) >= 41


@pytest.mark.slow
def test_workers_end_with_their_supervisor(folder: Path) -> None:
    with running(folder, "--workers", 2, "--quiet") as server:
        eventually(lambda: len(server.workers()) == 2)
        time.sleep(2)
        workers = server.workers()
        server.process.kill()
        server.process.wait()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def _answers(client: Client) -> bool:
    try:
        return client.get("/v1/dogs/search", query="dog").status == 200
    except ConnectionError:  # the server still has as many connections as it may have
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on open files")
def test_more_connections_than_files(folder: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
    try:
        with running(folder, "--quiet") as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            address = ("127.0.0.1", int(server.client.url.rpartition(":")[2]))
            with ExitStack() as idle:
                connections = [idle.enter_context(socket.create_connection(address)) for _ in range(400)]
                time.sleep(0.5)
                for connection in connections[:200]:
                    connection.close()
                eventually(lambda: _answers(server.client))
            assert server.stop() == 0
            assert not any("Traceback" in line for line in server.log)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_search_in_flight_is_answered_before_the_server_stops(folder: Path) -> None:
    with running(folder, "--quiet") as server:
        answers: list[int] = []

        def ask(client: Client) -> None:
            while True:
                try:
                    answers.append(client.post("/v1/dogs/search", {"queries": ["dog"] * 1000, "k": 50}).status)
                except OSError:
                    return

        thread = threading.Thread(target=ask, args=(server.client,))
        thread.start()
        eventually(lambda: answers)
        assert server.stop() == 0
        thread.join()
        assert set(answers) == {200}
