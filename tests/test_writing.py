"""Writing: from several threads, after a fork, half done, under any id, at the limits."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vizsla.datasets import Document
from vizsla.engine import segment as engine_segment
from vizsla.errors import CollectionError, UncommittedChangesWarning, VizslaError
from vizsla.index import Index, verify
from vizsla.index.storage import forking
from vizsla.index.writing import buffer
from vizsla.models import BM25


def records(ids: range, word: str = "common") -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"{word} word{i % 10}"} for i in ids]


def found(folder: Path) -> set[str]:
    """All ids that are stored, each of them findable, in an index that is whole."""
    assert verify(folder) == []
    with Index.open(folder) as index:
        stored = [d.id for d in index.documents()]
        assert sorted(h.id for h in index.search("common", 10_000)) == sorted(stored)
        assert len(set(stored)) == len(stored) == len(index)
    return set(stored)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "i") as index:
        index.add(records(range(5)))
        index.commit()
    return tmp_path / "i"


def in_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_one_thread_adds_another_commits_a_third_closes(folder: Path) -> None:
    index = Index.open(folder)
    in_thread(lambda: index.add(records(range(5, 9))))
    in_thread(index.commit)
    in_thread(lambda: index.delete(["0"]))
    in_thread(index.rollback)
    in_thread(lambda: index.delete(["1"]))
    in_thread(index.commit)
    in_thread(index.close)
    assert found(folder) == {*map(str, range(9))} - {"1"}


def test_threads_that_write_by_one_object_take_turns(folder: Path) -> None:
    with Index.open(folder, memory=1) as index:

        def write(thread: int) -> None:
            for turn in range(3):
                first = 100 * thread + 20 * turn
                index.add(records(range(first, first + 20)))
                index.delete([str(first)])
                index.commit()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(1, 5)))
    expected = {str(100 * t + i) for t in range(1, 5) for i in range(60) if i % 20} | {*map(str, range(5))}
    assert found(folder) == expected


def test_documents_cannot_change_the_index_they_are_added_to(folder: Path) -> None:
    with Index.open(folder) as index:

        def documents() -> Iterator[dict[str, Any]]:
            yield from records(range(10, 12))
            index.commit()

        with pytest.raises(VizslaError, match="is being changed"):
            index.add(documents())
        index.add(records(range(5, 7)))
        index.commit()
    assert found(folder) == {*map(str, range(7))}


# A call that fails


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_a_call_that_fails_adds_nothing_and_loses_nothing(
    folder: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "batch_size", 3)  # several batches a call; with little memory, a segment each
    with Index.open(folder, memory=memory) as index:
        assert index.add(records(range(5, 20))).documents == 15
        for bad in ({"id": "x"}, {"id": "21", "text": "twice"}, {"id": "22", "text": 7}):
            with pytest.raises(VizslaError):
                index.add([*records(range(3, 30), "new"), bad])
        assert index.delete(["4", "25"]) == 1
        assert index.add(records(range(6, 8), "other")).replaced == 2
        index.commit()
        assert {h.id for h in index.search("other")} == {"6", "7"}
        assert index.search("new") == []
    with Index.open(folder) as index:
        assert {d.id for d in index.documents()} == {*map(str, range(20))} - {"4"}
    assert verify(folder) == []


@settings(max_examples=25)
@given(
    calls=st.lists(st.tuples(st.lists(st.integers(0, 12), max_size=8), st.booleans()), max_size=6),
    memory=st.sampled_from([1, 1 << 30]),
)
def test_any_calls_of_which_some_fail(
    calls: list[tuple[list[int], bool]], memory: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against a dict: a call with an id twice, or with a bad document at its end, changes nothing."""
    folder = tmp_path_factory.mktemp("calls") / "i"
    expected: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch, Index.create(folder, memory=memory) as index:
        patch.setattr(BM25, "batch_size", 2)
        for turn, (ids, bad) in enumerate(calls):
            documents: list[dict[str, Any]] = [{"id": str(i), "text": f"common t{turn}"} for i in ids]
            try:
                index.add([*documents, {"id": "bad"}] if bad else documents)
            except VizslaError:
                assert bad or len(set(ids)) < len(ids)
            else:
                assert not bad
                assert len(set(ids)) == len(ids)
                expected |= {str(i): f"common t{turn}" for i in ids}
        index.commit()
        assert {d.id: d["text"] for d in index.documents()} == expected
        assert {h.id for h in index.search("common", 50)} == expected.keys()
    assert verify(folder) == []


def test_an_interrupted_call_keeps_the_earlier_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "batch_size", 2)

    def documents() -> Iterator[dict[str, Any]]:
        yield from records(range(20, 30))
        raise KeyboardInterrupt

    with Index.open(folder) as index:
        index.add(records(range(5, 8)))
        with pytest.raises(KeyboardInterrupt):
            index.add(documents())
        index.commit()
    assert found(folder) == {*map(str, range(8))}


