"""The log of a server as JSON: every line is an object."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from served import build, running
from waiting import eventually


def test_every_line_is_an_object(tmp_path: Path) -> None:
    dogs = build(tmp_path / "dogs.index", [{"id": "1", "text": "a dog"}])
    with running(dogs, "--log-format", "json", "--workers", 2) as server:
        server.client.get("/v1/dogs/search", query="secret")
        server.client.get("/v1/dogs/doc/hidden")
        os.kill(server.workers()[0], signal.SIGKILL)
        eventually(lambda: any("another one starts" in line for line in server.log))
        server.stop()
        eventually(lambda: "Stopped." in server.log[-1])
        lines = [json.loads(line) for line in server.log]
    assert all(set(line) >= {"time", "level"} and line["time"].endswith("Z") for line in lines)
    assert lines[0]["message"] == "dogs: 1 document, bm25"
    requests = {line["path"]: line for line in lines if "path" in line}
    assert set(requests) == {"/v1/dogs/search", "/v1/dogs/doc/{docid}"} or set(requests) == {
        "/v1/dogs/search", "/v1/dogs/doc/{docid:path}",
    }  # fmt: skip
    found = requests["/v1/dogs/search"]
    assert (found["method"], found["status"], found["client"], found["level"]) == ("GET", 200, "127.0.0.1", "info")
    assert found["milliseconds"] > 0
    assert [line["level"] for line in lines if "another one starts" in line.get("message", "")] == ["error"]
    assert "secret" not in str(lines)
    assert "hidden" not in str(lines)
