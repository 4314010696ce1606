"""Indexes that are opened while others replace them: there is always one to open."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index
from vizsla.errors import CollectionError
from vizsla.index import replace_index, verify
from vizsla.index.storage import database, folder
from vizsla.index.storage.folder import exchange


def build(place: Path, word: str) -> None:
    with replace_index(place, overwrite=True) as building, Index.create(building) as index:
        index.add([{"id": word, "text": "common"}])
        index.commit()


def found(place: Path) -> str:
    with Index.open(place) as index:
        return index.search("common")[0].id


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that cannot exchange names."""
    monkeypatch.setattr(folder, "exchange", lambda *_: False)


def hidden(place: Path) -> list[str]:
    return [file.name for file in place.parent.iterdir() if file.name.startswith(".")]


def test_the_name_of_an_index_is_never_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each renaming of a replacement an index can be opened; no other moment is there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    if not exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this system, or its file system, cannot exchange names")
    place = tmp_path / "i"
    build(place, "old")
    seen, rename = [], Path.rename

    def watched(self: Path, target: Path) -> Path:
        seen.append(found(place))
        renamed = rename(self, target)
        seen.append(found(place))
        return renamed

    monkeypatch.setattr(Path, "rename", watched)
    build(place, "new")
    assert set(seen) == {"new"}  # the names were exchanged before; only what was replaced is renamed, to be removed
    assert hidden(place) == []
    assert verify(place) == []


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_replacement_leaves_one_index(can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange:
        without_exchange(monkeypatch)
    place = tmp_path / "i"
    for word in ("first", "second", "third"):
        build(place, word)
        assert found(place) == word
        assert hidden(place) == []


def test_opening_waits_between_two_renamings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has looked for the folder when the old index loses its name, and tries again when the new one has it."""
    without_exchange(monkeypatch)
    place = tmp_path / "i"
    build(place, "old")
    began, is_missing, was_missed = threading.Event(), threading.Event(), threading.Event()
    connect, rename = database.connect, Path.rename

    def late(path: Path, **options: Any) -> Any:
        if path == place and not began.is_set():
            began.set()
            assert is_missing.wait(60)
        try:
            return connect(path, **options)
        except CollectionError:
            was_missed.set()
            raise

    def slow(self: Path, target: Path) -> Path:
        renamed = rename(self, target)
        if self == place:  # the old index has lost its name
            is_missing.set()
            assert was_missed.wait(60)
        return renamed

    results: list[str] = []
    reader = threading.Thread(target=lambda: results.append(found(place)))
    with replace_index(place, overwrite=True) as building, Index.create(building) as index:
        index.add([{"id": "new", "text": "common"}])
        index.commit()
        index.close()
        monkeypatch.setattr(database, "connect", late)
        monkeypatch.setattr(Path, "rename", slow)
        reader.start()
        assert began.wait(60)
    reader.join(60)
    assert results == ["new"]
    assert was_missed.is_set()


def test_a_folder_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="this folder does not exist"):
        Index.open(tmp_path / "i")
