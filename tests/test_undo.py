"""Calls that fail, and changes that are left behind: nothing of them stays, and nothing else is lost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import found, records
from vizsla import BM25, Index, VizslaError
from vizsla.errors import CollectionError, UncommittedChangesWarning
from vizsla.index import verify


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_a_call_that_fails_adds_nothing_and_loses_nothing(
    folder: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BM25, "batch_size", 3)  # several batches a call; with little memory, a segment each
    with Index.open(folder, memory=memory) as index:
        assert index.add(records(range(5, 20))).documents == 15
        for bad in ({"id": "x"}, {"id": "22", "text": 7}):
            with pytest.raises(VizslaError):
                index.add([*records(range(3, 30), "new"), bad])
        assert index.delete(["4", "25"]) == 1
        assert index.add(records(range(6, 8), "other")).replaced == 2
        index.commit()
        assert {h.id for h in index.search("other")} == {"6", "7"}
        assert index.search("new") == []
    with Index.open(folder) as index:
        assert {d.id for d in index.documents()} == {*map(str, range(20))} - {"4"}
    assert verify(folder) == []


@given(
    calls=st.lists(st.tuples(st.lists(st.integers(0, 12), max_size=8), st.booleans()), max_size=6),
    memory=st.sampled_from([1, 1 << 30]),
    passages=st.sampled_from([None, 2]),
    skips=st.booleans(),
)
def test_any_calls_of_which_some_fail(
    calls: list[tuple[list[int], bool]],
    memory: int,
    passages: int | None,
    skips: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Against a dict: of an id twice the last stays, and a call with a bad document at its end changes nothing."""
    folder = tmp_path_factory.mktemp("calls") / "i"
    expected: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch, Index.create(folder, memory=memory, passages=passages) as index:
        patch.setattr(BM25, "batch_size", 2)
        for turn, (ids, bad) in enumerate(calls):
            texts = [(str(i), f"common t{turn} n{number}") for number, i in enumerate(ids)]
            documents: list[dict[str, Any]] = [{"id": i, "text": text} for i, text in texts]
            if bad and skips:
                added = index.add([*documents, {"id": "bad"}, 7], skip_bad=True)
                assert (added.skipped.count, added.repeated) == (2, len(ids) - len(set(ids)))
            elif bad:
                with pytest.raises(VizslaError):
                    index.add([*documents, {"id": "bad"}])
                continue
            else:
                added = index.add(documents)
            assert added.documents == len(set(ids))
            assert added.replaced == len(expected.keys() & dict(texts))
            expected |= dict(texts)
        index.commit()
        assert {d.id: d["text"] for d in index.documents()} == expected
        assert {h.id for h in index.search("common", 50)} == expected.keys()
    assert verify(folder) == []


def test_an_interrupted_call_keeps_the_earlier_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "batch_size", 2)

    def documents() -> Iterator[dict[str, Any]]:
        yield from records(range(20, 30))
        raise KeyboardInterrupt

    with Index.open(folder) as index:
        index.add(records(range(5, 8)))
        with pytest.raises(KeyboardInterrupt):
            index.add(documents())
        index.commit()
    assert found(folder) == {*map(str, range(8))}


def test_leaving_changes_behind_warns(folder: Path) -> None:
    with pytest.warns(UncommittedChangesWarning, match="changes that were not committed"), Index.open(folder) as index:
        index.delete(["1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Index.open(folder) as index:
            index.delete(["nobody"])
        with Index.open(folder) as index:
            index.delete(["1"])
            index.rollback()
        with suppress(ZeroDivisionError), Index.open(folder) as index:
            index.delete(["1"])
            raise ZeroDivisionError
    assert len(found(folder)) == 5


def test_what_a_full_disk_has_taken_is_not_committed_as_if_nothing_were(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(folder, memory=1) as index:
        monkeypatch.setattr(BM25, "batch_size", 2)
        index.add(records(range(5, 6)))
        with monkeypatch.context() as patch:
            patch.setattr("vizsla.index.storage.segment_files.write_segment", fails_for_want_of_room)
            with pytest.raises(CollectionError, match="No space left"):
                index.add(records(range(20, 30)))
        for call in (index.commit, lambda: index.add(records(range(3))), index.compact):
            with pytest.raises(CollectionError, match="all changes since the last commit were discarded"):
                call()
        index.rollback()
        index.add(records(range(6, 8)))
        index.commit()
    assert found(folder) == {*map(str, range(5)), "6", "7"}


def fails_for_want_of_room(*_: object) -> None:
    raise CollectionError("No space left on device")
