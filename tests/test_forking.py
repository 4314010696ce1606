"""Processes that fork: a child reads and writes for itself, and never with its parent's writer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from numbered import found, records
from vizsla import Index, VizslaError
from vizsla.index.storage import forking
from waiting import LIMIT


def fork(child: Callable[[], object]) -> str:
    """What a forked child says, or the sentence it ends with."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(child())
        except VizslaError as e:
            said = f"{type(e).__name__}: {e}"
        except BaseException as e:
            said = f"raw {type(e).__name__}: {e}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answers:
        said = answers.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_cannot_write_with_its_parents_writer(folder: Path) -> None:
    with Index.open(folder) as index:
        index.add(records(range(50, 100)))

        def child(change: Callable[[], object]) -> Callable[[], object]:
            return lambda: (index.close() if change is None else change(), "done")

        for change in (
            index.commit,
            lambda: index.add(records(range(200, 210))),
            lambda: index.search("common"),
            lambda: Index.open(folder),
        ):
            assert "this process was forked while changes to the index were pending" in fork(child(change))
        fork(index.rollback)
        fork(index.close)
        index.add(records(range(100, 110)))
        index.commit()
    assert found(folder) == {*map(str, range(5)), *map(str, range(50, 110))}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_reads_and_writes_for_itself(folder: Path) -> None:
    def write() -> int:
        index.add(records(range(10, 15)))
        index.commit()
        return len(index)

    with Index.open(folder) as index, Index.open(folder) as other:
        assert fork(lambda: len(index.search("common", 100))) == "5"
        assert fork(write) == "10"
        assert len(index) == 5
        assert len(other.search("common", 100)) == 5
        index.refresh()
        assert len(index.search("common", 100)) == 10
        index.add(records(range(20, 22)))
        index.commit()
        other.refresh()
        assert len(other) == 12
    assert len(found(folder)) == 12


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_beside_searching_threads(folder: Path) -> None:
    done = threading.Event()
    with Index.open(folder) as index:

        def search() -> None:
            while not done.is_set():
                index.search("common")

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        said = {fork(lambda: len(index)) for _ in range(10)}
        done.set()
        for thread in threads:
            thread.join()
    assert said == {"5"}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_waits_for_who_is_inside_sqlite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that open indexes and write; a child once waited for ever for SQLite's own locks."""
    done = threading.Event()

    def open_all_the_time() -> None:
        while not done.is_set():
            Index.open(folder).close()

    def write_all_the_time() -> None:
        with Index.create(folder.with_name("other")) as other:
            while not done.is_set():
                other.add(records(range(20)))
                other.commit()

    monkeypatch.setattr(forking, "_MAX_WAIT", LIMIT)
    threads = [threading.Thread(target=work) for work in (open_all_the_time, write_all_the_time)]
    with Index.open(folder) as index:
        for thread in threads:
            thread.start()
        said = {fork(lambda: len(index.search("common", 10))) for _ in range(25)}
        done.set()
        for thread in threads:
            thread.join()
        assert said == {"5"}
        monkeypatch.setattr(forking, "_MAX_WAIT", 0.05)
        with in_another_thread(forking.inside_sqlite):
            assert "was forked while" in fork(lambda: len(index.search("common", 10)))
        assert len(index.search("common", 10)) == 5


@contextmanager
def in_another_thread(held: AbstractContextManager[None]) -> Iterator[None]:
    """Hold something in a thread of its own."""
    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            entered.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
