"""An open index that is written to, replaced, damaged or removed by others: it is noticed, and searches go on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from small import small_dense
from vizsla import Index, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import newest_generation, replace_index, verify
from vizsla.index.reading import connection
from vizsla.index.reading.connection import Newest, Watch
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.storage import database
from waiting import calls_of, eventually


def fill(index: Index, word: str, count: int) -> None:
    index.add([{"id": f"{word}{i}", "title": word, "text": f"common {word}", "word": word} for i in range(count)])
    index.commit()


def build(place: Path, word: str, count: int = 5, model: Any = "bm25", **options: Any) -> Path:
    with Index.create(place, model, **options) as index:
        fill(index, word, count)
    return place


def remove(place: Path) -> None:
    """Remove a folder, also while a reader that opens it puts files of SQLite there."""
    while place.exists():
        shutil.rmtree(place, ignore_errors=True)


def by_removing(place: Path, word: str, model: Any = "bm25") -> None:
    """As `rm -rf` and `mv` do it."""
    new = build(place.with_name("new"), word, 7, model)
    remove(place)
    new.rename(place)


def by_moving(place: Path, word: str, model: Any = "bm25") -> None:
    new = build(place.with_name("new"), word, 7, model)
    place.rename(place.with_name(f"was-{word}"))
    new.rename(place)


def by_building(place: Path, word: str, model: Any = "bm25") -> None:
    with replace_index(place, overwrite=True) as building:
        build(building, word, 7, model)


def by_creating(place: Path, word: str, model: Any = "bm25") -> None:
    build(place, word, 7, model, overwrite=True)


WAYS: list[Callable[..., None]] = [by_removing, by_moving, by_building, by_creating]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return build(tmp_path / "i", "old")


@pytest.fixture
def index(place: Path) -> Iterator[Index]:
    with Index.open(place) as opened:
        yield opened


def words(index: Index) -> set[str]:
    return {hit["word"] for hit in index.search("common", 100)}


# Newer commits


def test_a_newer_commit_is_noticed(place: Path, index: Index) -> None:
    assert (index.generation, newest_generation(index), index.is_outdated()) == (1, 1, False)
    with Index.open(place) as other:
        other.add([{"id": "x", "text": "more"}])
        assert (newest_generation(index), index.is_outdated()) == (1, False)  # nothing is committed
        other.commit()
        assert (other.generation, newest_generation(other), other.is_outdated()) == (2, 2, False)
        assert (index.generation, newest_generation(index), index.is_outdated()) == (1, 2, True)
        index.refresh()
        assert (index.generation, index.is_outdated()) == (2, False)
        other.compact()
        assert index.is_outdated()
    index.refresh()
    assert index.generation == newest_generation(index) == 3


def test_every_one_of_many_fast_commits_is_noticed(place: Path, index: Index) -> None:
    """Several commits in one step of the clock, with the log beginning anew, once left size and time as they were."""
    with Index.open(place) as other:
        for n in range(2, 30):
            other.add([{"id": "x", "text": f"number {n}"}])
            other.commit()
            assert newest_generation(index) == n
            if n % 3:
                index.refresh()


def test_another_process_commits(place: Path, index: Index) -> None:
    code = (
        "import sys; from vizsla.index import Index; index = Index.open(sys.argv[1]); "
        "index.add([{'id': 'x', 'text': 'more'}]); index.commit(); index.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(place)], check=True)
    assert index.is_outdated()
    index.refresh()
    assert [hit.id for hit in index.search("more")] == ["x"]


def test_looking_is_cheap_when_nothing_changes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a change nothing but the times of two files is looked at, once these are not too young."""
    monkeypatch.setattr(connection, "_TICK", 0)
    newest_generation(index)
    monkeypatch.setattr(Watch, "_read", lambda _: pytest.fail("the database was opened"))
    stamp, looks = connection.database.stamp, []
    monkeypatch.setattr(connection.database, "stamp", lambda *arguments: looks.append(1) or stamp(*arguments))
    for _ in range(100):
        assert newest_generation(index) == 1
    assert len(looks) == 200
    assert calls_of(lambda: newest_generation(index)) < 150
    assert calls_of(lambda: index.is_outdated()) < 150
    assert not index.is_outdated()


def test_what_was_written_just_now_is_looked_at_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Watch._read

    def counted(self: Watch) -> Newest:
        reads.append(1)
        return read(self)

    monkeypatch.setattr(Watch, "_read", counted)
    os.utime(index.path / "index.db")
    for _ in range(3):
        newest_generation(index)
    assert len(reads) == 3


