"""Values and fields that come in from outside: what is taken, and under which name."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from made_documents import contents, write
from vizsla import Document, Index, Splitter, VizslaError, read_documents
from vizsla.datasets import FieldNames
from vizsla.datasets.values import plain_content
from vizsla.errors import InputError, kind_of


def test_passages_from_a_number() -> None:
    assert Splitter.of(100) == Splitter.of(np.int32(100)) == Splitter.of(Splitter(100)) == Splitter(100, 0)
    for bad in ("100", 1.5, True, None, 0, -1):
        with pytest.raises(VizslaError, match="passage"):
            Splitter.of(bad)


def test_a_text_is_called_a_text(tmp_path: Path) -> None:
    assert kind_of("seven dogs") == "the text 'seven dogs'"
    assert kind_of("x" * 100).endswith("…'")
    assert kind_of(10**5000) == "a number of very many digits"
    assert kind_of("") == "an empty text"
    with Index.create(tmp_path / "i") as index:
        for bad, message in (
            (["seven dogs"], "expected a JSON object with an id and a text, not the text 'seven dogs'"),
            ("x.jsonl", r"for a file, read_documents\('x.jsonl'\)"),
            (Path("x.jsonl"), r"for a file, read_documents\('x.jsonl'\)"),
            ({"id": "1", "text": "x"}, "not as a single one"),
            (5, "not as a single one"),
        ):
            with pytest.raises(VizslaError, match=message):
                index.add(bad)  # type: ignore[arg-type]


class NaTType(dt.datetime):
    """As pandas' NaT: a datetime that is none."""


class Timestamp(dt.datetime):
    """As pandas': a datetime, and more."""


def test_values_of_numpy_and_pandas_are_taken(tmp_path: Path) -> None:
    record = {
        "id": np.int64(2), "text": "a dog", "title": float("nan"), "n": np.int64(3), "x": np.float32(0.5),
        "yes": np.bool_(True), "none": np.nan, "nat": NaTType(2000, 1, 1), "npnat": np.datetime64("NaT"),
        "day": dt.date(2024, 2, 29), "when": Timestamp(2024, 2, 29, 12), "np": np.datetime64("2024-02-29"),
        "zone": dt.datetime(2024, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "price": Decimal("7.50"), "whole": Decimal("7.00"), "tags": np.array(["a", "b"]),
        "vector": {"a": np.float64(1)}, "null": None,
    }  # fmt: skip
    expected = {
        "text": "a dog", "n": 3, "x": 0.5, "yes": True, "day": "2024-02-29", "when": "2024-02-29T12:00:00",
        "np": "2024-02-29", "zone": "2024-02-28T23:00:00+00:00", "price": 7.5, "whole": 7, "tags": ["a", "b"],
        "vector": {"a": 1.0}, "null": None,
    }  # fmt: skip
    with Index.create(tmp_path / "i") as index:
        index.add([record, Document("3", {"text": "a cat", "n": np.int64(4)})])
        index.commit()
        stored = {d.id: dict(d.content) for d in index.documents()}
        assert stored == {"2": expected, "3": {"text": "a cat", "n": 4}}
        assert [type(v) for v in stored["2"].values()] == [type(v) for v in expected.values()]
        assert [hit.id for hit in index.search("dog cat", filter='n = 3 and when > "2024-02"')] == ["2"]
        nested: list[Any] = []
        nested.append(nested)
        with pytest.raises(VizslaError, match="nested too deeply"):
            index.add([{"id": "4", "text": "x", "nested": nested}])


@given(st.lists(st.datetimes(timezones=st.none()), min_size=2, max_size=5))
def test_dates_as_texts_compare_as_dates(values: list[dt.datetime]) -> None:
    texts = [plain_content({"at": v.replace(tzinfo=dt.UTC)})["at"] for v in values]
    assert [v for _, v in sorted(zip(texts, values, strict=True))] == sorted(values)


# Fields


RECORD = {"id": "1", "title": "Dogs", "abstract": "Barking.", "body": "A vizsla points."}


@pytest.mark.parametrize("fields", [["title", "abstract", "body"], ["body"]])
def test_renaming_hides_no_field_a_model_reads(tmp_path: Path, fields: list[str], cli: Cli) -> None:
    corpus = write(tmp_path / "x.jsonl", json.dumps(RECORD) + "\n")
    table = write(tmp_path / "x.csv", ",".join(RECORD) + "\n" + ",".join(RECORD.values()) + "\n")
    model = f"bm25(fields={'/'.join(fields)})"
    for n, documents in enumerate(([RECORD], read_documents(corpus), read_documents(table))):
        with Index.create(tmp_path / f"{n}.index", model) as index:
            index.add(documents)
            index.commit()
            assert [h.id for h in index.search("vizsla")] == ["1"]
            assert [h.id for h in index.search("barking")] == (["1"] if "abstract" in fields else [])
            assert index.get("1").get("body") == "A vizsla points."  # type: ignore[union-attr]
    for n, (source, workers) in enumerate(((corpus, 1), (corpus, 2), (table, 1))[: 3 if fields == ["body"] else 1]):
        arguments = ("index", source, "-o", tmp_path / f"{n}.cli", "--model", model, "--workers", workers)
        code, _, said = cli(*arguments)
        assert (code, "body" in said) == (0, False), said
        assert '"id": "1"' in cli("search", tmp_path / f"{n}.cli", "vizsla", "--json")[1]


def test_renaming_otherwise() -> None:
    taken = Document.from_record({"id": "1", "body": "b", "x": 1}).with_fields(("title", "text"))
    assert list(taken.content.items()) == [("text", "b"), ("x", 1)]
    named = Document.from_record({"id": "1", "text": "t", "body": "b"}, names=FieldNames(title="text"))
    assert named.content == {"title": "t", "text": "b"}  # the text is not lost to the title's name
    assert Document.from_record({"docno": "1", "text": "t"}).with_fields(("docno", "text"))["docno"] == "1"
    passages = list(Splitter(1).passages(Document.from_record({"id": "1", "body": "a b"})))
    assert [p.with_fields(["body"])["body"] for p in passages] == ["a", "b"]


def test_field_errors_name_the_fields_there_are(tmp_path: Path, cli: Cli) -> None:
    for record, options, message in (
        ({"id": "1", "text": "x"}, ("--id-field", "key"), "expected a field 'key' among its fields 'id', 'text'"),
        ({"id": "1", "inhalt": "x"}, (), "'text' or 'contents' among its fields 'inhalt'; name another with --text-f"),
    ):
        corpus = write(tmp_path / "x.jsonl", json.dumps(record) + "\n")
        code, _, said = cli("index", corpus, "-o", tmp_path / "i", *options)
        assert (code, message in said) == (2, True), said
        assert "-field" in said
    table = write(tmp_path / "x.csv", "id,text,name\n1,x,y\n")
    with pytest.raises(
        InputError,
        match=r"the column 'titel' \(--title-field, in Python FieldNames\(title=...\)\) does not exist",
    ):
        contents(table, names=FieldNames(title="titel"))
