"""Judgements: a file that several processes write to, that survives crashes, and that says what is wrong with it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Document, Hit, Index, Qrels, Retriever, VizslaError
from vizsla.runs import FilterLike
from vizsla.server import judgements as module
from vizsla.server.errors import status_of
from vizsla.server.judgements import Judgements, JudgementsError, measures, query_key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made later" / "judgements.db"


class Fixed(Retriever):
    """Answers every query with given documents, best first."""

    def __init__(self, answers: dict[str, Sequence[str]]) -> None:
        self.name, self.answers = "fixed", answers

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[list[Hit]]:
        assert filter is None
        found = [self.answers.get(query, ())[:k] for query in queries]
        return [[Hit(rank, 100.0 - rank, Document(d, {})) for rank, d in enumerate(ids, 1)] for ids in found]

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        return {str(i): Document(str(i), {}) for i in ids}

    def __len__(self) -> int:
        return 1000


# What is kept


def test_nothing_is_created_before_the_first_judgement(file: Path) -> None:
    judgements = Judgements(file)
    assert judgements.queries() == []
    assert judgements.grades("dogs") == {}
    assert judgements.find("dogs") is None
    assert judgements.set("dogs", "d1", None) == 0
    assert judgements.qrels() == Qrels({})
    assert (judgements.export_qrels(), judgements.export_queries()) == ("", "")
    assert not file.parent.exists()


def test_judgements_are_set_changed_and_forgotten(file: Path) -> None:
    judgements = Judgements(file)
    assert judgements.set("dogs", "d1", 1) == 1
    assert judgements.set("dogs", "d2", 0) == 2
    assert judgements.set("dogs", "d1", 3) == 2
    assert judgements.set("cats", "d1", 2) == 1
    assert judgements.set("dogs", "d9", None) == 2
    assert judgements.set("birds", "d1", None) == 0
    first, second = Judgements(file).queries()
    assert (first.qid, first.query, first.grades) == ("q1", "dogs", {"d1": 3, "d2": 0})
    assert (first.judged, first.relevant) == (2, 1)
    assert (second.qid, second.query, second.grades) == ("q2", "cats", {"d1": 2})
    assert judgements.set("dogs", "d1", None) == 1
    assert judgements.set("dogs", "d2", None) == 0
    assert [q.qid for q in judgements.queries()] == ["q2"]
    assert judgements.find("dogs") == module.JudgedQuery("q1", "dogs", {})
    judgements.set("birds", "d1", 1)
    judgements.set("dogs", "d1", 1)
    assert [(q.qid, q.query) for q in judgements.queries()] == [("q1", "dogs"), ("q2", "cats"), ("q3", "birds")]


def test_the_file_is_one_file(file: Path) -> None:
    Judgements(file).set("dogs", "d1", 1)
    assert [f.name for f in file.parent.iterdir()] == ["judgements.db"]


def test_a_query_is_known_by_its_words(file: Path) -> None:
    judgements = Judgements(file)
    judgements.set("café\t au \u00a0lait ", "d1", 1)
    judgements.set("  café au\nlait", "d2", 1)
    judgements.set("Café au lait", "d3", 1)
    assert [(q.query, q.judged) for q in judgements.queries()] == [("café au lait", 2), ("Café au lait", 1)]


texts = st.text(max_size=8).filter(lambda text: bool(text.strip()) and text.isprintable()) | st.sampled_from(
    ["dogs", " dogs", "dogs  ", "cafe\u0301", "café", "a b", "a\tb", "A b", "\u1100\u1161", "가"]
)


@given(
    st.lists(
        st.tuples(texts, st.text(min_size=1, max_size=3) | st.sampled_from(["d1", "d2"]), st.none() | st.integers(0, 3))
    )
)
def test_it_is_a_dictionary_that_lasts(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    judgements = Judgements(tmp_path_factory.mktemp("judged") / "j.db")
    kept: dict[str, dict[str, int]] = {}
    numbers: dict[str, str] = {}
    for query, document, grade in steps:
        key = query_key(query)
        if grade is not None:
            numbers.setdefault(key, f"q{len(numbers) + 1}")
            kept.setdefault(key, {})[document] = grade
        else:
            kept.get(key, {}).pop(document, None)
        assert judgements.set(query, document, grade) == len(kept.get(key, {}))
        assert judgements.grades(query) == kept.get(key, {})
    expected = {numbers[key]: grades for key, grades in kept.items() if grades}
    assert judgements.qrels().judgements == expected
    assert {q.qid: q.query for q in judgements.queries()} == {numbers[key]: key for key in kept if kept[key]}
    listed = map(json.loads, judgements.export_queries().split("\n")[:-1])
    assert [(q["_id"], q["text"]) for q in listed] == [(q.qid, q.query) for q in judgements.queries()]


@pytest.mark.parametrize(
    ("query", "document", "grade", "message"),
    [
        ("", "d1", 1, "the query is empty"),
        (" \t\n", "d1", 1, "the query is empty"),
        (7, "d1", 1, "a query is a text, not the number 7"),
        ("half \ud800", "d1", 1, "a lone surrogate"),
        ("dogs", "", 1, "the id must be a text"),
        ("dogs", "\udfff", 1, "half a surrogate pair"),
        ("dogs", None, 1, "the id must be a text"),
        ("dogs", "d1", 4, "a grade is a whole number from 0 to 3, or null to forget it, not the number 4"),
        ("dogs", "d1", -1, "not the number -1"),
        ("dogs", "d1", True, "not true or false"),
        ("dogs", "d1", 1.0, "not the number 1.0"),
        ("dogs", "d1", "1", "not the text '1'"),
        ("dogs", "d1", 10**400, "not a number of very many digits"),
    ],
)
def test_what_is_no_judgement_is_refused(
    file: Path, query: object, document: object, grade: object, message: str
) -> None:
    with pytest.raises(VizslaError, match=message):
        Judgements(file).set(query, document, grade)  # type: ignore[arg-type]
    assert not file.exists()


# What is exported


def test_exports_are_read_back(file: Path, tmp_path: Path) -> None:
    judgements = Judgements(file)
    for query, document, grade in [("dogs", "d1", 2), ("dogs", "http://x/ü?a=1", 0), ('"quoted"\u2028', "d1", 1)]:
        judgements.set(query, document, grade)
    (tmp_path / "qrels.txt").write_text(judgements.export_qrels())
    (tmp_path / "qrels.tsv").write_text(judgements.export_qrels(tabs=True))
    assert Qrels.read(tmp_path / "qrels.txt") == Qrels.read(tmp_path / "qrels.tsv") == judgements.qrels()
    lines = judgements.export_queries().split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"_id": "q1", "text": "dogs"},
        {"_id": "q2", "text": '"quoted"'},
    ]


def test_an_id_with_blanks_is_refused_where_columns_cannot_hold_it(file: Path, tmp_path: Path) -> None:
    judgements = Judgements(file)
    judgements.set("dogs", "a page", 1)
    with pytest.raises(VizslaError, match="cannot hold an id that is empty or contains whitespace"):
        judgements.export_qrels()
    (tmp_path / "qrels.tsv").write_text(judgements.export_qrels(tabs=True))
    assert Qrels.read(tmp_path / "qrels.tsv") == judgements.qrels()
    judgements.set("dogs", "a\tpage\n", 1)
    with pytest.raises(VizslaError, match="cannot hold an id that is empty or contains tabs"):
        judgements.export_qrels(tabs=True)


# Several writers


def judge_much(file: Path, worker: int) -> None:
    judgements = Judgements(file)
    for n in range(30):
        judgements.set(f"query {n % 5}", f"{worker}-{n}", n % 4)
        judgements.set("shared", "d", worker)


def test_processes_and_threads_write_at_once(file: Path) -> None:
    start = multiprocessing.get_context("spawn")
    workers = [start.Process(target=judge_much, args=(file, n)) for n in range(2)]
    threads = [threading.Thread(target=judge_much, args=(file, n)) for n in (2, 3)]
    for each in (*workers, *threads):
        each.start()
    for each in (*workers, *threads):
        each.join()
    assert [w.exitcode for w in workers] == [0, 0]
    found = {q.query: q.grades for q in Judgements(file).queries()}
    assert found.pop("shared")["d"] in range(4)
    assert found == {f"query {q}": {f"{w}-{n}": n % 4 for w in range(4) for n in range(q, 30, 5)} for q in range(5)}
    assert sorted(q.qid for q in Judgements(file).queries()) == [f"q{n}" for n in range(1, 7)]


JUDGE = """
import sys
from vizsla.server.judgements import Judgements
judgements = Judgements(sys.argv[1])
for n in range(1_000_000):
    print(n, flush=True)
    judgements.set(f"query {n % 7}", f"d{n}", n % 4)
