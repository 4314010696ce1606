"""Processes that analyse documents: none outlives the one that started it, and what kills one is told in a sentence."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vizsla import Index, VizslaError
from vizsla.index import verify
from waiting import LIMIT, eventually

PROGRAM = """
import itertools, multiprocessing, sys, time
from vizsla.index import Index
from vizsla.index.writing import analysis

analysis.BATCH_CHARACTERS = 1

def documents(most):
    for i in itertools.count():
        yield {"id": str(i), "text": "dog"}
        if i > most and multiprocessing.active_children():
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            while True:  # a signal that comes just before a sleep begins is seen after it
                time.sleep(0.1)

if __name__ == "__main__":
    with Index.open(sys.argv[1]) as index:
        try:
            index.add(documents(int(sys.argv[2])), workers=2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""
AT_WORK = 30  # documents: so many are taken only when the first have come back


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "a", "text": "a cat"}])
        index.commit()
    return tmp_path / "i"


def begun(folder: Path, most: int) -> tuple[subprocess.Popen[str], list[int]]:
    """A program that indexes with two workers and stops after so many documents, and the workers' numbers."""
    program = folder.with_name("program.py")
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, program, folder, str(most)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert workers
    return process, workers


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_with_the_process_that_started_them(folder: Path) -> None:
    process, workers = begun(folder, AT_WORK)
    process.kill()
    process.wait()
    eventually(lambda: not any(map(alive, workers)))
    process.communicate()
    with Index.open(folder) as index:
        assert [d.id for d in index.documents()] == ["a"]
    assert verify(folder) == []


@pytest.mark.parametrize("most", [0, AT_WORK], ids=["while they start", "at work"])
def test_ctrl_c_ends_workers_at_once_and_without_a_word_of_theirs(folder: Path, most: int) -> None:
    process, workers = begun(folder, most)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = process.communicate(timeout=LIMIT)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    eventually(lambda: not any(map(alive, workers)))


def test_a_killed_worker_is_one_sentence_and_nothing_half_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vizsla.index.writing.analysis.BATCH_CHARACTERS", 1)
    killed = []

    def documents() -> Iterator[dict[str, str]]:
        for i in range(10_000):
            yield {"id": str(i), "text": "dog"}
            if i == AT_WORK:
                killed.append(multiprocessing.active_children()[0].pid)
                os.kill(killed[0], signal.SIGKILL)

    with Index.open(folder) as index:
        with pytest.raises(VizslaError) as told:
            index.add(documents(), workers=2)
        sentence = f"worker process {killed[0]} was killed (SIGKILL), probably because memory ran out; try again"
        assert str(told.value).startswith(sentence)
        assert "--workers" in str(told.value)
        assert multiprocessing.active_children() == []
        index.add([{"id": "b", "text": "a dog"}])
        index.commit()
        assert [d.id for d in index.documents()] == ["a", "b"]
    assert verify(folder) == []


def test_a_script_without_a_guard_is_told_about_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import vizsla\n"
        f"index = vizsla.Index.create({str(tmp_path / 'i')!r}, overwrite=True)\n"
        "try:\n"
        "    index.add([{'id': '1', 'text': 'dog'}], workers=2)\n"
        "except vizsla.VizslaError as e:\n"
        "    print(e)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "under if __name__ == '__main__'" in done.stdout.splitlines()[-1]
