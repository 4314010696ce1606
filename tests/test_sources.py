"""What comes in from outside: ids, values, files and pipes, and everything a reader must refuse in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.datasets import Document, Splitter, document_id
from vizsla.errors import VizslaError, kind_of


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


def test_passages_from_a_number() -> None:
    assert Splitter.of(100) == Splitter.of(np.int32(100)) == Splitter.of(Splitter(100)) == Splitter(100, 0)
    for bad in ("100", 1.5, True, None, 0, -1):
        with pytest.raises(VizslaError, match="passage"):
            Splitter.of(bad)


def test_a_text_is_called_a_text() -> None:
    assert kind_of("seven dogs") == "the text 'seven dogs'"
    assert kind_of("x" * 100).endswith("…'")
    assert kind_of(10**5000) == "a number of very many digits"
    assert kind_of("") == "an empty text"
    with pytest.raises(VizslaError, match="not the text 'seven dogs'"):
        Document.from_record("seven dogs")
