"""An open index whose folder gets new commits, is replaced by another index, or goes away."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from served import build
from vizsla.errors import CollectionError
from vizsla.index import Index
from vizsla.index.inspection import generation, is_stale

DOGS = [{"id": str(n), "text": f"a dog number{n}"} for n in range(20)]


def test_a_commit_of_another_writer_is_noticed(tmp_path: Path) -> None:
    folder = build(tmp_path / "dogs.index", DOGS)
    with Index.open(folder) as index, Index.open(folder) as other:
        assert not is_stale(index)
        other.add([{"id": "new", "text": "a new dog"}])
        assert not is_stale(index)
        other.commit()
        assert (is_stale(index), is_stale(other)) == (True, False)
        index.refresh()
        assert (is_stale(index), generation(index), len(index)) == (False, 2, 21)


def test_another_index_in_its_place(tmp_path: Path) -> None:
    """The new one has the same generation and another model; searches that are going on see the old one whole."""
    folder = build(tmp_path / "dogs.index", DOGS)
    other = build(tmp_path / "other.index", [{"id": "cat", "text": "a cat"}], "bm25(analyzer=wordpiece)")
    with Index.open(folder) as index:
        problems: list[object] = []
        stop = threading.Event()

        def search() -> None:
            while not stop.is_set():
                found = {hit.id for hit in index.search("dog cat", 100)}
                if found not in ({d["id"] for d in DOGS}, {"cat"}):
                    problems.append(found)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        folder.rename(tmp_path / "old.index")
        other.rename(folder)
        assert is_stale(index)
        index.refresh()
        assert not is_stale(index)
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert ([hit.id for hit in index.search("cat")], len(index)) == (["cat"], 1)
        assert "wordpiece" in index.name


def test_overwritten_in_place(tmp_path: Path) -> None:
    folder = build(tmp_path / "dogs.index", DOGS)
    with Index.open(folder) as index:
        with Index.create(folder, overwrite=True) as new:
            new.add([{"id": "only", "text": "one dog"}])
            new.commit()
        assert is_stale(index)
        index.refresh()
        assert [hit.id for hit in index.search("dog")] == ["only"]


def test_gone_or_damaged(tmp_path: Path) -> None:
    folder = build(tmp_path / "dogs.index", DOGS)
    with Index.open(folder) as index:
        shutil.rmtree(folder)
        for _ in range(2):
            with pytest.raises(CollectionError):
                is_stale(index)
            with pytest.raises(CollectionError):
                index.refresh()
            assert len(index.search("dog", 100)) == 20
            folder.mkdir(exist_ok=True)
            (folder / "index.db").write_bytes(b"this is no database" * 100)
