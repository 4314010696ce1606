"""An index from somebody else: whatever is in it, it cannot crash the process, run code or reach other files."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import document_vectors, verify
from vizsla.index.storage import checksums
from vizsla.index.storage.terms import DamagedTermsError, stored_terms

USES: list[Callable[[Index], object]] = [
    lambda i: i.search("common word3 new", 50, "n > 3"),
    lambda i: i.explain("common", "1"),
    lambda i: list(document_vectors(i)),
    lambda i: i.term_statistics("common"),
    lambda i: (i.add([{"id": "x", "text": "common"}]), i.commit()),
    lambda i: i.compact(),
]


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with two segments, one of them with deletions."""
    folder = tmp_path_factory.mktemp("worn") / "i"
    with Index.create(folder) as index:
        index.add([{"id": str(i), "text": f"common word{i % 10} " + "dog " * (i % 9), "n": i} for i in range(300)])
        index.commit()
        index.delete(str(i) for i in range(0, 60, 2))
        index.add([{"id": f"new{i}", "text": "common new", "n": i} for i in range(40)])
        index.commit()
    assert verify(folder) == []
    return folder


@pytest.fixture
def folder(worn: Path, tmp_path: Path) -> Path:
    """A copy of it, to be tampered with."""
    return Path(shutil.copytree(worn, tmp_path / "i"))


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """Folders and files of the user's that nothing may touch."""
    place = tmp_path / "treasure"
    for name in ("letters", "0123456789ab"):
        (place / name).mkdir(parents=True)
        (place / name / "terms.npy").write_text("mine")
    return place


def is_whole(treasure: Path) -> bool:
    return [f.read_text() for f in sorted(treasure.rglob("*.npy"))] == ["mine"] * 2