def test_looking_leaves_no_traces(place: Path) -> None:
    with Index.open(place) as index:
        before = sorted(p.name for p in place.iterdir())
        newest_generation(index)
        assert sorted(p.name for p in place.iterdir()) == before
    assert sorted(p.name for p in place.iterdir()) == ["index.db", "segments", "writer.lock"]


# Replacements


@pytest.mark.parametrize("replace", WAYS)
def test_a_replacement_is_noticed_and_opened_wholly(place: Path, index: Index, replace: Callable[..., None]) -> None:
    old = index._searcher.snapshot.meta["uuid"]
    assert [f.value for f in index.facets(["word"])["word"].values] == ["old"]
    replace(place, "fresh", "bm25-multifield")
    assert index.is_outdated()  # though the new index has as many commits
    assert index.generation == newest_generation(index) == 1
    assert words(index) == {"old"}
    assert [f.value for f in index.facets(["word"])["word"].values] == ["old"]
    assert [d["word"] for d in index.documents()] == ["old"] * 5
    assert index.suggest("ol")[0].text == "old"
    index.refresh()
    assert not index.is_outdated()
    assert index._searcher.snapshot.meta["uuid"] != old
    assert index.name == index.model.name == "bm25-multifield"
    assert len(index) == 7
    assert words(index) == {"fresh"}
    assert [f.value for f in index.facets(["word"])["word"].values] == ["fresh"]
    assert index.get("old0") is None
    assert index.suggest("ol") == []
    assert verify(place) == []


def test_a_copy_with_the_same_numbers_is_noticed(place: Path, tmp_path: Path) -> None:
    """Two copies of an index that went different ways have the same uuid, and the same number of commits."""
    shutil.copytree(place, tmp_path / "copy")
    with Index.open(tmp_path / "copy") as other:
        fill(other, "fresh", 2)
    with Index.open(place) as index:
        fill(index, "later", 2)
        remove(place)
        (tmp_path / "copy").rename(place)
        assert index.is_outdated()
        index.refresh()
        assert words(index) == {"old", "fresh"}


@pytest.mark.parametrize("replace", WAYS)
def test_searches_that_are_going_on_end_in_the_old_index(
    place: Path, index: Index, replace: Callable[..., None]
) -> None:
    documents = index.documents()
    first = next(documents)
    view = index.with_model("bm25(k1=2)")
    replace(place, "fresh")
    index.refresh()
    assert [d["word"] for d in [first, *documents]] == ["old"] * 5
    assert {hit["word"] for hit in view.search("common")} == {"fresh"}


@pytest.mark.parametrize("replace", WAYS)
def test_the_new_index_can_be_written_to_after_a_refresh(
    place: Path, index: Index, replace: Callable[..., None]
) -> None:
    index.add([{"id": "x", "text": "more"}])
    index.commit()
    replace(place, "fresh")
    with pytest.raises(CollectionError, match="has been replaced by another one"):
        index.add([{"id": "y", "text": "more"}])
    index.refresh()
    index.add([{"id": "y", "text": "more", "word": "more"}])
    index.commit()
    assert [hit.id for hit in index.search("more")] == ["y"]
    with index.writer() as writer:
        writer.delete("y")
        writer.commit()
    assert len(index) == 7
    assert verify(place) == []


@pytest.mark.parametrize("replace", [by_removing, by_moving])
@pytest.mark.parametrize("refreshes", [False, True])
def test_changes_to_a_removed_index_do_not_touch_its_successor(
    place: Path, index: Index, replace: Callable[..., None], refreshes: bool
) -> None:
    """The commit has another database than the folder; it must not take the segments of the new index for leftovers."""
    index.add([{"id": "x", "text": "lost"}])
    replace(place, "fresh")
    if refreshes:
        index.refresh()
    with pytest.raises(CollectionError, match="has been replaced by another one"):
        index.commit()
    index.rollback()
    index.refresh()
    assert words(index) == {"fresh"}
    assert verify(place) == []
    fill(index, "later", 1)
    assert words(index) == {"fresh", "later"}


def test_an_empty_index_that_was_replaced_takes_no_changes(tmp_path: Path) -> None:
    """Its commit, which needs no segment of before, once swept the segments of the new index."""
    place = tmp_path / "i"
    with Index.create(place) as index:
        index.add([{"id": "x", "text": "lost"}])
        by_removing(place, "fresh")
        with pytest.raises(CollectionError, match="has been replaced by another one"):
            index.commit()
        assert verify(place) == []
        index.refresh()
        assert words(index) == {"fresh"}


def test_an_index_that_is_gone_takes_no_changes(place: Path, index: Index) -> None:
    index.add([{"id": "x", "text": "lost"}])
    remove(place)
    with pytest.raises(CollectionError, match="the index has been removed"):
        index.commit()
    assert not place.exists()


