"""Python exits while daemon threads use an index: nothing is closed under them, and the index is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vizsla import Index
from vizsla.index import verify
from waiting import LIMIT

BEGIN = """
import os, sys, threading
from vizsla import Index

folder = sys.argv[1]
index = Index.open(folder)
going = threading.Event()

def forever(step):
    def run():
        while True:
            step()
            going.set()
    threading.Thread(target=run, daemon=True).start()
"""

DAEMONS = {
    "commits": """
def step():
    index.add([{"id": "1", "text": "Dogs bark."}])
    index.commit()
forever(step)
""",
    "refreshes": """
forever(index.refresh)
""",
    "opens": """
def step():
    with Index.open(folder) as other:
        other.search("dogs")
forever(step)
""",
    "does everything": """
def change():
    index.add([{"id": "1", "text": "Dogs bark."}])
    index.commit()
forever(change)
forever(index.refresh)
forever(lambda: [hit["text"] for hit in index.search("dogs")])
""",
}

# A statement that does not end: the thread is inside SQLite when Python exits.
INSIDE = """
def endless():
    going.set()
    connection = index._searcher.snapshot.connection
    connection.rows("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")
threading.Thread(target=endless, daemon=True).start()
"""

END = """
going.wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(i), "text": "Dogs bark."} for i in range(20)])
        index.commit()
    return tmp_path / "i"


def run(folder: Path, script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def check_whole(folder: Path) -> None:
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert len(index) == 20
        index.add([{"id": "next", "text": "Dogs bark."}])  # the lock is free
        index.commit()
        index.delete("next")
        index.commit()


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)], ids=["once", "again and again"])
@pytest.mark.parametrize("daemon", DAEMONS)
def test_exit_while_a_daemon_thread(folder: Path, daemon: str, times: int) -> None:
    for _ in range(times):
        ended = run(folder, BEGIN + DAEMONS[daemon] + END)
        assert ended.returncode == 0, ended.stderr
        check_whole(folder)


def test_exit_while_a_daemon_thread_is_inside_sqlite(folder: Path) -> None:
    ended = run(folder, BEGIN + INSIDE + END + "import time; time.sleep(0.2)")
    assert ended.returncode == 0, ended.stderr
    check_whole(folder)


def test_exit_keeps_the_lock_as_long_as_a_daemon_thread_may_write(folder: Path) -> None:
    """Exit functions that run after those of Vizsla see that another process could not write."""
    script = (
        "import atexit, subprocess, sys\n"
        "def another_writer():\n"
        "    code = 'import sys; from vizsla import Index; Index.open(sys.argv[1]).writer(timeout=0)'\n"
        "    ended = subprocess.run([sys.executable, '-c', code, sys.argv[1]], capture_output=True, text=True)\n"
        "    print(ended.stderr.splitlines()[-1:], flush=True)\n"
        "atexit.register(another_writer)\n"
        + BEGIN
        + "writer = index.writer()\n"
        + "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    ended = run(folder, script)
    assert "another writer is using the index" in ended.stdout
    assert ended.returncode == 0, ended.stderr
    check_whole(folder)


def test_exit_without_other_threads_leaves_no_side_files(folder: Path) -> None:
    script = "import sys; from vizsla import Index; index = Index.open(sys.argv[1]); index.add([]); index.commit()"
    ended = run(folder, script)
    assert ended.returncode == 0, ended.stderr
    assert not [name for name in os.listdir(folder) if name.startswith("index.db-")]


# Exit waits for threads that are no daemons, and Python starts no other threads by then.
LATE = """
from many_threads import use_threads
use_threads(3)
index = Index.open(folder)
index.add({"id": f"early {i}", "text": f"Dogs bark w{i}."} for i in range(300))
def late():
    threading.main_thread().join()
    index.commit()
    index.add({"id": f"late {i}", "text": f"Dogs sleep x{i}."} for i in range(300))
    index.add(Source.find(sys.argv[2]).raw_lines(), workers=3)
    index.compact()
    print("committed", len(index))
threading.Thread(target=late).start()
"""


def test_a_thread_may_add_and_commit_when_the_main_thread_has_ended(folder: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"_id": f"line {i}", "text": f"Cats purr y{i}."}) + "\n" for i in range(300)))
    imports = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from vizsla.datasets import Source\n"
    ended = run(folder, imports + BEGIN + LATE, lines)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("committed 920\n", "", 0)
    assert verify(folder) == []
    with Index.open(folder) as index:
        assert len(index.search("dogs", 1000)) == 620
        assert index.search("y299").ids == ["line 299"]
