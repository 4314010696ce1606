"""Ids: any text is one and no other, a number is its digits, and what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import found
from vizsla import Document, Index, VizslaError
from vizsla.datasets import document_id
from vizsla.index import verify


def test_one_rule_for_ids() -> None:
    assert [document_id(v) for v in ("007", 7, np.int64(7), np.str_("a"), "a\0b")] == ["007", "7", "7", "a", "a\0b"]
    assert type(document_id(np.str_("a"))) is str
    for bad, word in (
        (None, "null"), (True, "true or false"), (1.5, "number 1.5"), ("", "empty text"), (["a"], "a list"),
        ("\ud800", "surrogate"), (10**5000, "digits"), (np.bool_(True), "bool"), (b"a", "bytes"),
    ):  # fmt: skip
        with pytest.raises(VizslaError, match=f"id.*{word}"):
            document_id(bad)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none()))
def test_an_id_is_stored_as_text_or_refused(value: object) -> None:
    try:
        stored = document_id(value)
    except VizslaError:
        assert not isinstance(value, int)
        assert not isinstance(value, str) or not value
    else:
        assert (stored, stored.encode().decode()) == (str(value), stored)


HOSTILE_IDS = [
    "a",
    "a\0b",
    "a\0",
    "\0",
    "a\0zzz",
    "2",
    "#",
    "a#0",
    "a#",
    "%",
    "_",
    "x" * 5000,
    "é",
    "e\u0301",
    "'",
    '"',
]


@pytest.mark.parametrize("passages", [None, 2])
def test_any_id_is_itself_and_no_other(tmp_path: Path, passages: int | None) -> None:
    """Ids with a NUL in them once hit the documents whose ids stop there."""
    with Index.create(tmp_path / "i", passages=passages) as index:
        for turn in range(2):
            assert index.add({"id": i, "text": f"common a b c d t{turn}"} for i in HOSTILE_IDS).replaced == (
                len(HOSTILE_IDS) * turn
            )
            index.commit()
        assert {h.id for h in index.search("common", 99)} == set(HOSTILE_IDS)
        for i in HOSTILE_IDS:
            got = index.get(i)
            assert got is not None
            assert got.id == i
            assert index.explain("common", i).score > 0
        assert index.delete(["a\0zzz", "a\0y", "nobody"]) == 1
        index.commit()
        assert {h.id for h in index.search("common", 99)} == {*HOSTILE_IDS} - {"a\0zzz"}
    assert verify(tmp_path / "i") == []


def test_a_number_is_the_id_of_its_digits(folder: Path) -> None:
    with Index.open(folder) as index:
        index.add([{"id": 12, "text": "common dog"}, {"id": np.int64(13), "text": "common cat"}])
        index.commit()
        got = index.get(12)
        assert got is not None
        assert got.id == "12"
        assert index.explain("dog", 12) == index.explain("dog", "12")
        assert index.add([Document(np.int64(12), {"text": "common dog"})]).replaced == 1
        assert index.get_many([12, "13"]).keys() == index.get_many(["12", 13]).keys() == {"12", "13"}
        assert index.delete(12) == 1
        assert index.delete([np.int64(13), 2]) == 2
        index.commit()
    assert found(folder) == {"0", "1", "3", "4"}


@pytest.mark.parametrize("wrong", [None, 1.5, True, b"1", "", "\ud800", ["1"]])
def test_what_is_no_id_is_refused_everywhere(folder: Path, wrong: Any) -> None:
    with Index.open(folder) as index:
        for call in (index.get, lambda i: index.explain("common", i), lambda i: index.delete([i])):
            with pytest.raises(VizslaError, match="id"):
                call(wrong)
        with pytest.raises(VizslaError, match="id"):
            index.get_many([wrong])
