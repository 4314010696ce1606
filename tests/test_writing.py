"""Writing: from several threads, half done, at the limits, and when the folder or its lock is gone."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from numbered import found, records
from vizsla import BM25, Index, VizslaError
from vizsla.engine import segment as engine_segment
from vizsla.errors import CollectionError
from vizsla.index import verify
from vizsla.index.writing import term_numbers


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
        lambda: index.search("common"),
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
        monkeypatch.setattr("vizsla.index.storage.locks.time.sleep", lambda _: pytest.fail("the lock is still held"))
        index.add(records(range(5, 6)))
        index.commit()
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
    monkeypatch.setattr(term_numbers, "MAX_TERMS", 8)
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


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("content", [{"text": "half \ud800 a pair"}, {"text": "dog", "year": {1}}])
def test_what_cannot_be_stored_is_refused_alike(tmp_path: Path, store: bool, content: dict[str, object]) -> None:
    with Index.create(tmp_path / "my.index", store=store) as index:
        with pytest.raises(VizslaError, match="the document '1' cannot be stored as JSON"):
            index.add([{"id": "1", **content}])
        index.add([{"id": "2", "text": "a dog"}])
        index.commit()
        assert [hit.id for hit in index.search("dog")] == ["2"]
