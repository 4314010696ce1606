"""One index takes the place of another: killed anywhere, watched by readers, beside other builds and writers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vizsla import Index, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import replace_index, verify
from vizsla.index.storage import folder
from waiting import LIMIT


def records(count: int, word: str = "common") -> list[dict[str, Any]]:
    return [{"id": str(i), "text": word} for i in range(count)]


def build(place: Path, count: int, *, overwrite: bool = False) -> None:
    with replace_index(place, overwrite=overwrite) as building, Index.create(building) as index:
        index.add(records(count))
        index.commit()


def size(place: Path) -> int:
    assert verify(place) == []
    with Index.open(place) as index:
        assert len(index.search("common", 100)) == len(index)
        return len(index)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    build(tmp_path / "i", 5)
    return tmp_path / "i"


def test_nobody_writes_to_what_is_being_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that began during the rebuild once deleted the new index's segments."""
    monkeypatch.setattr("vizsla.index.index.DEFAULT_TIMEOUT", 0.1)
    with Index.open(place) as old:
        with replace_index(place, overwrite=True) as building, Index.create(building) as index:
            with pytest.raises(CollectionError, match="another writer is using the index"):
                old.add(records(9))
            index.add(records(7))
            index.commit()
        assert len(old.search("common", 100)) == 5  # readers keep what they have opened
        with pytest.raises(CollectionError, match="has been replaced by another"):
            old.add(records(9))
    assert size(place) == 7
    assert [p.name for p in place.parent.iterdir()] == ["i"]


def test_a_writer_at_work_is_not_replaced(place: Path) -> None:
    with Index.open(place) as index:
        index.add(records(8))
        for replaced in (lambda: build(place, 3, overwrite=True), lambda: Index.create(place, overwrite=True)):
            with pytest.raises(CollectionError, match="another writer is using the index"):
                replaced()
        index.commit()
    assert size(place) == 8


def test_two_builds_of_one_place_leave_each_other_alone(tmp_path: Path) -> None:
    place = tmp_path / "i"
    with replace_index(place, overwrite=True) as first, replace_index(place, overwrite=True) as second:
        for n, building in enumerate((first, second), 3):
            with Index.create(building) as index:
                index.add(records(n))
                index.commit()
    assert size(place) == 3  # the one that was put in place last
    assert [p.name for p in tmp_path.iterdir()] == ["i"]
    with pytest.raises(CollectionError, match="an index exists here already; --overwrite"):
        build(place, 3)


def test_a_build_that_finds_another_done_before_it_is_told(tmp_path: Path) -> None:
    build_too_late = replace_index(tmp_path / "i", overwrite=False)
    Index.create(build_too_late.__enter__()).close()
    build(tmp_path / "i", 4)
    with pytest.raises(CollectionError, match="an index exists here already"):
        build_too_late.__exit__(None, None, None)
    assert size(tmp_path / "i") == 4
    assert [p.name for p in tmp_path.iterdir()] == ["i"]


def test_names_are_not_patterns(tmp_path: Path) -> None:
    """Building `i[1]` once swept what was `i1`'s."""
    with replace_index(tmp_path / "i1", overwrite=False) as building:
        shutil.copytree(building, tmp_path / ".i1.new-0123abcd")  # as a killed build leaves it
        build(tmp_path / "i[1]", 3)
        assert building.exists()
        assert (tmp_path / ".i1.new-0123abcd").exists()
        build(tmp_path / "i1", 4)
        assert building.exists()
        assert not (tmp_path / ".i1.new-0123abcd").exists()
        shutil.rmtree(tmp_path / "i1")
        with Index.create(building) as index:
            index.add(records(2))
            index.commit()
    assert (size(tmp_path / "i1"), size(tmp_path / "i[1]")) == (2, 3)


def test_long_names_that_begin_alike_are_two(tmp_path: Path) -> None:
    one, two = tmp_path / ("a" * 120 + "1"), tmp_path / ("a" * 120 + "2")
    build(one, 3)
    one.rename(one.with_name(old_name(one)))  # a replacement was killed between the renamings
    with pytest.raises(CollectionError, match="this folder does not exist"):
        Index.open(two)
    build(two, 4, overwrite=True)
    assert (size(one), size(two)) == (3, 4)


def old_name(place: Path) -> str:
    return f"{folder._prefix(place, 'old')}0123abcd"