def test_closing_the_old_index_leaves_the_log_of_the_new_one(place: Path, tmp_path: Path) -> None:
    """SQLite removes the log of a database with its last user; by its name, which is that of the new one by now."""
    reader = Index.open(place)
    remove(place)
    build(place, "fresh")
    with Index.open(place) as writer, Index.open(place) as pinned:
        fill(writer, "later", 3)
        assert (place / "index.db-wal").stat().st_size > 0
        reader.close()
        assert (place / "index.db-wal").exists()
        assert (place / "index.db-shm").exists()
        shutil.copytree(place, tmp_path / "crashed")  # what a crash now would leave
        assert words(pinned) == {"fresh"}
        assert words(writer) == {"fresh", "later"}
    with Index.open(tmp_path / "crashed") as index:
        assert words(index) == {"fresh", "later"}


def test_a_dense_model_is_opened_with_its_index(place: Path, index: Index, tmp_path: Path) -> None:
    dense = small_dense(tmp_path / "network")
    by_removing(place, "fresh", dense)
    index.refresh()
    assert index.name == "dense"
    assert words(index) == {"fresh"}
    by_removing(place, "other", small_dense(tmp_path / "second", seed=1))
    assert words(index) == {"fresh"}  # the network is open
    index.refresh()
    assert words(index) == {"other"}


def test_a_network_that_was_never_used_is_missed_in_one_sentence(tmp_path: Path) -> None:
    """A network is opened when it is first used. It is known by its digest, so another one is never taken for it."""
    place = build(tmp_path / "i", "old", 5, small_dense(tmp_path / "network"))
    with Index.open(place) as index:
        by_removing(place, "fresh", small_dense(tmp_path / "second", seed=1))
        with pytest.raises(VizslaError, match="there is no network here"):
            index.search("common")
        index.refresh()
        assert words(index) == {"fresh"}


# Damage


def without_folder(place: Path) -> None:
    remove(place)


def with_a_file_instead(place: Path) -> None:
    remove(place)
    place.write_text("no index")


def without_database(place: Path) -> None:
    (place / "index.db").unlink()


def with_an_empty_database(place: Path) -> None:
    (place / "index.db").write_bytes(b"")


def with_noise_for_a_database(place: Path) -> None:
    (place / "index.db").write_bytes(b"noise" * 10_000)


