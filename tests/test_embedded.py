"""An index inside of an application: readers that refresh by themselves, indexes in memory, workers that get a copy."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import vizsla
from numbered import found, records
from test_forking import fork
from vizsla import BM25, Index, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import replace_index
from vizsla.index.storage import in_memory

# Readers that refresh by themselves


@pytest.fixture
def writer() -> Iterator[Index]:
    """An index of five documents in memory, where a commit waits for no disk."""
    with Index.create(":memory:") as index:
        index.add(records(range(5)))
        index.commit()
        yield index


def test_a_reader_that_is_asked_to_sees_every_commit_of_others(writer: Index) -> None:
    """Beside a reader that is refreshed before each call: a random life of a collection, seen the same way."""
    rng = random.Random(4)
    with (
        Index.open(writer.path, refresh_every=0) as reader,
        Index.open(writer.path) as refreshed,
        Index.open(writer.path, refresh_every=3600) as late,
    ):
        for _ in range(12):
            writer.add(records(range(start := rng.randrange(50), start + 5)))
            writer.delete(str(rng.randrange(50)))
            rng.choice([writer.commit, writer.compact, writer.rollback])()
            refreshed.refresh()
            for look in rng.sample(CALLS, len(CALLS)):
                assert look(reader) == look(refreshed)
        assert (late.generation, len(late)) == (1, 5)
        late.refresh()
        assert late.generation == reader.generation == writer.generation > 1


CALLS: list[Any] = [
    len,
    lambda index: index.generation,
    lambda index: index.model,
    lambda index: index.search("common word3", 100),
    lambda index: [
        index.search_many(["word1", "word2"], filter="exists(text)"),
        index.run({"q": "word4"})["q"].documents,
    ],
    lambda index: index.count("word5"),
    lambda index: list(index.documents()),
    lambda index: index.with_model("bm25(k1=2)").search("word6").scores,
    lambda index: index.get_many(map(str, range(50))),
    lambda index: {**index.info(), "path": None},
]


def test_threads_share_a_reader_that_refreshes_while_others_commit(writer: Index) -> None:
    with Index.open(writer.path, refresh_every=0) as reader, ThreadPoolExecutor(4) as threads:
        ended: list[bool] = []

        def read() -> list[tuple[int, int]]:
            seen = []
            last = False
            while not last:
                last = bool(ended)  # what is read after the last commit
                before = len(reader)
                seen.append((before, len(reader.search("common", 1000))))
            return seen

        readers = [threads.submit(read) for _ in range(4)]
        for n in range(1, 10):
            writer.add(records(range(n * 5, n * 5 + 5)))
            writer.commit()
        ended.append(True)
        for future in readers:
            counts = [count for pair in future.result() for count in pair]
            assert counts == sorted(counts)  # nobody goes back to an earlier commit
            assert counts[-1] == 50
            assert all(count % 5 == 0 for count in counts)


def test_an_index_that_is_replaced_or_gone_is_noticed(folder: Path) -> None:
    with Index.open(folder, refresh_every=0) as reader:
        with Index.create(folder, overwrite=True) as other:
            assert len(reader) == 0
            other.add(records(range(7)))
            other.commit()
        assert len(reader) == 7
        hits = reader.search("common")
        gone = folder.rename(folder.with_name("gone"))
        for look in (len, lambda index: index.search("common")):
            with pytest.raises(CollectionError, match=str(folder)):
                look(reader)
        gone.rename(folder)
        assert reader.search("common") == hits
    with pytest.raises(CollectionError, match="the index has been closed"):
        reader.search("common")


@pytest.mark.parametrize("wrong", [-1, True, "1", float("nan"), float("inf"), [1]])
def test_an_impossible_interval_is_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(VizslaError, match="refresh_every is a number of seconds, 0 or more, not"):
        Index.open(folder, refresh_every=wrong)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_a_reader_without_permission_to_write_refreshes_when_it_must() -> None:
    """It cannot keep a commit that is replaced, so it does not wait for its interval."""
    folder = Path(tempfile.mkdtemp()) / "i"
    with Index.create(folder) as index:
        index.add(records(range(5)))
        index.commit()
    for place in (folder.parent, *folder.parent.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    reader = subprocess.Popen(
        [sys.executable, "-c", READ_AS_NOBODY, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == "5\n"
    with Index.open(folder) as index:
        index.add(records(range(9)))
        index.commit()
    assert reader.communicate("go\n")[0] == "9\n"
    shutil.rmtree(folder.parent)


READ_AS_NOBODY = """
import os, sys
from vizsla.index import Index
with Index.open(sys.argv[1]) as index:
    index.search("common")  # loads what nobody may not be able to read: Python itself
os.setgid(65534); os.setuid(65534)
with Index.open(sys.argv[1], refresh_every=3600) as index:
    print(len(index.search("common")), flush=True)
    sys.stdin.readline()
    print(len(index.search("common")))
