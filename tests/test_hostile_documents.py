"""Damaged and hostile documents: refused in one sentence, and the next file is read; `make hostile` does more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import hostile_files
import made_documents as made
from conftest import Cli
from vizsla.datasets import SOURCES, Limits, Source, confined
from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import Refusal
from vizsla.datasets.zip_xml import parse_xml
from vizsla.errors import InputError
from waiting import eventually

PLUGIN = """
import os, sys, time
from vizsla.datasets import SOURCES, DocumentFormat, Extracted

@SOURCES.register("naughty", help="Does what its file says.")
class Naughty(DocumentFormat):
    endings = (".naughty",)
    confined = True
    read_before = 0

    def read(self, file, limits):
        does = file.read_text()
        Naughty.read_before += 1
        if does == "dies":
            os.abort()
        if does == "dies later" and Naughty.read_before > 1:
            os._exit(3)
        if does == "hangs":
            time.sleep(1000)
        if does == "eats":
            data = [bytes(1 << 24) for _ in range(1000)]
        if does == "writes":
            with open(str(file.path) + ".written", "w") as out: out.write("x")
        if does == "prints":
            print("x" * 100_000); os.write(1, b"y" * 100_000)
        if does == "lies":
            yield Extracted(7)
        if does == "raises":
            raise RuntimeError("two\\nlines")
        yield Extracted(f"{os.getpid()} {does}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of a format that does what they say."""
    (tmp_path / "naughty.py").write_text(PLUGIN)
    monkeypatch.setenv("VIZSLA_PLUGINS", str(tmp_path / "naughty.py"))
    assert "naughty" in SOURCES
    found = tmp_path / "files"
    found.mkdir()
    return found


def test_a_process_that_fails_is_replaced(folder: Path) -> None:
    done: list[str] = []
    for number, does in enumerate(
        ["is good", "dies", "is good", "eats", "is good", "writes", "lies", "raises", "prints", "dies later", "is good"]
    ):
        (folder / f"{number:02}.naughty").write_text(does)
    source = Source.find(folder, skip_bad=True)
    done = [document["text"].partition(" ")[2] for document in source.documents()]
    assert done == ["is good", "is good", "is good", "prints", "dies later", "is good"]
    reasons = [error.problem for error in source.skipped.errors]
    assert [reason.partition("(")[0].strip() for reason in reasons] == [
        "this file made its reader crash",
        "reading this file takes more than 1,024 MB of memory",
        "the file is damaged or not what its name says",
        "its reader gave something else than a text",
        "the file is damaged or not what its name says",
    ]
    assert "SIGABRT" in reasons[0]
    assert "File too large" in reasons[2]
    assert (folder / "05.naughty.written").read_bytes() == b""
    pids = [int(d["text"].split()[0]) for d in source.documents()]
    assert len(set(pids)) < len(pids)  # one process reads many files
    for pid in set(pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)  # and ends with the reading


def test_a_process_that_takes_too_long_is_killed(folder: Path) -> None:
    (folder / "a.naughty").write_text("hangs")
    (folder / "b.naughty").write_text("is good")
    limits = Limits(seconds=1)
    with ConfinedReader() as reader:
        assert len(list(reader.read("naughty", InputFile.of(folder / "b.naughty"), limits))) == 1
        with pytest.raises(InputError, match=r"reading this file takes more than 1 seconds"):
            list(reader.read("naughty", InputFile.of(folder / "a.naughty"), limits))
        (again,) = reader.read("naughty", InputFile.of(folder / "b.naughty"), limits)
        pid = int(again.text.split()[0])
        left = reader.read("naughty", InputFile.of(folder / "b.naughty"), limits)
        next(left)
        left.close()  # a reading that is not finished ends its process

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(is_gone)


def test_waiting_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"monotonic": 100.0, "waited": 5.0}
    monkeypatch.setattr(confined.time, "monotonic", lambda: now["monotonic"])
    monkeypatch.setattr(confined, "_waited", lambda _: now["waited"])
    clock = confined._Clock(1, 60)
    for passed, waited, over in ((60, 0, False), (61, 0, True), (300, 241, False), (302, 241, True), (601, 600, True)):
        now.update(monotonic=100.0 + passed, waited=5.0 + waited)
        assert clock.is_over() == over, passed


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_the_system_tells_how_long_a_process_waited() -> None:
    assert confined._waited(os.getpid()) > 0
    assert confined._waited(2**22 + 1) == 0


def test_mutated_files(tmp_path: Path) -> None:
    outcomes = hostile_files.run(2, 3, tmp_path)
    assert outcomes.total() == 2 * len(made.examples())


def test_bombs(tmp_path: Path) -> None:
    slow = {"flate.pdf", "large.pdf", "parts.eml", "brackets.pdf", "zeros.docx", "zeros2.docx"}
    with ConfinedReader() as reader:
        outcomes = {
            name: hostile_files.check(name, data, tmp_path, reader) for name, data in hostile_files.bombs(without=slow)
        }
    assert outcomes.pop("remote.docx") == outcomes.pop("header.eml") == "read"
    assert "read" not in outcomes.values()


def test_xml_declares_nothing() -> None:
    assert parse_xml('<!DOCTYPE p PUBLIC "x" "http://127.0.0.1:9/"><p>a<b x="1"/>&amp;é</p>'.encode()).text == "a&é"
    for source, message in (
        (b'<!DOCTYPE p [<!ENTITY a "x">]><p>&a;</p>', "declarations"),
        (b"<p>" * 300 + b"</p>" * 300, "nested too deeply"),
        (b"<p>", "damaged"),
        (b"", "damaged"),
        (b'<?xml version="1.0" encoding="x-none"?><p/>', "damaged|cannot be read"),
    ):
        with pytest.raises(Refusal, match=message):
            parse_xml(source)


def test_a_plugin_reads_its_own_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("VIZSLA_PLUGINS", str(Path(__file__).parent / "extensions" / "recipe_source.py"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.recipe").write_text("Dog biscuits\n* What you need\nflour\n* What you do\nbake")
    (document,) = Source.find(tmp_path / "files").documents()
    assert (document["title"], document["steps"]) == ("Dog biscuits", 4)
    assert [entry[1:] for entry in document["outline"]["headings"]] == [[1, "What you need"], [1, "What you do"]]
    assert "Recipes of a kitchen." in cli("models", "--kind", "source")[1]
    assert cli("index", tmp_path / "files", "-o", tmp_path / "i")[0] == 0