def with_half_a_database(place: Path) -> None:
    content = (place / "index.db").read_bytes()
    (place / "index.db").write_bytes(content[: len(content) // 2])


def without_segments(place: Path) -> None:
    shutil.rmtree(place / "segments")


def with_a_short_segment(place: Path) -> None:
    file = next((place / "segments").rglob("small_blocks.npy"))
    file.write_bytes(file.read_bytes()[:-1])


def of_another_format(place: Path) -> None:
    with sqlite3.connect(place / "index.db") as db:
        db.execute("UPDATE meta SET value = '999' WHERE key = 'format'")
    db.close()


def without_model(place: Path) -> None:
    shutil.rmtree(place / "model")


def with_another_model(place: Path) -> None:
    with sqlite3.connect(place / "index.db") as db:
        db.execute(
            """UPDATE meta SET value = '{"name": "x", "parts": [{"weight": 1, "kind": "x"}]}' WHERE key = 'model'"""
        )
    db.close()


DAMAGES = [
    without_folder,
    with_a_file_instead,
    without_database,
    with_an_empty_database,
    with_noise_for_a_database,
    with_half_a_database,
    without_segments,
    with_a_short_segment,
    of_another_format,
    without_model,
    with_another_model,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_opened_is_told_and_searches_go_on(
    place: Path, index: Index, damage: Callable[[Path], None]
) -> None:
    by_removing(place, "damaged", "bm25-wp")
    damage(place)
    assert index.is_outdated()
    for _ in range(2):
        with pytest.raises(CollectionError) as told:
            index.refresh()
        assert str(told.value).startswith(str(place))
        assert "\n" not in str(told.value)
        assert (words(index), len(index), index.generation, index.name) == ({"old"}, 5, 1, "bm25")
    if place.is_dir():
        remove(place)
    else:
        place.unlink(missing_ok=True)
    with pytest.raises(CollectionError, match="this folder does not exist"):
        newest_generation(index)
    assert index.is_outdated()
    build(place, "repaired")
    assert index.is_outdated()
    index.refresh()
    assert words(index) == {"repaired"}
    assert not index.is_outdated()


def test_a_closed_index_is_not_asked(index: Index) -> None:
    index.close()
    for ask in (newest_generation, Index.is_outdated):
        with pytest.raises(CollectionError, match="has been closed"):
            ask(index)


def test_a_replacement_between_its_two_renamings_is_waited_for(place: Path, index: Index) -> None:
    """For a moment the folder is not there; a refresh in this moment waits."""
    new = build(place.with_name("new"), "fresh")
    old = place.with_name(".i.old-0123abcd")
    with Index.open(place) as writing, writing.writer():
        place.rename(old)
        timer = threading.Timer(0.2, lambda: new.rename(place))
        timer.start()
        index.refresh()
        timer.join()
    assert words(index) == {"fresh"}


def test_an_index_that_is_replaced_while_it_is_opened(
    place: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is that of one index, and segments and model would be those of the next."""
    load = Snapshot._load
    swaps = iter(["first", "second"])

    def replaced_meanwhile(self: Snapshot, previous: Snapshot | None) -> None:
        if word := next(swaps, None):
            by_removing(place, word, "bm25-wp")
        load(self, previous)

    monkeypatch.setattr(Snapshot, "_load", replaced_meanwhile)
    index.refresh()
    assert words(index) == {"second"}
    assert index.name == "bm25-wp"


def test_a_reader_without_locks_keeps_what_was_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder cannot be written to, a database that changes is refused, one that is replaced stays."""
    connect = database._connect_immutable

    def unwritable(path: Path, *, write: bool) -> sqlite3.Connection:
        assert not write
        return connect(path, (path / "index.db").resolve())

    with monkeypatch.context() as patched:
        patched.setattr(database, "connect", unwritable)
        index = Index.open(place)
    by_removing(place, "fresh")
    assert words(index) == {"old"}
    index.refresh()
    assert words(index) == {"fresh"}
    index.close()
    with monkeypatch.context() as patched:
        patched.setattr(database, "connect", unwritable)
        index = Index.open(place)
    with Index.open(place) as other:
        fill(other, "later", 1)
    with pytest.raises(CollectionError, match="the index has changed"):
        index.search("common")
    index.refresh()
    assert words(index) == {"fresh", "later"}
    index.close()


# Threads


class Server:
    """Threads that search, one that looks for changes, as a server does."""

    def __init__(self, index: Index, searchers: int = 3) -> None:
        self.index = index
        self.errors: list[BaseException] = []
        self.refused = 0
        self.seen: set[str] = set()
        self.searches = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(self._search,)) for _ in range(searchers)]
        self._threads.append(threading.Thread(target=self._run, args=(self._look,)))
        for thread in self._threads:
            thread.start()

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                step()
        except BaseException as e:
            self.errors.append(e)

    def _search(self) -> None:
        hits = self.index.search("common", 100)
        found = {hit["word"] for hit in hits}
        assert len(found) == 1, found
        (word,) = found
        assert len(hits) == (5 if word == "old" else 7)
        assert all(hit.id.startswith(word) for hit in hits)
        self.seen |= found
        self.searches += 1

    def _look(self) -> None:
        if self.index.is_outdated():
            try:
                self.index.refresh()
            except CollectionError:
                self.refused += 1
        time.sleep(0.002)

    def wait_for(self, word: str) -> None:
        eventually(lambda: word in self.seen or self.errors, 0.002)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def test_searching_threads_meet_one_index_after_the_other(place: Path, index: Index) -> None:
    server = Server(index)
    names = []
    for n in range(8):
        name = f"version{n}"
        WAYS[n % 3](place, name, ["bm25", "bm25-multifield", "bm25(k1=2)"][n % 3])
        server.wait_for(name)
        names.append(name)
    eventually(lambda: server.searches > 20 or server.errors)
    server.stop()
    assert set(names) <= server.seen <= {"old", *names}
    assert words(index) == {names[-1]}
    assert verify(place) == []


def test_searching_threads_go_on_while_the_folder_is_gone(place: Path, index: Index) -> None:
    server = Server(index)
    new = build(place.with_name("new"), "fresh", 7)
    remove(place)
    eventually(lambda: server.refused >= 3 or server.errors, 0.002)
    before = server.searches
    eventually(lambda: server.searches >= before + 5 or server.errors, 0.002)
    assert not server.errors
    assert server.refused >= 3
    new.rename(place)
    server.wait_for("fresh")
    server.stop()
    assert server.seen == {"old", "fresh"}


def test_a_forked_child_asks_by_itself(index: Index) -> None:
    newest_generation(index)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"0"
        try:
            answer = str(newest_generation(index)).encode()
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 9) == b"1"
    os.close(reading)
    os.close(writing)
    assert (newest_generation(index), words(index)) == (1, {"old"})
