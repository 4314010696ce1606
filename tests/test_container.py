"""The container: what the Dockerfile and compose.yaml say agrees with the package, the server and each other.

No image is built here. The files are parsed, and the parts that can be run without Docker are run.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli

ROOT = Path(__file__).resolve().parent.parent
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """The instructions of the Dockerfile with their arguments, on one line each."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.split("\n")) if name
    ]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, from its FROM on."""
    found: list[list[Instruction]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def arguments(stage: list[Instruction], name: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def environment() -> dict[str, str]:
    pairs = shlex.split(" ".join(arguments(stages()[-1], "ENV")))
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


@pytest.fixture
def service(compose: dict[str, Any]) -> dict[str, Any]:
    assert list(compose["services"]) == ["vizsla"]
    found: dict[str, Any] = compose["services"]["vizsla"]
    return found


# The image


def test_the_base_is_slim_and_pinned() -> None:
    first = instructions()[0]
    tag = re.fullmatch(r"PYTHON=((\d+)\.(\d+)\.\d+)-slim-[a-z]+", first[1])
    assert first[0] == "ARG"
    assert tag is not None
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (int(tag[2]), int(tag[3])) >= tuple(map(int, needed.removeprefix(">=").split(".")))
    assert [rest for name, rest in instructions() if name == "FROM"] == [
        "python:${PYTHON} AS build",
        "python:${PYTHON}",
    ]


def test_what_is_copied_is_there_and_nothing_else_is_sent() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = [shlex.split(rest) for rest in arguments(stages()[0], "COPY")]
    sources = {source for words in copied for source in words[:-1]}
    assert sources == sent
    assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"]} <= sources


def test_the_extras_are_light_and_pinned() -> None:
    build = " ".join(arguments(stages()[0], "RUN"))
    match = re.search(r"\.whl\)\[([a-z,]+)\]", build)
    assert match is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = match[1].split(",")
    assert extras == ["server", "neural"]
    needed = [*known["dependencies"], *(one for extra in extras for one in known["optional-dependencies"][extra])]
    pinned = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    names = {re.split(r"[<>=\[;! ]", one)[0].lower() for one in needed}
    assert {name for name in names if not any(line.startswith(f"{name}==") for line in pinned)} == set()
    assert "-c constraints.txt" in build


def test_the_image_is_not_root() -> None:
    final = stages()[-1]
    assert arguments(final, "USER") == ["10001:10001"]
    made = " ".join(arguments(final, "RUN"))
    assert "--uid 10001 --gid 10001" in made
    after = final[[name for name, _ in final].index("USER") + 1 :]
    assert not any(name in ("COPY", "ADD") for name, _ in after)
    owned = re.search(r"install --directory --owner vizsla --group vizsla (.+)$", arguments(final, "RUN")[0])
    assert owned is not None
    places = [Path(place) for place in owned[1].split()]
    written = [Path(environment()[name]) for name in ("XDG_CACHE_HOME",)]
    written += [Path(place) for place in json.loads(arguments(final, "VOLUME")[0])]
    assert all(any(place == own or place.is_relative_to(own) for own in places) for place in written)


def served(words: list[str]) -> list[str]:
    """The flags of a command that serves, after checking that it does."""
    assert words[0] == "serve"
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def test_the_command_serves(cli: Cli, service: dict[str, Any]) -> None:
    final = stages()[-1]
    assert json.loads(arguments(final, "ENTRYPOINT")[0]) == ["vizsla"]
    command = json.loads(arguments(final, "CMD")[0])
    code, out, _ = cli("serve", "--help")
    assert code == 0
    known = set(re.findall(r"--[a-z-]+", out))
    assert {*served(command), *served(service["command"])} <= known
    port = command[command.index("--port") + 1]
    assert arguments(final, "EXPOSE") == [port]
    assert f"--port={port}" in service["command"]
    assert command[1] == service["command"][1] == "/data/index"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers everything with a status; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_health_check_tells_health() -> None:
    health = arguments(stages()[-1], "HEALTHCHECK")[0]
    words = json.loads(health.partition(" CMD ")[2])
    assert words[:2] == ["python", "-c"]
    assert f":{arguments(stages()[-1], 'EXPOSE')[0]}/healthz" in words[2]

    def check(port: int) -> int:
        code = words[2].replace(":8080/", f":{port}/")
        proxied = {"http_proxy": "http://127.0.0.1:1", "PATH": ""}  # nobody listens there
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=proxied).returncode

    with answering(200) as port:
        assert check(port) == 0
    with answering(503) as port:
        assert check(port) != 0
    assert check(port) != 0  # nobody listens there now


# compose.yaml


def test_compose_has_the_parts_it_names(compose: dict[str, Any], service: dict[str, Any]) -> None:
    assert set(compose) == {"services", "volumes", "secrets"}
    mounts = dict(volume.split(":") for volume in service["volumes"])
    assert set(mounts) == set(compose["volumes"])
    assert set(service["secrets"]) == set(compose["secrets"])
    assert [f"--keys=/run/secrets/{name}" in service["command"] for name in service["secrets"]] == [True]
    (published,) = service["ports"]
    address, _, inside = published.rsplit(":", 2)
    assert (address, [inside]) == ("127.0.0.1", arguments(stages()[-1], "EXPOSE"))
    assert "/" not in service["image"]
    assert service["build"] == "."


def test_compose_locks_the_container(service: dict[str, Any]) -> None:
    assert service["restart"] == "unless-stopped"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "user" not in service  # that of the image
    writable = [Path(volume.split(":")[1]) for volume in service["volumes"]] + [Path(t) for t in service["tmpfs"]]
    written = [Path(environment()[name]) for name in ("XDG_CACHE_HOME",)]
    written += [Path(service["command"][1]), Path("/tmp")]
    assert all(any(place.is_relative_to(own) for own in writable) for place in written)


def test_compose_gives_requests_time_to_end(service: dict[str, Any]) -> None:
    pytest.importorskip("fastapi", reason="the server needs the extra server")
    from vizsla.server.running import GRACE

    assert int(service["stop_grace_period"].removesuffix("s")) >= GRACE + 5


def test_the_guide_says_the_same(service: dict[str, Any]) -> None:
    guide = (ROOT / "docs" / "container.md").read_text()
    command = json.loads(arguments(stages()[-1], "CMD")[0])
    assert f"`vizsla {' '.join(command)}`" in guide
    assert "chown 10001:10001 vizsla.keys" in guide
    assert "/run/secrets/vizsla_keys" in guide
    for volume in service["volumes"]:
        assert f"`{volume.split(':')[1]}" in guide