def test_leaving_changes_behind_warns(folder: Path) -> None:
    with pytest.warns(UncommittedChangesWarning, match="changes that were not committed"), Index.open(folder) as index:
        index.delete(["1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Index.open(folder) as index:
            index.delete(["nobody"])
        with Index.open(folder) as index:
            index.delete(["1"])
            index.rollback()
        with suppress(ZeroDivisionError), Index.open(folder) as index:
            index.delete(["1"])
            raise ZeroDivisionError
    assert len(found(folder)) == 5


def test_what_a_full_disk_has_taken_is_not_committed_as_if_nothing_were(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(folder, memory=1) as index:
        monkeypatch.setattr(BM25, "batch_size", 2)
        index.add(records(range(5, 6)))
        with monkeypatch.context() as patch:
            patch.setattr("vizsla.index.storage.segment_files.write_segment", fails_for_want_of_room)
            with pytest.raises(CollectionError, match="No space left"):
                index.add(records(range(20, 30)))
        for call in (index.commit, lambda: index.add(records(range(3))), index.compact):
            with pytest.raises(CollectionError, match="all changes since the last commit were discarded"):
                call()
        index.rollback()
        index.add(records(range(6, 8)))
        index.commit()
    assert found(folder) == {*map(str, range(5)), "6", "7"}


def fails_for_want_of_room(*_: object) -> None:
    raise CollectionError("No space left on device")


def test_terms_that_cannot_be_written_are_refused_before_anything_is(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "bm25(analyzer=whitespace)", store=False) as index:
        index.add(records(range(5)))
        with pytest.raises(VizslaError, match="cannot be stored"):
            index.add([{"id": "x", "text": "abc\ud800def"}])
        index.commit()
        assert len(index.search("common", 10)) == 5
    assert verify(tmp_path / "i") == []


def test_another_folder_is_no_other_index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    (tmp_path / "elsewhere").mkdir()
    with Index.open(folder.name) as index:
        index.add(records(range(5, 9)))
        monkeypatch.chdir(tmp_path / "elsewhere")
        index.commit()
        index.refresh()
        assert len(index) == 9
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert len(found(folder)) == 9


def test_a_writer_reads_what_it_has_opened(folder: Path) -> None:
    """Another has removed and replaced documents since; a snapshot once lost them when writing began."""
    with Index.open(folder) as old:
        with Index.open(folder) as other:
            other.delete(["0", "1"])
            other.add(records(range(2, 3), "other"))
            other.commit()
        old.delete(["nobody"])
        assert sorted(h.id for h in old.search("common", 10)) == ["0", "1", "2", "3", "4"]
        assert old.get("0") is not None
        old.rollback()
        assert old.get("0") is not None
        old.refresh()
        assert len(old) == 3


def test_what_is_closed_stays_closed(folder: Path) -> None:
    index = Index.open(folder)
    index.close()
    index.close()
    calls = (
        lambda: index.add(records(range(3))),
        index.commit,
        index.compact,
        index.refresh,
        lambda: index.delete("1"),
    )
    for _ in range(2):
        for call in calls:
            with pytest.raises(CollectionError, match="the index has been closed"):
                call()
    with Index.open(folder) as other:
        other.delete(["1"])
        other.commit()


def test_an_index_that_was_forgotten_frees_its_lock(folder: Path) -> None:
    forgotten = Index.open(folder)
    forgotten.add(records(range(9)))
    del forgotten
    gc.collect()
    with Index.open(folder) as index:
        index.add(records(range(5, 6)))
        index.commit()
    assert len(found(folder)) == 6


def test_an_interruption_while_writing_begins_leaves_nothing_locked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of a writer and its keeping; Python alone would leave the lost connection's lock held."""
    from vizsla.index.writing import writer as writing

    transaction = writing.WriteTransaction

    def interrupted(*arguments: Any) -> None:
        transaction(*arguments)
        raise KeyboardInterrupt

    with Index.open(folder) as index:
        monkeypatch.setattr(writing, "WriteTransaction", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.add(records(range(9)))
        monkeypatch.setattr(writing, "WriteTransaction", transaction)
        started = time.monotonic()
        index.add(records(range(5, 6)))
        index.commit()
        assert time.monotonic() - started < 4
    assert len(found(folder)) == 6


def test_garbage_that_wants_the_lock_gets_it(folder: Path) -> None:
    """Half-read documents in a cycle are collected while the same thread holds the snapshot's lock."""
    with Index.open(folder) as index:
        cycle: list[Any] = [index.documents()]
        next(cycle[0])
        cycle.append(cycle)
        snapshot = index._searcher.snapshot
        with snapshot.connection.lock:
            del cycle
            gc.collect()
        assert len(index.search("common")) == 5


def test_documents_cannot_roll_back_or_close_either(folder: Path) -> None:
    with Index.open(folder) as index:
        index.add(records(range(5, 7)))
        for call in (index.rollback, index.close):

            def documents(call: Callable[[], None] = call) -> Iterator[dict[str, Any]]:
                yield from records(range(10, 12))
                call()

            with pytest.raises(VizslaError, match="is being changed"):
                index.add(documents())
        index.commit()
    assert len(found(folder)) == 7


# Ids


HOSTILE_IDS = [
    "a",
    "a\0b",
    "a\0",
    "\0",
    "a\0zzz",
    "2",
    "#",
    "a#0",
    "a#",
    "%",
    "_",
    "x" * 5000,
    "é",
    "e\u0301",
    "'",
    '"',
]


@pytest.mark.parametrize("passages", [None, 2])
def test_any_id_is_itself_and_no_other(tmp_path: Path, passages: int | None) -> None:
    """Ids with a NUL in them once hit the documents whose ids stop there."""
    with Index.create(tmp_path / "i", passages=passages) as index:
        for turn in range(2):
            assert index.add({"id": i, "text": f"common a b c d t{turn}"} for i in HOSTILE_IDS).replaced == (
                len(HOSTILE_IDS) * turn
            )
            index.commit()
        assert {h.id for h in index.search("common", 99)} == set(HOSTILE_IDS)
        for i in HOSTILE_IDS:
            got = index.get(i)
            assert got is not None
            assert got.id == i
            assert index.explain("common", i).score > 0
        assert index.delete(["a\0zzz", "a\0y", "nobody"]) == 1
        index.commit()
        assert {h.id for h in index.search("common", 99)} == {*HOSTILE_IDS} - {"a\0zzz"}
    assert verify(tmp_path / "i") == []


def test_a_number_is_the_id_of_its_digits(folder: Path) -> None:
    with Index.open(folder) as index:
        index.add([{"id": 12, "text": "common dog"}, {"id": np.int64(13), "text": "common cat"}])
        index.commit()
        got = index.get(12)
        assert got is not None
        assert got.id == "12"
        assert index.explain("dog", 12) == index.explain("dog", "12")
        assert index.add([Document(np.int64(12), {"text": "common dog"})]).replaced == 1
        assert index.get_many([12, "13"]).keys() == index.get_many(["12", 13]).keys() == {"12", "13"}
        assert index.delete(12) == 1
        assert index.delete([np.int64(13), 2]) == 2
        index.commit()
    assert found(folder) == {"0", "1", "3", "4"}


@pytest.mark.parametrize("wrong", [None, 1.5, True, b"1", "", "\ud800", ["1"]])
def test_what_is_no_id_is_refused_everywhere(folder: Path, wrong: Any) -> None:
    with Index.open(folder) as index:
        for call in (index.get, lambda i: index.explain("common", i), lambda i: index.delete([i])):
            with pytest.raises(VizslaError, match="id"):
                call(wrong)
        with pytest.raises(VizslaError, match="id"):
            index.get_many([wrong])


# Forks


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
        with in_another_thread(forking.inside_sqlite()):
            assert "was forked while" in fork(lambda: len(index.search("common", 10)))
        assert len(index.search("common", 10)) == 5


@contextmanager
def in_another_thread(held: AbstractContextManager[None]) -> Iterator[None]:
    """Hold something in a thread of its own."""
    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            entered.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)
    try:
        yield
    finally:
        done.set()
        thread.join()


# Limits, and what is not there any more


def test_a_segment_is_cut_before_its_numbers_overflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "batch_size", 5)
    for limit in ("MAX_POSTINGS", "MAX_DOCUMENTS"):
        with monkeypatch.context() as patch, Index.create(folder, overwrite=True) as index:
            patch.setattr(engine_segment, limit, 21)
            index.add(records(range(60)))
            index.commit()
            index.compact()
            assert index.info()["segments"] >= 3
            assert len(index.search("common", 100)) == 60
        assert len(found(folder)) == 60


def test_more_terms_than_can_be_numbered_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "MAX_TERMS", 8)
    with Index.open(folder) as index, pytest.raises(VizslaError, match="more than 8 different terms"):
        index.add([{"id": "x", "text": "a1 a2 a3 a4 a5 a6 a7 a8 a9"}])
    assert len(found(folder)) == 5


def test_a_folder_that_was_removed_is_told(folder: Path) -> None:
    with Index.open(folder) as index:
        shutil.rmtree(folder)
        for call in (lambda: index.add(records(range(3))), index.refresh, index.compact, lambda: Index.open(folder)):
            with pytest.raises(CollectionError, match=r"i: .*does not exist"):
                call()
        assert verify(index.path) != []


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_a_lock_that_is_no_plain_file_is_told(folder: Path, kind: str) -> None:
    lock = folder / "writer.lock"
    lock.unlink(missing_ok=True)
    if kind == "folder":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to("/dev/null")
    else:
        os.mkfifo(lock)
    with pytest.raises(CollectionError, match=r"writer\.lock is (not a plain file|a link or a special file)"):
        Index.open(folder).add(records(range(3)))


def test_who_waits_for_a_lock_that_is_replaced_gets_the_new_one(folder: Path) -> None:
    first = Index.open(folder)
    first.add(records(range(7, 9)))

    def add() -> int:
        with Index.open(folder) as second:
            try:
                return second.add(records(range(3))).documents
            finally:
                second.rollback()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(add)
        time.sleep(0.3)
        first.commit()
        first.close()
        assert waiting.result() == 3
