"""Backups: what is restored is the commit that was backed up, and nothing hostile comes with it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import Cli
from numbered import build, records
from scattered import Scattered
from vizsla import Index, VizslaError, parse_model
from vizsla.errors import CollectionError
from vizsla.index import backup, list_backups, restore, verify


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build(tmp_path / "i", records(50)).close()
    return tmp_path / "i"


@pytest.fixture
def place(tmp_path: Path, index: Path) -> Path:
    backup(index, tmp_path / "b")
    return tmp_path / "b"


def documents(folder: Path) -> dict[str, Any]:
    assert verify(folder) == []
    with Index.open(folder) as opened:
        return {d.id: dict(d.content) for d in opened.documents()}


def test_a_life_of_backups_restores_each_commit(tmp_path: Path) -> None:
    place = tmp_path / "b"
    made = {}
    with Index.create(tmp_path / "i", parse_model("bm25") + Scattered(), vector_index="sq8") as index:
        for n in range(4):
            index.add({"id": f"{n}-{i}", "text": f"common w{n} {i}"} for i in range(40))
            index.delete([f"{n - 1}-{i}" for i in range(5 * n)])
            index.compact() if n == 2 else index.commit()
            index.add([{"id": "pending", "text": "never committed"}])
            made[backup(index.path, place).name] = {d.id: dict(d.content) for d in index.documents()}
            index.rollback()
    assert [b.name for b in list_backups(place)] == list(made)
    for name, state in made.items():
        assert documents(restore(place, tmp_path / "r", name=name, overwrite=True)) == state


def test_only_what_has_changed_is_written(tmp_path: Path) -> None:
    place = tmp_path / "b"
    with Index.create(tmp_path / "i") as index:
        index.add({"id": str(i), "text": f"common {i} " * 60} for i in range(3000))
        index.commit()
        first = backup(index.path, place)
        assert first.new_bytes == first.bytes > 1_500_000
        assert backup(index.path, place).new_bytes == 0
        index.add([{"id": "new", "text": "common"}])
        index.commit()
        last = backup(index.path, place)
    assert last.documents == 3001
    assert last.new_bytes is not None
    assert last.new_bytes < first.bytes * 0.75  # pieces of the database that have changed, and a small segment
    assert len(documents(restore(place, tmp_path / "r"))) == 3001


def test_older_backups_are_removed_with_their_pieces(tmp_path: Path, index: Path) -> None:
    place = tmp_path / "b"
    for n in range(3):
        with Index.open(index) as opened:
            opened.add([{"id": "last", "text": f"common {n}"}])
            opened.compact()
        backup(index, place, keep=2)
    assert len(list_backups(place)) == 2
    manifests = [json.loads(f.read_bytes()) for f in (place / "backups").iterdir()]
    assert {f.name for f in (place / "pieces").iterdir()} == {
        piece for manifest in manifests for part in manifest["files"] for piece in part["pieces"]
    }
    assert documents(restore(place, tmp_path / "r"))["last"]["text"] == "common 2"
    before = restore(place, tmp_path / "r", name=list_backups(place)[0].name, overwrite=True)
    assert documents(before)["last"]["text"] == "common 1"


def test_an_object_store(tmp_path: Path, index: Path) -> None:
    pytest.importorskip("fsspec")
    place = f"memory://bucket-{os.getpid()}/{tmp_path.name}"
    with pytest.raises(CollectionError, match="there is no backup here"):
        restore(place, tmp_path / "r")
    first = backup(index, place)
    assert backup(index, place, keep=1).new_bytes == 0
    assert [b.generation for b in list_backups(place)] == [first.generation]
    assert documents(restore(place, tmp_path / "r")) == documents(index)
    with pytest.raises(CollectionError, match="Protocol not known: nosuch"):
        backup(index, "nosuch://bucket/x")


def test_a_reader_and_a_writer_of_the_index_that_is_replaced(index: Path, place: Path) -> None:
    with Index.open(index) as opened:
        opened.add([{"id": "later", "text": "common"}])
        opened.commit()
        restore(place, index, overwrite=True)
        assert len(opened) == 51  # it keeps what it has opened
        with pytest.raises(CollectionError, match="has been replaced by another"):
            opened.add([{"id": "lost", "text": "common"}])
        opened.refresh()
        opened.add([{"id": "kept", "text": "common"}])
        opened.commit()
        assert len(opened) == 51
    assert "later" not in documents(index)
    assert "kept" in documents(index)


def test_an_index_is_not_replaced_by_accident(index: Path, place: Path) -> None:
    with pytest.raises(CollectionError, match="an index exists here already"):
        restore(place, index)


def test_what_is_refused(tmp_path: Path, index: Path, place: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters.txt").touch()
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: backup(index, tmp_path / "full"), r"something that is not a backup \(letters.txt\)"),
        (lambda: backup(index, index / "b"), "cannot be inside of the index itself"),
        (lambda: backup(index, tmp_path / "full" / "letters.txt"), "this is a file"),
        (lambda: backup(tmp_path / "none", tmp_path / "new"), "does not exist"),
        (lambda: backup(index, place, keep=0), "keep 1 backup or more, not 0"),
        (lambda: backup(index, 3), "a folder or a URL, not the number 3"),  # type: ignore[arg-type]
        (lambda: backup(index, place, storage_options={"a": 1}), "options are for object stores"),
        (lambda: restore(place, tmp_path / "r", name="yesterday"), "there is no backup 'yesterday'; the last one is"),
        (lambda: restore(tmp_path / "none", tmp_path / "r"), "there is no backup here"),
    ]
    for call, message in cases:
        with pytest.raises(VizslaError, match=message):
            call()
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "r").exists()


def rewritten(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest as somebody would who can write to the place: with the right checksum."""
    (file,) = (place / "backups").iterdir()
    facts = json.loads(file.read_bytes())
    change(facts)
    data = json.dumps(facts).encode()
    file.unlink()
    name = file.name.split(".")[0]
    (place / "backups" / f"{name}.{hashlib.sha256(data).hexdigest()[:16]}.json").write_bytes(data)


