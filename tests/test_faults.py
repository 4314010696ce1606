"""A few of the faults that `python tests/faults.py` tries all of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults import documents, library, state
from progress import Progress
from vizsla import Index
from vizsla.index import verify


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    made = library(folder)
    if made is None:
        pytest.skip("failing file operations need Linux and a C compiler")
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "LD_PRELOAD": str(made), "VIZSLA_FAULTS": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("scenario", "step", "file"),
    [("sparse", 31, ""), ("sparse", 9, "index.db-wal"), ("plaid", 83, ""), ("coil", 83, ""), ("threads", 37, "")],
)
def test_what_is_said_of_a_commit_that_fails_is_true(tmp_path: Path, scenario: str, step: int, file: str) -> None:
    ran = run(tmp_path, "faults.py", "--step", step, "--only", scenario, "--file", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["1 scenarios, about 1 minutes on an idle machine", f"{scenario}: building the index"]
    assert "operations failed, and each time what was said was true" in ran.stdout


def test_long_checks_say_how_long_they_take_and_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(seconds=0)
    progress.tell("sparse: 7 of 9 operations done")
    assert capsys.readouterr().out == "     0 s  sparse: 7 of 9 operations done\n"
    script = Path(__file__).with_name("crash.py")
    crash = subprocess.run(
        [sys.executable, script, "--times", "1", "--model", "sparse"], capture_output=True, text=True, check=True
    )
    first, *_, last = crash.stdout.splitlines()
    assert [first, last] == [
        "1 crashes, about 1 minutes on an idle machine",
        "1 crashes, and each time exactly the last commit was there",
    ]


# The disk is full from the sync of the commit on. The commit only deletes, so it has written nothing to the log before.
# Then there is room again, and the next change begins.
ROOM_AGAIN = """
import errno, os, shutil, sys
from pathlib import Path
import faults
from vizsla.errors import VizslaError
from vizsla.index import Index

place, library = Path(sys.argv[1]), faults.loaded()
copy = place.with_name("copy")
shutil.copytree(place, copy)

def arm(folder, number):
    library.faults_arm(str(folder).encode(), str(folder / "index.db-wal").encode(), number, errno.ENOSPC, True)

def delete(folder):
    index = Index.open(folder)
    index.delete([str(i) for i in range(1, 300, 2)])
    return index

index = delete(copy)
arm(copy, 0)
index.commit()
last = library.faults_calls()
index = delete(place)
for number in (last, 0):
    arm(place, number)
    try:
        index.commit()
        print("committed")
    except VizslaError as e:
        print(e)
index.rollback()
index.add([{"id": "another", "text": "change"}])
os._exit(0)
"""


def test_a_commit_of_which_it_is_not_known_never_comes_back_without_its_files(tmp_path: Path) -> None:
    place = tmp_path / "i"
    with Index.create(place) as index:
        index.add(documents(range(300), 0))
        index.commit()
    old = state(place)
    ran = run(tmp_path, "-c", ROOM_AGAIN, place)
    first, second = ran.stdout.splitlines()
    assert "it is not known whether the changes are committed" in first
    assert "call rollback() to begin again" in second
    assert verify(place) == []
    assert state(place) == old
