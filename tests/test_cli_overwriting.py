"""Indexes that the command line replaces: only when the new one is there, and nothing else is touched."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

import vizsla
from conftest import Cli


def test_overwriting_replaces_only_when_the_new_index_is_there(cli: Cli, index: Path, corpus: Path) -> None:
    def found() -> list[str]:
        return [r["id"] for r in json.loads(cli("search", index, "vizsla", "--json")[1])["results"]]

    before = found()
    (bad := corpus.with_name("bad.jsonl")).write_text('{"id": "1"')
    for arguments in [(corpus, bad), (corpus, "--model", "bm52"), ("missing.jsonl",)]:
        assert cli("index", *arguments, "-o", index, "--overwrite")[0] == 2
        assert found() == before
    corpus.write_text('{"id": "new", "text": "vizsla"}\n')
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert found() == ["new"]
    assert sorted(p.name for p in index.parent.iterdir() if p.name.startswith(".")) == []


def test_what_is_no_index_is_never_touched(cli: Cli, index: Path, corpus: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    sqlite3.connect(foreign / "index.db").execute("CREATE TABLE x (y)").connection.close()
    (index / "NOTES.txt").write_text("mine")
    for folder in (foreign, index):
        code, _, err = cli("index", corpus, "-o", folder, "--overwrite")
        assert code == 2
        assert "holds something that is not an index" in err
    assert (foreign / "index.db").exists()
    assert (index / "NOTES.txt").read_text() == "mine"


def test_interrupting_a_build_leaves_nothing(
    cli: Cli, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vizsla.index.writing.writer.Writer.commit", interrupted)
    code, _, err = cli("index", corpus, "-o", tmp_path / "new")
    assert code == 130
    assert "interrupted" in err
    assert not (tmp_path / "new").exists()


def test_a_build_that_was_killed_is_swept_by_the_next(cli: Cli, index: Path, corpus: Path) -> None:
    left = index.with_name(f".{index.name}.new-12345678")
    vizsla.Index.create(left).close()
    (left / "building.lock").touch()
    begun = index.with_name(f".{index.name}.new-abcdef01")  # a build that has not come to its mark yet
    begun.mkdir()
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert not left.exists()
    os.utime(begun, (0, 0))
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert not begun.exists()


def test_an_index_whose_replacement_was_stopped_gets_its_name_back(cli: Cli, index: Path) -> None:
    index.rename(index.with_name(f".{index.name}.old-12345678"))
    code, out, _ = cli("search", index, "vizsla")
    assert code == 0
    assert "d3" in out