def added(place: Path, path: str, content: bytes = b"#!/bin/sh") -> None:
    """Add a file to the manifest, with its piece."""
    sha256 = hashlib.sha256(content).hexdigest()
    (place / "pieces" / sha256).write_bytes(content)
    entry = {"path": path, "bytes": len(content), "sha256": sha256, "pieces": [sha256]}
    rewritten(place, lambda facts: facts["files"].append(entry))


@pytest.mark.parametrize(
    "path",
    ["../evil", "/tmp/evil", "model/../../evil", "segments/../evil", "segments/0123456789ab/../../evil", "evil.py", "",
     "model", "model/", "model//x", "model/c:evil", "model\\..\\evil", "model/a\0b", "segments/0123456789ab/evil.py",
     "index.db", "writer.lock", "index.db-journal", "segments/0123456789ab/deep/sizes.npy"],
)  # fmt: skip
def test_paths_outside_are_refused(tmp_path: Path, place: Path, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    added(place, path)
    with pytest.raises(CollectionError, match=r"which no index has|not those of an index"):
        restore(place, tmp_path / "r")
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before and place not in p.parents] == []


@pytest.mark.parametrize("path", ["model/evil.py", "segments/0123456789ab/sizes.npy", "model/evil/deep.json"])
def test_files_that_the_index_does_not_name_are_refused(tmp_path: Path, place: Path, path: str) -> None:
    added(place, path)
    with pytest.raises(CollectionError, match=r"does not belong here|files that its index does not name"):
        restore(place, tmp_path / "r")
    assert not (tmp_path / "r").exists()


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "another format": lambda m: m.update(format=2),
    "another size of pieces": lambda m: m.update(piece_bytes=1 << 40),
    "no files": lambda m: m.update(files=[]),
    "files that are no list": lambda m: m.update(files={"path": "index.db"}),
    "a file that is no object": lambda m: m["files"].append("index.db"),
    "a path that is no text": lambda m: m["files"][0].update(path=["index.db"]),
    "a piece that is no hash": lambda m: m["files"][0].update(pieces=["../../backups/x"]),
    "a negative size": lambda m: m["files"][0].update(bytes=-1),
    "a size that is true": lambda m: m["files"][0].update(bytes=True),
    "a size without pieces": lambda m: m["files"][0].update(bytes=1 << 60),
    "another field": lambda m: m["files"][0].update(mode="0777"),
    "a generation that is no number": lambda m: m.update(generation="1"),
    "no date": lambda m: m.update(created=None),
    "a deep nest": lambda m: m.update(created=json.loads("[" * 200 + "]" * 200)),
    "twice the same file": lambda m: m["files"].append(m["files"][0]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_refused(tmp_path: Path, place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rewritten(place, change)
    with pytest.raises(CollectionError, match=r"the backup \S+ is damaged"):
        restore(place, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_an_index_that_would_fill_the_disk_is_refused_before_anything_is_read(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(manifest: dict[str, Any]) -> None:
        name = manifest["files"][0]["pieces"][0]
        manifest["files"][0].update(bytes=1 << 35, pieces=[name] * (1 << 15))
        manifest["files"] += [{**manifest["files"][0], "path": f"model/{n}", "bytes": 1 << 35} for n in range(3)]

    rewritten(place, grow)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(CollectionError, match=r"the backup needs 137,\S+ bytes, and 1,073,741,824 are free"):
        restore(place, tmp_path / "r")


def test_damage_is_found(tmp_path: Path, place: Path) -> None:
    for piece in sorted((place / "pieces").iterdir())[:3]:
        content = piece.read_bytes()
        for damaged in (content[:-1], content + b"x", content[:-1] + bytes([content[-1] ^ 1])) if content else (b"x",):
            piece.write_bytes(damaged)
            with pytest.raises(CollectionError, match=f"pieces/{piece.name} is damaged"):
                restore(place, tmp_path / "r")
        piece.unlink()
        with pytest.raises(CollectionError, match=f"pieces/{piece.name} is missing"):
            restore(place, tmp_path / "r")
        secret = tmp_path / "secret"
        secret.write_bytes(content)
        piece.symlink_to(secret)
        with pytest.raises(CollectionError, match="it is a link"):
            restore(place, tmp_path / "r")
        piece.unlink()
        piece.write_bytes(content)
    assert not (tmp_path / "r").exists()
    assert len(documents(restore(place, tmp_path / "r"))) == 50
    (manifest,) = (place / "backups").iterdir()
    manifest.write_bytes(manifest.read_bytes().replace(b'"generation": 1', b'"generation": 2'))
    for call in (lambda: restore(place, tmp_path / "r2"), lambda: list_backups(place)):
        with pytest.raises(CollectionError, match="its content is not what was written"):
            call()


def test_a_piece_that_was_half_written_is_written_again(tmp_path: Path, index: Path, place: Path) -> None:
    piece = max((place / "pieces").iterdir(), key=lambda f: f.stat().st_size)
    piece.write_bytes(piece.read_bytes()[:100])
    (place / "pieces" / ".0123456789abcdef.unfinished").write_bytes(b"left by a process that was killed")
    assert backup(index, place).new_bytes == piece.stat().st_size > 100
    assert not list((place / "pieces").glob(".*"))
    assert documents(restore(place, tmp_path / "r")) == documents(index)


def test_a_damaged_index_is_not_backed_up(tmp_path: Path, index: Path) -> None:
    file = max((index / "segments").rglob("*.npy"), key=lambda f: f.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CollectionError, match=r"segments/.* is damaged: its content is not what was written"):
        backup(index, tmp_path / "b")
    assert list((tmp_path / "b" / "backups").iterdir()) == []


def test_one_backup_at_a_time(tmp_path: Path, index: Path) -> None:
    def inside(*_: object) -> None:
        with pytest.raises(CollectionError, match="another backup to this folder is running"):
            backup(index, tmp_path / "b")

    backup(index, tmp_path / "b", progress=inside)


def test_beside_a_writer_that_is_killed(tmp_path: Path) -> None:
    """The short form of tests/backup_crash.py."""
    import backup_crash

    assert backup_crash.run(1, seed=3, folder=tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "times"), [("sparse", 3), ("plaid", 2), ("coil", 2)])
def test_beside_writers_that_are_killed(tmp_path: Path, kind: str, times: int) -> None:
    import backup_crash

    assert backup_crash.run(times, seed=1, folder=tmp_path, kind=kind) == []


def test_the_commands(cli: Cli, tmp_path: Path, index: Path) -> None:
    code, out, _ = cli("backup", index, tmp_path / "b", "--json")
    name = json.loads(out)["name"]
    assert code == 0
    assert "Restore it with: vizsla restore" in cli("backup", index, tmp_path / "b", "--keep", 2)[2]
    listed = json.loads(cli("restore", tmp_path / "b", "--list", "--json")[1])
    assert (listed[0]["name"], len(listed)) == (name, 2)
    assert name in cli("restore", tmp_path / "b", "--list")[1]
    assert "restored and verified" in cli("restore", tmp_path / "b", "-o", tmp_path / "r", "--name", name)[2]
    assert documents(tmp_path / "r") == documents(index)
    assert cli("restore", tmp_path / "b")[0] == 2