"""


# Indexes in memory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for indexes in memory: other processes have theirs in the shared one."""
    monkeypatch.setattr(in_memory, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(in_memory, "_ROOM", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_an_index_in_memory_is_an_index_and_leaves_nothing(memory: Path) -> None:
    with Index.create(":memory:", "bm25", passages=3, positions=True) as index, Index.create(":memory:") as other:
        index.add([{"id": "1", "text": "Dogs bark. " * 5, "year": 2001}, {"id": "2", "text": "Cats do not."}])
        assert index.commit() == 1
        assert index.search("barking dogs", filter="year > 2000", syntax="lucene").ids == ["1"]
        assert index.delete("2") == 1
        index.compact()
        assert (len(index), len(other)) == (1, 0)
        assert found_names(index.path.parent) == ["index", "owner.lock"]
        assert set(memory.iterdir()) == {index.path.parent, other.path.parent}
        hits = index.search("dogs")
    assert hits[0].document.id == "1"
    assert list(memory.iterdir()) == []
    index.close()
    with pytest.raises(CollectionError, match="the index has been closed"):
        index.search("dogs")


def test_an_index_in_memory_ends_with_its_object_and_with_python(memory: Path) -> None:
    index = Index.create(":memory:")
    folder = index.path
    assert folder.exists()
    del index
    assert not folder.exists()
    code = "import vizsla; index = vizsla.Index.create(':memory:'); print(index.path)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not Path(said.strip()).parent.exists()
    with pytest.raises(VizslaError):
        Index.create(":memory:", "no model")
    with pytest.raises(VizslaError):
        Index.create(":memory:", "bm25", positions=True, store=False)
    assert list(memory.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import vizsla, os; i = vizsla.Index.create(':memory:'); print(i.path, flush=True); os.kill(os.getpid(), 9)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    left = Path(said.strip())
    assert left.exists()
    with Index.create(":memory:") as young:
        assert left.exists()  # it may be one that is just being made
        monkeypatch.setattr(in_memory, "_YOUNG", -1.0)
        with Index.create(":memory:"):
            assert not left.parent.exists()
            assert young.path.exists()


def test_where_shared_memory_is_small_or_missing_a_temporary_folder_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for change in ({"_ROOM": 1 << 62}, {"_SHARED_MEMORY": tmp_path / "missing"}):
        with monkeypatch.context() as patch:
            for name, value in change.items():
                patch.setattr(in_memory, name, value)
            with Index.create(":memory:") as index:
                assert index.path.parent.parent == tmp_path
        assert list(tmp_path.iterdir()) == []


def test_the_name_of_memory_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in (lambda: Index.open(":memory:"), lambda: vizsla.open(":memory:"), lambda: Index(Path(":memory:"))):
        with pytest.raises(CollectionError, match="names no folder"):
            wrong()
    with pytest.raises(CollectionError, match="names no folder"), replace_index(Path(":memory:"), overwrite=True):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_reads_an_index_in_memory_and_does_not_remove_it() -> None:
    with Index.create(":memory:") as index:
        index.add(records(range(5)))
        index.commit()
        assert fork(lambda: (len(index.search("common")), index.close())[0]) == "5"
        assert len(index.search("common")) == 5


def found_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# Copies for worker processes


def test_workers_search_what_they_are_given() -> None:
    """Over a spawned process, which shares nothing: the index, a view, hits, and an index in memory."""
    with (
        Index.create(":memory:") as index,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker,
    ):
        index.add(records(range(30)))
        index.commit()
        index.add(records(range(30, 40)))  # is not committed, so nobody else sees it
        view = index.with_model("bm25(k1=2)", syntax="lucene")
        queries = ["word3", "word4 common"]
        for searched in (index, view):
            hits = worker.submit(searched.search, "word3", 5).result()
            assert hits == searched.search("word3", 5)
            assert worker.submit(searched.search_many, queries).result() == searched.search_many(queries)
        assert view.search("word3").scores != index.search("word3").scores
        index.rollback()
        assert index.path.exists()


def test_a_copy_has_the_settings_of_the_index_and_its_own_life(folder: Path) -> None:
    with Index.open(folder, memory=1 << 22, refresh_every=0) as index:
        for again in (pickle.loads(pickle.dumps(index)), copy.copy(index), copy.deepcopy(index)):
            with again:
                assert (again.path, again.memory, again.device) == (index.path, 1 << 22, index.device)
                assert again.refresh_every == 0
                again.add(records(range(5, 8)))
                again.commit()
            assert len(index.search("common")) == 8
        pickled, view = pickle.dumps(index), index.with_model(BM25(k1=2))
        with pytest.raises(VizslaError, match="a view can be pickled if its model is given as a text"):
            pickle.dumps(view)
        for same in (view.with_model("bm25(k1=3)"), index.with_model("bm25(k1=3)"), index.with_model(threads=1)):
            other = pickle.loads(pickle.dumps(same))
            assert other.search("word3") == same.search("word3")
            assert other.options == same.options
            other.index.close()
    with pytest.raises(CollectionError, match="the index has been closed"):
        pickle.dumps(index)
    shutil.rmtree(folder)
    with pytest.raises(CollectionError, match=str(folder)):
        pickle.loads(pickled)


def test_a_copy_of_an_index_in_memory_does_not_remove_it() -> None:
    with Index.create(":memory:") as index:
        index.add(records(range(5)))
        index.commit()
        pickle.loads(pickle.dumps(index)).close()
        assert found(index.path) == set("01234")