def test_a_build_that_is_put_in_place_is_swept_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another build begins just when the first is renamed."""
    place = tmp_path / "i"
    rename = folder._put_in_place

    def meanwhile(building: Path, target: Path) -> None:
        folder._sweep(target)
        rename(building, target)

    monkeypatch.setattr(folder, "_put_in_place", meanwhile)
    build(place, 3)
    build(place, 4, overwrite=True)
    assert size(place) == 4
    assert [p.name for p in tmp_path.iterdir()] == ["i"]


def test_an_index_that_somebody_has_removed_stays_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement was killed when only the old index was left to be removed."""
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        build(place, 9, overwrite=True)
    shutil.rmtree(place)
    with pytest.raises(CollectionError, match="this folder does not exist"):
        Index.open(place)
    build(place, 2)
    assert [p.name for p in place.parent.iterdir()] == ["i"]


def test_an_old_index_that_cannot_be_had_is_not_waited_for_at_full_speed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = place.rename(place.with_name(old_name(place)))
    (old / "writer.lock").unlink()
    (old / "writer.lock").mkdir()
    now, looks, lock = 0.0, [], folder.database.lock_for_writing

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(folder, "time", SimpleNamespace(monotonic=lambda: now, sleep=pause))
    monkeypatch.setattr(folder.database, "lock_for_writing", lambda *a, **o: looks.append(1) or lock(*a, **o))
    with pytest.raises(CollectionError, match="this folder does not exist"):
        Index.open(place)
    assert now >= folder._LONGEST_SWAP
    assert len(looks) <= folder._LONGEST_SWAP / 0.005 + 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_is_forked_while_an_index_is_built_removes_nothing(place: Path) -> None:
    replacing = replace_index(place, overwrite=True)
    building = replacing.__enter__()
    pid = os.fork()
    if pid == 0:
        try:
            replacing.__exit__(ValueError, ValueError("the child ends"), None)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with Index.create(building) as index:
        index.add(records(6))
        index.commit()
    replacing.__exit__(None, None, None)
    assert size(place) == 6


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "a\0" * 2])
def test_names_that_cannot_be_are_told(tmp_path: Path, name: str) -> None:
    for call in (Index.open, Index.create):
        with pytest.raises(CollectionError, match="this cannot be a folder"):
            call(f"{tmp_path}/{name}")


def test_files_of_others_among_the_segments_are_not_removed(place: Path) -> None:
    (place / "segments" / "notes.txt").write_text("mine")
    with pytest.raises(CollectionError, match="holds something that is not an index"):
        Index.create(place, overwrite=True)
    assert (place / "segments" / "notes.txt").read_text() == "mine"