def tamper(folder: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Change the database as an attacker would, checksums included."""
    db = sqlite3.connect(folder / "index.db")
    for statement in statements:
        db.execute(*statement)
    meta = dict(db.execute("SELECT key, value FROM meta"))
    try:
        kept = json.loads(meta[checksums.KEY])
        generation, next_term = json.loads(meta["generation"]), json.loads(meta["next_term"])
        kept |= checksums.compute_checksums(db, generation, stored_terms(db), next_term)
        db.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(kept), checksums.KEY))
    except (KeyError, ValueError, TypeError, sqlite3.Error, DamagedTermsError):
        pass  # what was changed has no sums
    db.commit()
    db.close()


def use(folder: Path) -> list[str]:
    """Do everything with an index; what is refused is refused in one sentence."""
    said = list(verify(folder))
    for do in USES:
        try:
            with Index.open(folder) as index:
                do(index)
        except VizslaError as e:
            said.append(str(e))
    assert all("\n" not in sentence for sentence in said)
    return said


def facts_of(folder: Path) -> dict[str, dict[str, Any]]:
    db = sqlite3.connect(folder / "index.db")
    rows = db.execute("SELECT id, files FROM segments").fetchall()
    db.close()
    return {name: json.loads(found) for name, found in rows}


def set_files(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    for name, found in facts_of(folder).items():
        change(found)
        tamper(folder, ("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(found), name)))


FACTS: list[Callable[[dict[str, Any]], object]] = [
    lambda f: f["numbers"].update(type="|O"),
    lambda f: f["small_groups"].update(type="O8"),
    lambda f: f["sizes"].update(type="V8"),
    lambda f: f["sizes"].update(type=[["a", "|O"]]),
    lambda f: f["numbers"].update(type="<f8"),
    lambda f: f["numbers"].update(type=None),
    lambda f: f["numbers"].update(shape=[-1]),
    lambda f: f["numbers"].update(shape=[1 << 62]),
    lambda f: f["numbers"].update(shape="many"),
    lambda f: f["sizes"].update(shape=[f["sizes"]["shape"][1]]),
    lambda f: f["numbers"].update(file="../../../treasure/letters/terms.npy"),
    lambda f: f["numbers"].update(file="/etc/passwd"),
    lambda f: f["numbers"].update(file=7),
    lambda f: f["numbers"].update(bytes="7"),
    lambda f: f.update(numbers=[]),
    lambda f: f.update({"../x": f["numbers"]}),
    lambda f: f.update({"dense_99999999999999999999": f["numbers"]}),
    lambda f: f.pop("sizes"),
    lambda f: f["numbers"].update(sha256="/any/path"),
    lambda f: f["numbers"].update(file="alive-2.npy"),
    lambda f: f.update(alive={**f["numbers"], "file": "alive-2.npy", "type": "|b1"}),
]


def test_files_are_not_what_the_attacker_says(folder: Path, treasure: Path) -> None:
    kept = facts_of(folder)
    for n, change in enumerate(FACTS):
        set_files(folder, change)
        said = use(folder)
        assert any("damaged" in sentence for sentence in said), n
        for name, found in kept.items():
            tamper(folder, ("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(found), name)))
    assert is_whole(treasure)
    assert verify(folder) == []


META = ["7", "null", '"x"', "[1]", "{}", "-1", "99999999999999999999", "[" * 100_000]


def test_meta_that_makes_no_sense_is_told(folder: Path) -> None:
    db = sqlite3.connect(folder / "index.db")
    kept = dict(db.execute("SELECT key, value FROM meta"))
    db.close()
    for key in kept:
        for value in META:
            db = sqlite3.connect(folder / "index.db")
            db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
            db.commit()
            db.close()
            try:
                with Index.open(folder) as index:
                    index.search("common")
            except VizslaError:
                pass
            else:
                assert json.loads(value) == json.loads(kept[key])
            db = sqlite3.connect(folder / "index.db")
            db.execute("UPDATE meta SET value = ? WHERE key = ?", (kept[key], key))
            db.commit()
            db.close()
    assert verify(folder) == []


@pytest.mark.parametrize(
    "deleted", ["7", "{}", "[-1]", "[1, 1]", "[2, 1]", "[99999]", "[0.5]", "[true]", '["1"]', "null"]
)
def test_deleted_rows_that_make_no_sense_are_told(folder: Path, deleted: str) -> None:
    tamper(folder, (f"UPDATE segments SET statistics = json_set(statistics, '$.deleted', json('{deleted}'))", ()))
    assert any("damaged" in sentence for sentence in use(folder))
    assert verify(folder) != []


def test_deleted_rows_that_are_not_deleted_are_told(folder: Path) -> None:
    tamper(folder, ("UPDATE segments SET statistics = json_set(statistics, '$.deleted', json('[0]'))", ()))
    assert any("statistics" in sentence for sentence in verify(folder))


@pytest.mark.parametrize("statistics", ["[]", "{}", '{"living": -1}', '{"living": 3, "namespaces": {"words": 7}}'])
def test_statistics_that_make_no_sense_are_told(folder: Path, statistics: str) -> None:
    tamper(folder, ("UPDATE segments SET statistics = ?", (statistics,)))
    assert any("damaged" in sentence for sentence in use(folder))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER x AFTER INSERT ON documents BEGIN DELETE FROM terms; END",
        "CREATE VIEW x AS SELECT 1",
        "CREATE TABLE x (y)",
        "ALTER TABLE documents ADD COLUMN x",
        "DROP TABLE terms",
        "CREATE INDEX documents_by_id ON documents (metadata)",
    ],
)
def test_a_database_with_more_or_less_in_it_is_refused(folder: Path, statement: str) -> None:
    tamper(folder, (statement, ()))
    with pytest.raises(CollectionError, match="its tables are not those of an index"):
        Index.open(folder)
    assert verify(folder) != []


def test_links_are_not_followed(folder: Path, treasure: Path, tmp_path: Path) -> None:
    for name in ("segments", "index.db", "writer.lock", "model"):
        place, aside = folder / name, tmp_path / "aside"
        there = place.exists()
        if there:
            place.rename(aside)
        place.symlink_to(aside if name == "index.db" else treasure)
        said = use(folder)
        assert said, name
        assert any("link" in sentence for sentence in said), name
        assert is_whole(treasure), name
        place.unlink()
        if there:
            aside.rename(place)
    assert verify(folder) == []


def test_links_among_the_segments_are_not_followed(folder: Path, treasure: Path) -> None:
    (folder / "segments" / "cccccccccccc").symlink_to(treasure)
    (folder / "segments" / "letters").symlink_to(treasure / "letters")
    (folder / "segments" / "notes.txt").write_text("mine")
    some = folder / "segments" / next(iter(facts_of(folder)))
    (some / "sub").mkdir()
    (some / "notes.txt").write_text("mine")
    assert sum("does not belong here" in sentence for sentence in verify(folder)) == 5
    with Index.open(folder) as index:
        index.add([{"id": "x", "text": "common"}])
        index.commit()
        index.compact()
        assert len(index.search("common", 1000)) == 311
    assert is_whole(treasure)
    assert (folder / "segments" / "notes.txt").read_text() == "mine"
    assert (some / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_an_array_that_is_no_file_is_refused(folder: Path, treasure: Path, kind: str) -> None:
    some = folder / "segments" / next(iter(facts_of(folder)))
    file = some / "numbers.npy"
    file.unlink()
    if kind == "link":
        file.symlink_to(treasure / "letters" / "terms.npy")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    said = use(folder)
    assert len(said) >= len(USES)
    assert is_whole(treasure)


@pytest.mark.parametrize("name", ["../../treasure/letters/terms.npy", "/etc/passwd", "a/../../x", "", "a\\b"])
def test_a_models_files_are_inside_the_index(folder: Path, name: str) -> None:
    tamper(folder, ("UPDATE meta SET value = ? WHERE key = 'model_files'", (json.dumps({name: "0" * 64}),)))
    assert all("model_files in meta is not valid" in sentence for sentence in use(folder))


def test_a_pipe_among_a_models_files_is_not_waited_for(folder: Path) -> None:
    (folder / "model").mkdir()
    os.mkfifo(folder / "model" / "tokenizer.json")
    assert all("tokenizer.json in model is a link or a special file" in sentence for sentence in use(folder))


def test_random_damage_to_the_database_is_found_or_harmless(folder: Path) -> None:
    """A flipped byte is found by `verify`, or lies where SQLite keeps nothing, and then nothing is changed by it."""
    whole = (folder / "index.db").read_bytes()

    def content() -> list[str]:
        db = sqlite3.connect(f"{(folder / 'index.db').as_uri()}?immutable=1", uri=True)
        try:
            return list(db.iterdump())
        finally:
            db.close()

    expected, rng, found = content(), random.Random(0), 0
    for _ in range(80):
        changed = bytearray(whole)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        (folder / "index.db").write_bytes(changed)
        problems = verify(folder)
        found += bool(problems)
        if not problems:
            assert content() == expected
    assert found > 20


def test_a_journal_that_names_another_file_is_not_played_back(folder: Path, tmp_path: Path) -> None:
    """SQLite would remove the file that such a journal names."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("mine")
    name = str(thesis).encode()
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 0, 1, 512, 4096)
    record = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name))
    journal = folder / "index.db-journal"
    journal.write_bytes(header.ljust(512, b"\0") + record + bytes.fromhex("d9d505f920a163d7"))
    assert all("index.db-journal is not a file of an index" in sentence for sentence in use(folder))
    with pytest.raises(CollectionError, match="holds something that is not an index"):
        Index.create(folder, overwrite=True)
    assert thesis.read_text() == "mine"