"""


@pytest.mark.slow
def test_a_crash_in_the_middle_loses_nothing_that_was_done(file: Path) -> None:
    """Writers killed at random moments, the first ones while the file is made: what was done before is there."""
    rng = random.Random(5)
    for turn in range(6):
        file.unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-c", JUDGE, str(file)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.random() * (0.004 if turn < 4 else 0.2))
        child.send_signal(signal.SIGKILL)
        begun = 1 + sum(1 for _ in child.stdout)
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        kept = {d: grade for q in Judgements(file).queries() for d, grade in q.grades.items()}
        assert len(kept) in (begun - 1, begun)
        assert kept == {f"d{n}": n % 4 for n in range(len(kept))}
        assert Judgements(file).set("query 0", "after", 1) == len(Judgements(file).grades("query 0"))


# What can be wrong with the file


def refused(judgements: Judgements, message: str) -> None:
    """Everything is refused with one sentence that does not name the file."""
    for do in (lambda: judgements.set("dogs", "d2", 1), lambda: judgements.grades("dogs"), judgements.queries):
        with pytest.raises(JudgementsError, match=message) as raised:
            do()
        assert str(judgements.path.parent) not in str(raised.value)
        assert "\n" not in str(raised.value)
        assert raised.value.path == judgements.path
        assert status_of(raised.value) == 503  # the server's file is wrong, not the request


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    text, other, newer = tmp_path / "notes.txt", tmp_path / "other.db", tmp_path / "newer.db"
    text.write_text("Buy a dog.\n" * 200)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE queries (number, text)")
    db.close()
    Judgements(newer).set("dogs", "d1", 1)
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version=2")
    db.close()
    before = {f: f.read_bytes() for f in (text, other, newer)}
    refused(Judgements(text), "is something else, or its start is damaged")
    refused(Judgements(other), "is a database of something else; name another file")
    refused(Judgements(newer), "has version 2, and this Vizsla reads version 1")
    assert {f: f.read_bytes() for f in before} == before
    (tmp_path / "folder").mkdir()
    refused(Judgements(tmp_path / "folder"), "is a folder; name a file")
    refused(Judgements(text / "j.db"), "has no folder|cannot be read")
    with pytest.raises(JudgementsError, match="cannot have a name with a NUL in it"):
        Judgements(tmp_path / "a\0b")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "j.db"
    judgements = Judgements(file)
    judgements.set("dogs", "d1", 1)
    with sqlite3.connect(file) as db:
        db.executemany("INSERT INTO judgements VALUES (1, ?, 1, '')", [(f"document {n}",) for n in range(2000)])
    db.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    refused(judgements, "is damaged; restore a backup")
    file.write_bytes(whole[: len(whole) // 2])
    refused(judgements, "is damaged")
    file.write_bytes(b"\0" * 100 + whole[100:])
    refused(judgements, "is something else, or its start is damaged")
    file.write_bytes(whole)
    with sqlite3.connect(file) as db:
        db.execute("DROP TABLE judgements")
    db.close()
    refused(judgements, "is damaged, since its tables are not those of judgements")


def test_a_locked_file_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Judgements(file).set("dogs", "d1", 1)
    monkeypatch.setattr(module, "_WAIT", 0.05)
    code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN EXCLUSIVE')"
    code += "; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, str(file)], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        refused(Judgements(file), "is in use by another process; try again")
        other.communicate()
    assert Judgements(file).set("dogs", "d2", 1) == 2


FULL = """
import resource, sys
from vizsla.server.judgements import Judgements, JudgementsError
judgements = Judgements(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
done = 0
try:
    for n in range(10_000):
        judgements.set("dogs", f"document {n} " + "x" * 200, 1)
        done += 1
except JudgementsError as e:
    print(done, e)
"""


@pytest.mark.slow
@pytest.mark.parametrize("room_left", [100, 60_000])
def test_a_full_disk_is_told_and_nothing_is_lost(file: Path, room_left: int) -> None:
    command = [sys.executable, "-c", FULL, str(file), str(room_left)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done, _, sentence = told.partition(" ")
    assert "disk is full" in sentence
    assert "earlier judgements are intact" in sentence
    kept = Judgements(file).grades("dogs")
    assert len(kept) == int(done)
    assert Judgements(file).set("dogs", "more", 1) == len(kept) + 1


AS_NOBODY = """
import os, sys
from vizsla.server.judgements import Judgements, JudgementsError
os.setgid(65534), os.setuid(65534)
judgements = Judgements(sys.argv[1])
try:
    print(judgements.grades("dogs"))
    judgements.set("dogs", "d2", 1)
except JudgementsError as e:
    print(e)
"""


def told_without_permission(file: Path) -> str:
    """What somebody is told who may read the folder and not write to it."""
    code = AS_NOBODY if os.geteuid() == 0 else AS_NOBODY.replace("os.setgid(65534), os.setuid(65534)", "")
    return subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True).stdout


def test_a_folder_that_cannot_be_written_to_is_told() -> None:
    with tempfile.TemporaryDirectory() as name:  # others cannot enter the folders of pytest
        folder = Path(name)
        Judgements(folder / "j.db").set("dogs", "d1", 1)
        (folder / "j.db").chmod(0o444)
        folder.chmod(0o555)
        assert told_without_permission(folder / "j.db") == (
            "{'d1': 1}\nthe file of judgements or its folder cannot be written to; check their permissions\n"
        )
        assert told_without_permission(folder / "none.db") == (
            "{}\nthe file of judgements cannot be opened; check the permissions of its folder\n"
        )
        told = told_without_permission(folder / "a" / "j.db")
        assert "has no folder, and none can be made (Permission denied)" in told
        folder.chmod(0o755)


# Measures


def test_measures_of_two_models(file: Path) -> None:
    judgements = Judgements(file)
    for query, document, grade in [("dogs", "a", 1), ("dogs", "b", 0), ("cats", "c", 2), ("none good", "a", 0)]:
        judgements.set(query, document, grade)
    good = Fixed({"dogs": ["a", "b"], "cats": ["c"], "none good": ["a"]})
    other = Fixed({"dogs": ["x", "y", "b", "a"], "cats": ["c", "z"]})
    found = measures(judgements, {"good": good, "other": other}, "RR P@2 nDCG@10")
    assert asdict(found)["queries"] == 3
    assert found.measures == ["RR", "P@2", "nDCG@10"]
    first, second = found.models
    assert (first.model, first.unjudged) == ("good", 0.0)
    assert first.mean == {"RR": pytest.approx(2 / 3), "P@2": pytest.approx(1 / 3), "nDCG@10": pytest.approx(2 / 3)}
    assert first.per_query["q3"] == {"RR": 0.0, "P@2": 0.0, "nDCG@10": 0.0}
    assert (second.model, second.unjudged) == ("other", 3 / 6)
    assert second.per_query["q1"]["RR"] == 0.25
    assert second.mean["RR"] == pytest.approx(1.25 / 3)


def test_a_document_with_the_id_of_a_query_counts(file: Path) -> None:
    judgements = Judgements(file)
    judgements.set("dogs", "q1", 1)
    assert measures(judgements, {"m": Fixed({"dogs": ["q1"]})}, "RR").models[0].mean == {"RR": 1.0}


def test_what_lies_below_the_depth_does_not_count(file: Path) -> None:
    judgements = Judgements(file)
    judgements.set("dogs", "d7", 1)
    model = Fixed({"dogs": [f"d{n}" for n in range(40)]})
    found = measures(judgements, {"m": model}, "RR", depth=5).models[0]
    assert (found.mean, found.unjudged) == ({"RR": 0.0}, 0.9)
    assert measures(judgements, {"m": model}, "RR", depth=8).models[0].mean == {"RR": 1 / 8}


def test_an_index_is_measured(file: Path, index: Path) -> None:
    judgements = Judgements(file)
    judgements.set("barking dogs", "d1", 2)
    judgements.set("barking dogs", "d2", 0)
    with Index.open(index) as opened:
        found = measures(judgements, {"bm25": opened, "bm25(k1=2)": opened.with_model("bm25(k1=2)")})
    assert [m.mean["nDCG@10"] for m in found.models] == [1.0, 1.0]
    assert found.models[0].unjudged == pytest.approx(1 / 3)


def test_what_cannot_be_measured_is_refused(file: Path) -> None:
    judgements, model = Judgements(file), {"m": Fixed({})}
    with pytest.raises(VizslaError, match="no query has judgements yet"):
        measures(judgements, model)
    judgements.set("dogs", "a", 1)
    with pytest.raises(VizslaError, match="no model was named"):
        measures(judgements, {})
    with pytest.raises(VizslaError, match="R@1000 needs 1,000 documents; choose a depth of 1,000 or more"):
        measures(judgements, model, "R@1000")
    with pytest.raises(VizslaError, match="unknown measure 'nDGC'"):
        measures(judgements, model, "nDGC@10")
    with pytest.raises(VizslaError, match="must be 1 or more, not 0"):
        measures(judgements, model, depth=0)
    assert measures(judgements, model).models[0].unjudged == 0.0
