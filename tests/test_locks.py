"""What a process holds: SQLite's locks through every public call, file handles of none that is closed."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index
from vizsla.index import document_vectors, verify
from vizsla.index.storage import arrays

LINUX = Path("/proc/self/fd").is_dir()


def records(ids: range) -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"common word{i % 10}", "year": i} for i in ids]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "i") as index:
        for i in range(8):
            index.add(records(range(10 * i, 10 * i + 10)))
            index.commit()
    return tmp_path / "i"


# Locks


class Process:
    """Another process with the index open, which does what it is told a line at a time."""

    CODE = """
import json, sys
from vizsla.index import Index, verify
index = Index.open(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    try:
        for step in json.loads(line):
            name, *arguments = step
            if name == "add":
                arguments = [[{"id": f"{arguments[0]}{i}", "text": "common"} for i in range(arguments[1])]]
            last = verify(index.path) if name == "verify" else getattr(index, name)(*arguments)
        print(json.dumps(["fine", last if isinstance(last, list) else len(index)]), flush=True)
    except Exception as e:
        print(json.dumps([type(e).__name__, str(e)]), flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", self.CODE, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "open\n"

    def does(self, *steps: list[Any]) -> list[Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(steps) + "\n")
        self._child.stdin.flush()
        answer: list[Any] = json.loads(self._child.stdout.readline())
        return answer

    def end(self) -> None:
        self._child.communicate()


@pytest.mark.slow
def test_a_commit_survives_a_verify_in_another_process(folder: Path) -> None:
    """The chain that once lost twenty documents: verifying dropped the locks that the process held."""
    a = Process(folder)
    assert a.does(["verify"]) == ["fine", []]
    b = Process(folder)
    assert b.does(["add", "b", 30], ["commit"]) == ["fine", 110]
    b.end()
    c = Process(folder)
    assert a.does(["refresh"], ["add", "a", 20], ["commit"]) == ["fine", 130]
    assert c.does(["refresh"], ["add", "c", 10], ["commit"]) == ["fine", 140]
    assert a.does(["refresh"]) == ["fine", 140]
    assert a.does(["verify"]) == ["fine", []]
    a.end()
    c.end()
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert len(index.search("common", 1000)) == len(index) == 140


def own_locks(folder: Path) -> list[str]:
    """The locks this process holds on the index's database."""
    inodes = {f":{(folder / name).stat().st_ino}" for name in ("index.db", "index.db-shm") if (folder / name).exists()}
    rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return sorted(
        " ".join(row[1:])
        for row in rows
        if row[1] == "POSIX" and row[4] == str(os.getpid()) and any(row[5].endswith(i) for i in inodes)
    )


def public_calls(folder: Path) -> Iterator[tuple[str, Callable[[Index], object]]]:
    yield "search", lambda i: i.search("common", filter="year > 3")
    yield "explain", lambda i: i.explain("common", "3")
    yield "info", lambda i: i.info()
    yield "verify", lambda i: verify(i.path)
    yield "documents", lambda i: list(i.documents())
    yield "vectors", lambda i: list(document_vectors(i))
    yield "delete and roll back", lambda i: (i.delete(["1"]), i.rollback())
    yield "open another", lambda _: Index.open(folder).close()
    yield "write by another", lambda _: write_by_another(folder)
    yield "compact by another", lambda _: compact_by_another(folder)


def write_by_another(folder: Path) -> None:
    with Index.open(folder) as other:
        other.add(records(range(200, 203)))
        other.commit()


def compact_by_another(folder: Path) -> None:
    with Index.open(folder) as other:
        other.delete(["200"])
        other.compact()


@pytest.mark.skipif(not Path("/proc/locks").is_file(), reason="the system does not list locks")
def test_no_public_call_drops_the_locks_of_the_process(folder: Path) -> None:
    with Index.open(folder) as index:
        before = own_locks(folder)
        if not before:
            pytest.skip("the system does not list this process's locks")
        for name, call in public_calls(folder):
            call(index)
            held = own_locks(folder)
            assert len(held) >= len(before), f"{name}: {held} after {before}"


# Handles


@pytest.fixture
def few_handles() -> Iterator[None]:
    """At most 256 open files, as on some systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def handles() -> int:
    return len(os.listdir("/proc/self/fd")) if LINUX else 0


@pytest.mark.slow
@pytest.mark.usefixtures("few_handles")
def test_handles_are_closed_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No garbage collection comes to help; `python tests/endurance.py` does each ten thousand times."""
    monkeypatch.setattr(arrays, "SMALL", 0)  # so that every array is a map, as in a large index
    gc.disable()
    try:
        start = handles()
        for _ in range(60):
            with Index.open(folder) as index:
                index.search("common")
        assert handles() == start
        with Index.open(folder) as index:
            open_once = handles()
            for _ in range(60):
                index.refresh()
                index.search("common")
            assert handles() <= open_once + 4
            for i in range(60):
                index.add(records(range(i, i + 1)))
                index.commit()
            assert handles() <= open_once + 4
            verify(index.path)
        assert handles() == start
        with suppress(ZeroDivisionError), Index.open(folder) as index:
            index.add(records(range(3)))
            raise ZeroDivisionError
        assert handles() == start
    finally:
        gc.enable()
    assert verify(folder) == []