def test_the_name_of_an_index_is_never_missing(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each renaming of a replacement an index can be opened; no other moment is there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    if not folder.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this system, or its file system, cannot exchange names")
    seen, rename = [], Path.rename

    def watched(self: Path, target: Path) -> Path:
        seen.append(size(place))
        renamed = rename(self, target)
        seen.append(size(place))
        return renamed

    monkeypatch.setattr(Path, "rename", watched)
    build(place, 6, overwrite=True)
    assert set(seen) == {6}  # the names were exchanged before; only what was replaced is renamed, to be removed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "i"]


def test_opening_waits_between_two_renamings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has looked for the folder when the old index loses its name, and tries again when the new one has it.

    A reader once brought the old index back, and the finished build was deleted.
    """
    monkeypatch.setattr(folder, "exchange", lambda *_: False)  # as on a system that cannot
    began, is_missing, was_missed = threading.Event(), threading.Event(), threading.Event()
    connect, rename = folder.database.connect, Path.rename

    def late(path: Path, **options: Any) -> Any:
        if path == place and not began.is_set():
            began.set()
            assert is_missing.wait(LIMIT)
        try:
            return connect(path, **options)
        except CollectionError:
            was_missed.set()
            raise

    def slow(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        if self == place:  # the old index has lost its name
            is_missing.set()
            assert was_missed.wait(LIMIT)
        return renamed

    results: list[int] = []
    reader = threading.Thread(target=lambda: results.append(len(Index.open(place))))
    with replace_index(place, overwrite=True) as building, Index.create(building) as index:
        index.add(records(9))
        index.commit()
        index.close()
        monkeypatch.setattr(folder.database, "connect", late)
        monkeypatch.setattr(Path, "rename", slow)
        reader.start()
        assert began.wait(LIMIT)
    reader.join()
    assert results == [9]
    assert was_missed.is_set()
    assert size(place) == 9
    assert [p.name for p in place.parent.iterdir()] == ["i"]


def test_a_replacement_that_was_killed_between_the_renamings_is_undone(place: Path) -> None:
    place.rename(place.with_name(".i.old-0123abcd"))
    assert size(place) == 5
    shutil.copytree(place, place.with_name(".i.old-0123abcd"))  # killed after the second renaming
    build(place, 6, overwrite=True)
    assert size(place) == 6
    assert [p.name for p in place.parent.iterdir()] == ["i"]


def test_a_renaming_that_fails_leaves_the_old_index(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename
    works: list[bool] = []

    def failing(self: Path, target: Path) -> Path:
        if works and not works.pop(0):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(folder, "exchange", lambda *_: False)  # as on a system that cannot
    monkeypatch.setattr(Path, "rename", failing)
    for fails in ([False], [True, False]):
        works[:] = fails
        with pytest.raises(CollectionError, match=r"Input/output error.*as it was"):
            build(place, 7, overwrite=True)
        assert size(place) == 5
        assert [p.name for p in place.parent.iterdir()] == ["i"]


def test_leftovers_of_a_killed_writer_are_known(place: Path) -> None:
    for name in ("writer.lock-journal", "index.db.new", "building.lock"):
        (place / name).write_text("")
    build(place, 3, overwrite=True)
    assert size(place) == 3
    (place / "thesis.txt").write_text("mine")
    with pytest.raises(CollectionError, match="holds something that is not an index"):
        build(place, 3, overwrite=True)
    assert (place / "thesis.txt").read_text() == "mine"


def test_an_index_behind_a_link_is_replaced_where_it_lies(place: Path) -> None:
    link = place.with_name("link")
    link.symlink_to(place)
    build(link, 8, overwrite=True)
    assert link.is_symlink()
    assert size(place) == size(link) == 8
    Index.create(link, overwrite=True).close()
    assert size(place) == 0


def test_an_empty_folder_and_a_missing_parent_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    build(tmp_path / "empty", 2)
    build(tmp_path / "a" / "b" / "c", 2)
    assert size(tmp_path / "empty") == size(tmp_path / "a" / "b" / "c") == 2
    for place in (Path("."), Path(".."), Path("/")):
        with pytest.raises(CollectionError, match="give the folder a name"):
            build(place, 2)


TOUCHES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect")


def killed_at(step: int, place: Path, work: Callable[[], object]) -> bool:
    """Do something in a forked child that dies at a step; gives whether there were so many steps."""
    pid = os.fork()
    if pid == 0:
        steps = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            steps += event in TOUCHES or (event == "open" and str(place.parent) in str(arguments[0]))
            if steps == step:
                steps += 1  # a kill is watched, too
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["create", "replace"])
def test_killed_at_any_step_one_of_the_two_is_there(
    place: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at every file operation of `create`, and at every sixth of a whole build."""
    monkeypatch.setattr(folder, "_UNLOCKED", 0.0)
    new = {"create": 0, "replace": 7}[kind]
    work: dict[str, Callable[[], object]] = {
        "create": lambda: Index.create(place, overwrite=True).close(),
        "replace": lambda: build(place, 7, overwrite=True),
    }
    step, seen = 1, set()
    while killed_at(step, place, work[kind]):
        seen.add(size(place))
        build(place, 5, overwrite=True)
        assert [p.name for p in tmp_path.iterdir()] == ["i"]
        step += 1 if kind == "create" else 6
    assert seen == {5, new}
    assert step > 10
    assert size(place) == new


@pytest.mark.parametrize(
    "spoil",
    [lambda p: (p / "thesis.txt").write_text("mine"), lambda p: (p / "index.db").write_text("no database at all")],
)
def test_what_is_no_index_is_never_replaced(place: Path, spoil: Callable[[Path], object]) -> None:
    spoil(place)
    before = {f: f.read_bytes() for f in place.rglob("*") if f.is_file()}
    for replaced in (lambda: build(place, 3, overwrite=True), lambda: Index.create(place, overwrite=True)):
        with pytest.raises(VizslaError, match="holds something that is not an index"):
            replaced()
    assert {f: f.read_bytes() for f in place.rglob("*") if f.is_file()} == before
    assert folder.is_index(place) is False
