"""A full buffer is written in the background: while documents are added, and with the same result."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index
from vizsla.errors import CollectionError, InputError
from vizsla.index import Writer, verify
from vizsla.index.storage import arrays
from vizsla.index.writing import buffer
from waiting import LIMIT, eventually

SMALL = 1 << 20
"""The memory of a writer that writes a segment after some hundred documents."""


def records(first: int, end: int, word: str = "dog") -> list[dict[str, Any]]:
    return [{"id": f"d{i}", "text": f"{word} common w{i} {'x ' * (i % 5)}"} for i in range(first, end)]


def found(index: Index) -> dict[str, list[str]]:
    return {word: sorted(index.search(word, 10_000).ids) for word in ("dog", "cat", "common", "w7", "w250")}


def changes(writer: Writer, step: Callable[[int], None]) -> None:
    """Documents that are added, replaced, deleted, and a call that is undone; `step` is called after each."""
    writer.add(records(0, 600))
    step(1)
    writer.add(records(100, 300, "cat"))
    step(2)
    assert writer.delete(["d7", "d550", "nobody"]) == 2
    with pytest.raises(InputError):
        writer.add([*records(550, 1200, "cat"), {"id": "", "text": "no id"}])
    step(3)
    assert writer.update([{"id": "d250", "text": "common dog w250"}]).documents == 1
    writer.commit()


def test_documents_are_added_while_a_segment_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the segment that is being written are found, replaced, deleted and restored like all others."""
    with Index.create(tmp_path / "plain", memory=1 << 30) as index:
        with index.writer() as writer:
            changes(writer, lambda _: None)
        expected = found(index)
    write, main, gate, begun = buffer.write_rows, threading.get_ident(), threading.Event(), []

    def held(*arguments: Any) -> Any:
        begun.append(threading.get_ident())
        assert gate.wait(LIMIT)
        return write(*arguments)

    monkeypatch.setattr(buffer, "write_rows", held)  # which a commit calls by another name
    with Index.create(tmp_path / "held", memory=1 << 30) as index:
        with index.writer() as writer:
            writer.set_note("begun", value=True)
            transaction = writer._transaction
            assert transaction is not None

            def step(number: int) -> None:
                if number == 1:
                    transaction._flush()
                    eventually(lambda: bool(begun))
                if number == 3:
                    assert transaction._unfinished is not None
                    gate.set()

            changes(writer, step)
        assert found(index) == expected
    assert begun
    assert main not in begun
    assert verify(tmp_path / "held") == []


CALLS: dict[str, Callable[[Writer], object]] = {
    "add": lambda writer: writer.add(records(5000, 5001)),
    "delete": lambda writer: writer.delete("d1"),
    "update": lambda writer: writer.update([{"id": "d1", "text": "cat"}]),
    "set_note": lambda writer: writer.set_note("a", 1),
    "commit": lambda writer: writer.commit(),
    "compact": lambda writer: writer.compact(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_failure_in_the_background_is_told_by_the_next_call(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, main = arrays.write_array, threading.get_ident()

    def failing(*arguments: Any) -> Any:
        if threading.get_ident() != main:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    with Index.create(tmp_path / "i", memory=1 << 30) as index:
        index.add(records(0, 50))
        index.commit()
        before = found(index)
        monkeypatch.setattr(arrays, "write_array", failing)
        with index.writer() as writer:
            writer.add(records(50, 400))
            transaction = writer._transaction
            assert transaction is not None
            transaction._flush()
            unfinished = transaction._unfinished
            assert unfinished is not None
            eventually(lambda: unfinished[1].has_failed)
            with pytest.raises(CollectionError, match=r"cannot be written to \(No space left on device\); the last"):
                CALLS[name](writer)
            with pytest.raises(CollectionError, match=r"discarded; call rollback\(\)"):
                writer.commit()
            assert found(index) == before
            monkeypatch.setattr(arrays, "write_array", write)
            writer.rollback()
            writer.add(records(50, 60))
            writer.commit()
        assert len(index) == 60
    assert verify(tmp_path / "i") == []


def test_segments_end_where_options_and_documents_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to write them."""
    sizes = []
    write = buffer.write_rows

    def waiting(*arguments: Any) -> Any:
        threading.Event().wait(0.05)
        return write(*arguments)

    for slowly in (False, True):
        monkeypatch.setattr(buffer, "write_rows", waiting if slowly else write)
        path = tmp_path / str(slowly)
        with Index.create(path, memory=SMALL) as index, index.writer() as writer:
            for first in range(0, 900, 90):
                writer.add(records(first, first + 90))
            writer.commit()
        with sqlite3.connect(path / "index.db") as db:
            statistics = [json.loads(text) for (text,) in db.execute("SELECT statistics FROM segments")]
        sizes.append(sorted(segment["living"] for segment in statistics))
    assert len(sizes[0]) > 1
    assert sizes[0] == sizes[1]