def test_a_commit_writes_into_no_file_that_is_there(folder: Path, treasure: Path) -> None:
    """A link with the name of a file that a coming commit will write."""
    for name in facts_of(folder):
        for generation in range(1, 9):
            for part in ("alive", "frequencies"):
                link = folder / "segments" / name / f"{part}-{generation}.npy"
                if not link.exists():
                    link.symlink_to(treasure / "letters" / "terms.npy")
    with Index.open(folder) as index:
        index.delete([str(i) for i in range(61, 70)])
        index.commit()
    assert is_whole(treasure)
    set_files(folder, lambda f: f.update({"scales_2": {**f["large_tops"], "file": "scales_2.npy", "type": "<f4"}}))
    assert any("damaged" in sentence for sentence in use(folder))


def test_a_model_of_other_namespaces_than_the_segments_is_refused(folder: Path) -> None:
    """Kernels once looked for lengths of namespaces that no segment has."""
    db = sqlite3.connect(folder / "index.db")
    ((model,),) = db.execute("SELECT value FROM meta WHERE key = 'model'").fetchall()
    rows = db.execute("SELECT id, statistics FROM segments").fetchall()
    db.close()
    described = json.loads(model)
    (part,) = described["parts"]
    described["parts"] = [{**part, "namespace": f"n{i}"} for i in range(50)]
    changes: list[tuple[str, tuple[Any, ...]]] = [
        ("UPDATE meta SET value = ? WHERE key = 'model'", (json.dumps({**described, "name": "many"}),)),
        ("UPDATE terms SET namespace = 49", ()),
    ]
    for name, text in rows:
        statistics = json.loads(text)
        (only,) = statistics["namespaces"].values()
        statistics["namespaces"] = {f"n{i}": only for i in range(50)}
        changes.append(("UPDATE segments SET statistics = ? WHERE id = ?", (json.dumps(statistics), name)))
    tamper(folder, *changes)
    assert len(use(folder)) >= len(USES)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE contents SET fields = '{'",
        "UPDATE contents SET fields = '[1]'",
        "UPDATE documents SET metadata = '[]'",
        "UPDATE terms SET number = 'x'",
        "UPDATE terms SET number = -1",
        "UPDATE terms SET number = 1.5",
        "UPDATE terms SET namespace = 7",
    ],
)
def test_rows_that_make_no_sense_are_told(folder: Path, change: str) -> None:
    tamper(folder, (change, ()))
    assert verify(folder) != []
    use(folder)  # raises nothing but sentences


def test_nothing_in_an_index_crashes_the_process(folder: Path) -> None:
    """The attack that once segfaulted, in a process of its own."""
    set_files(folder, lambda f: f["numbers"].update(type="|O"))
    ran = subprocess.run([sys.executable, "-m", "vizsla", "info", folder], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "damaged" in ran.stderr
    assert "Traceback" not in ran.stderr
