"""Writers that are killed, disks that are full, and folders that one may only read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from many_threads import use_threads
from numbered import build, records
from vizsla import Index
from vizsla.errors import CollectionError
from vizsla.index import verify


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "times"), [("sparse", 4), ("tokens", 2), ("plaid", 2), ("coil", 2)])
def test_a_killed_writer_leaves_the_last_commit(tmp_path: Path, kind: str, times: int) -> None:
    """The short form of tests/crash.py."""
    import crash

    assert crash.run(times, seed=1, folder=tmp_path, kind=kind) == []


def fill(index: Index) -> None:
    for n in range(100):
        index.add([{"id": f"{n}-{i}", "text": f"common w{n}x{i} " * 40} for i in range(500)])
        index.commit()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_full_disk_is_one_sentence_and_loses_nothing(
    small_disk: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads > 1:
        use_threads(threads, partial(monkeypatch.setattr, raising=False))
    folder = small_disk / "i"
    build(folder, records(500)).close()
    with Index.open(folder) as index:
        with pytest.raises(CollectionError, match=r"the disk is full|No space left") as error:
            fill(index)
        assert "\n" not in str(error.value)
        complete = len(index)
        assert complete >= 500
        assert complete % 500 == 0
    with Index.open(folder) as index:
        assert len(index) == complete
        assert len(index.search("common", 10**6)) == complete
    assert verify(folder) == []
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    with Index.open(folder) as index:
        index.add(records(500, "another"))
        index.compact()
        assert len(index) == complete
        assert len(index.search("another", 10**6)) == 500
    assert verify(folder) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_who_may_only_read_can_search() -> None:
    folder = Path(tempfile.mkdtemp()) / "i"
    build(folder, records(20)).close()
    for place in (folder.parent, *folder.parent.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    found = subprocess.run(
        [sys.executable, "-c", READ_AS_NOBODY, folder], capture_output=True, text=True, check=False, cwd="/"
    )
    assert (found.stdout, found.returncode) == ("20 3\n", 0), found.stderr
    shutil.rmtree(folder.parent)


READ_AS_NOBODY = """
import os, sys
from vizsla.index import Index
def search():
    with Index.open(sys.argv[1]) as index:
        return len(index), len(index.search("common", 3))
search()  # loads what nobody may not be able to read: Python itself
os.setgid(65534); os.setuid(65534)
print(*search())
"""
