"""The writer: one at a time, from any thread; what a commit keeps open."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from small import small_model
from vizsla import Index, VizslaError
from vizsla.errors import CollectionError, UncommittedChangesWarning
from vizsla.index import verify
from waiting import LIMIT


def record(number: int) -> dict[str, str]:
    return {"id": str(number), "text": f"common word{number}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "i") as index:
        index.add(map(record, range(3)))
        index.commit()
    return tmp_path / "i"


def test_a_writer_adds_deletes_and_commits_several_times(folder: Path) -> None:
    with Index.open(folder) as index, index.writer() as writer:
        assert writer.add([record(3)]).documents == 1
        assert writer.delete(["0", "9"]) == 1
        assert writer.has_changes
        assert len(index) == 3  # not committed yet
        writer.commit()
        assert not writer.has_changes
        assert {hit.id for hit in index.search("common")} == {"1", "2", "3"}
        writer.add([record(4)])
        writer.rollback()
        writer.add([record(5)])
        writer.compact()
        assert {hit.id for hit in index.search("common")} == {"1", "2", "3", "5"}
    assert verify(folder) == []


def test_a_second_writer_waits_or_is_refused_as_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.open(folder) as index, Index.open(folder) as other:
        with index.writer() as first:
            pauses: list[float] = []
            with monkeypatch.context() as patch:
                patch.setattr("vizsla.index.storage.locks.time.sleep", pauses.append)
                with pytest.raises(CollectionError, match="another writer"):
                    index.writer(timeout=0)
                assert pauses == []
                with pytest.raises(CollectionError, match="another writer"):
                    other.writer(timeout=0.1)
                assert pauses
            first.add([record(3)])
            first.commit()
            with pytest.raises(CollectionError, match="another writer"):
                other.writer(timeout=0)  # it is kept between commits
        with other.writer(timeout=0) as second:
            second.add([record(4)])
            second.commit()
        index.refresh()
        assert len(index) == len(other) == 5
        for wrong in (-1, "soon", True, float("nan")):
            with pytest.raises(VizslaError, match="timeout of a writer must be a number of seconds"):
                index.writer(timeout=wrong)  # type: ignore[arg-type]


def test_threads_take_turns_with_writers(folder: Path) -> None:
    def write(number: int) -> None:
        with index.writer(timeout=None) as writer:
            writer.add([record(number)])
            time.sleep(0.02)
            writer.commit()

    with Index.open(folder) as index:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(10, 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index) == 9
    assert verify(folder) == []


def test_threads_share_a_writer(folder: Path) -> None:
    with Index.open(folder) as index, index.writer() as writer:
        threads = [threading.Thread(target=writer.add, args=([record(n)],)) for n in range(10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.commit()
        assert len(index) == 13


def test_the_short_way_and_a_writer_exclude_each_other(folder: Path) -> None:
    with Index.open(folder) as index:
        with index.writer() as writer:
            writer.add([record(3)])
            with pytest.raises(CollectionError, match="has a writer open; use it, or close it first"):
                index.add([record(4)])
            index.rollback()  # of the short way: nothing to discard
            index.commit()
            assert writer.has_changes
            writer.commit()
        index.commit()
        index.add([record(4)])
        with pytest.raises(CollectionError, match=r"has uncommitted changes; call commit\(\) or rollback\(\) first"):
            index.writer()
        index.commit()
        index.writer(timeout=0).close()
        assert {hit.id for hit in index.search("common")} == {"0", "1", "2", "3", "4"}


def test_a_thread_that_commits_while_the_index_is_closed(folder: Path) -> None:
    """Closing once held a lock that the commit was waiting for, and the other way round."""
    for _ in range(5):
        started = threading.Event()

        def write(index: Index, started: threading.Event = started) -> None:
            with suppress(CollectionError):  # once it is closed
                for number in range(1000):
                    index.add([record(number)])
                    index.commit()
                    started.set()

        index = Index.open(folder)
        thread = threading.Thread(target=write, args=(index,))
        thread.start()
        started.wait()
        index.close()  # leaving a context would warn of changes that the thread has not committed yet
        thread.join(LIMIT)
        assert not thread.is_alive()
        assert verify(folder) == []


def test_a_writer_that_comes_after_the_end_is_refused(folder: Path) -> None:
    errors: list[Exception] = []

    def wait(index: Index) -> None:
        try:
            index.writer(timeout=LIMIT)
        except CollectionError as e:
            errors.append(e)

    with Index.open(folder) as other, other.writer():
        index = Index.open(folder)
        thread = threading.Thread(target=wait, args=(index,))
        thread.start()
        time.sleep(0.1)
        index.close()
    thread.join(LIMIT)
    assert ["has been closed" in str(e) for e in errors] == [True]
    with Index.open(folder) as again:
        again.writer(timeout=0).close()


def test_what_is_not_committed_is_discarded(folder: Path) -> None:
    with Index.open(folder) as index:
        with pytest.warns(UncommittedChangesWarning, match="not committed"), index.writer() as writer:
            writer.add([record(3)])

        def fail() -> None:
            with index.writer() as writer:
                writer.add([record(3)])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with pytest.raises(CollectionError, match="the writer has been closed"):
            writer.add([record(3)])
        with index.writer(timeout=0) as writer:  # nothing is left locked
            writer.commit()  # nothing to commit is fine
        assert len(index) == 3
    with pytest.raises(CollectionError, match="closed"):
        index.writer()


def test_closing_an_index_closes_its_writer(folder: Path) -> None:
    index = Index.open(folder)
    writer = index.writer()
    writer.add([record(3)])
    index.close()
    assert not writer.is_open
    with Index.open(folder) as again, again.writer(timeout=0):
        assert len(again) == 3


def test_a_commit_keeps_the_model_and_its_network_open(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", small_model(tmp_path)) as index:
        index.add(map(record, range(3)))
        index.commit()
        index.search("common")
        model, network = index.model, index.model.parts[0].component.network.running  # type: ignore[attr-defined]
        segment = index._searcher.snapshot.segments[0]
        with index.writer() as writer:
            writer.add(map(record, range(3, 6)))
            writer.commit()
        assert len(index) == 6
        assert index.model is model
        assert index.model.parts[0].component.network.running is network  # type: ignore[attr-defined]
        assert index._searcher.snapshot.segments[0] is segment  # mapped once
        with Index.open(tmp_path / "i") as other, other.writer() as writer:
            writer.delete("0")
            writer.commit()
        index.refresh()
        assert index.model is model
        assert "0" not in {hit.id for hit in index.search("common", 10)}
