"""What comes in from outside: ids, values, files and pipes, and everything a reader must refuse in one sentence."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import Index
from vizsla.datasets import (
    Document,
    FieldNames,
    Origin,
    Source,
    Splitter,
    document_id,
    parse_types,
    read_documents,
    read_queries,
    read_questions,
)
from vizsla.datasets.files import InputFile
from vizsla.datasets.html import html_text, unescaped
from vizsla.datasets.matrix import read_matrix
from vizsla.datasets.texts import _trec_document, front_matter, markdown_text
from vizsla.datasets.values import plain_content
from vizsla.errors import InputError, VizslaError, kind_of
from vizsla.runs import Qrels, Run
from vizsla.runs.packed import read_packed, write_packed


def contents(source: Path, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(d.id, dict(d.content)) for d in Source.find(source, **options).documents()]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


# Ids and values


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
        (
            {"key": "1", "text": "x"},
            (),
            "no id; expected a field '_id' or 'id' among its fields 'key', 'text'; name it",
        ),
        ({"id": "1", "text": "x"}, ("--id-field", "key"), "expected a field 'key' among its fields 'id', 'text'"),
        ({"id": "1", "inhalt": "x"}, (), "'text' or 'contents' among its fields 'inhalt'; name another with --text-f"),
    ):
        corpus = write(tmp_path / "x.jsonl", json.dumps(record) + "\n")
        code, _, said = cli("index", corpus, "-o", tmp_path / "i", *options)
        assert (code, message in said) == (2, True), said
        assert "-field" in said
    table = write(tmp_path / "x.csv", "id,text,name\n1,x,y\n")
    with pytest.raises(
        InputError, match=r"the column 'titel' \(--title-field\) does not exist; the columns are 'id', 'text', 'name'"
    ):
        contents(table, names=FieldNames(title="titel"))


# Tables


TABLE = """id,text,year,price,draft,day,code,note
01,a dog,1999,7.5,true,2024-02-29,007,
02,a cat,2001,10,FALSE,2023-12-31 10:30,8,x
03,"a, fish",,,,,,
"""


def test_columns_have_types(tmp_path: Path, cli: Cli) -> None:
    table = write(tmp_path / "x.csv", TABLE)
    assert contents(table) == [
        ("01", {"text": "a dog", "year": 1999, "price": 7.5, "draft": True, "day": "2024-02-29", "code": "007"}),
        ("02", {"text": "a cat", "year": 2001, "price": 10.0, "draft": False, "day": "2023-12-31T10:30:00",
                "code": "8", "note": "x"}),
        ("03", {"text": "a, fish"}),
    ]  # fmt: skip
    code, _, said = cli("index", table, "-o", tmp_path / "i")
    types = "columns that are not texts: 'year' whole numbers; 'price' numbers; 'draft' true or false; 'day' dates"
    assert (code, said.count(types)) == (0, 1), said
    for condition, found in (
        ("year > 2000", "02"),
        ("price < 8", "01"),
        ("draft = true", "01"),
        ('day > "2024"', "01"),
    ):
        assert json.loads(cli("search", tmp_path / "i", "dog cat", "--json", "--filter", condition)[1])["results"][0][
            "id"
        ] == (found), condition
    code, _, said = cli("index", table, "-o", tmp_path / "j", "--types", "year=text,code=text")
    assert "'year'" not in said
    assert json.loads(cli("search", tmp_path / "j", "dog", "--json")[1])["results"][0]["document"]["year"] == "1999"


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"note": "int"}, r"x\.csv:3: 'x' in the column 'note' is not of type int; choose another with --types"),
        ({"text": "int"}, r"x\.csv: the column 'text' is an id or a text"),
        ({"yaer": "int"}, r"x\.csv: the column 'yaer' does not exist; the columns are 'code', 'day', 'draft'"),
        ({"year": "integer"}, r"unknown column type 'integer'; did you mean 'int'"),
    ],
)
def test_types_that_do_not_fit(tmp_path: Path, types: dict[str, str], message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        contents(write(tmp_path / "x.csv", TABLE), types=types)


def test_types_as_text() -> None:
    assert parse_types("a=int, b = text") == {"a": "int", "b": "text"}
    for bad in ("a", "=int", "", "a=int,"):
        with pytest.raises(VizslaError, match="is not a type of a column"):
            parse_types(bad)


CELLS = st.sampled_from(
    ["", "0", "7", "007", "-3", "1.5", "1e3", "true", "False", "2024-02-29", "2024-02-30", "2024-01-01T10:00Z", " 5 ",
     "2024-01-01 10:00", "x", "１", "1e999", "nan", "inf", "1_000", "999999999999999999", "9999999999999999999"]
)  # fmt: skip


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6))
def test_a_type_holds_for_all_rows_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.mktemp("tables") / "x.tsv"
    write(file, "id\ttext\ta\tb\n" + "".join(f"{n}\tx\t{a}\t{b}\n" for n, (a, b) in enumerate(rows)))
    found = contents(file)
    for place, name in enumerate("ab"):
        cells = [row[place] for row in rows]
        values = [content.get(name) for _, content in found]
        assert len({type(v) for v in values if v is not None}) <= 1
        for cell, value in zip(cells, values, strict=True):
            if value is None:
                assert not cell.strip()
            elif isinstance(value, bool):
                assert str(value).lower() == cell.lower()
            elif isinstance(value, int):
                assert str(value) == cell.strip()
            elif isinstance(value, float):
                assert value == float(cell)
            else:
                assert value == cell or dt.datetime.fromisoformat(value)


def test_what_separates_columns(tmp_path: Path, cli: Cli) -> None:
    table = write(tmp_path / "x.csv", 'id;text;price\n1;"a; dog";7,5\n')
    assert contents(table) == [("1", {"text": "a; dog", "price": "7,5"})]
    code, _, said = cli("index", table, "-o", tmp_path / "i")
    assert (code, "x.csv: taking semicolons as separators" in said) == (0, True)
    odd = write(tmp_path / "y.csv", "id~text\n1~a, dog\n")
    assert contents(odd, delimiter="~") == [("1", {"text": "a, dog"})]
    with pytest.raises(InputError, match=r"none of the columns 'id~text' is the id.* --delimiter"):
        contents(odd)
    with pytest.raises(VizslaError, match="a delimiter is one character"):
        contents(odd, delimiter="ab")
    assert cli("index", odd, "-o", tmp_path / "j", "--delimiter", "~")[0] == 0


def test_line_ends_of_all_kinds(tmp_path: Path) -> None:
    rows = [("1", {"text": "a dog", "n": 1}), ("2", {"text": "two\nlines", "n": 2})]
    for end in ("\n", "\r\n", "\r"):
        table = write(tmp_path / "x.csv", end.join(["id,text,n", "1,a dog,1", '2,"two\nlines",2', ""]))
        assert contents(table) == rows


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.csv:1: the column 'text' appears a second time"):
        contents(write(tmp_path / "x.csv", "id,text,text\n1,a,b\n"))


def test_reading_tables_changes_nothing_for_others(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    tables = [write(tmp_path / f"{n}.csv", f'id,text\n1,"{long}"\n2,x\n') for n in range(2)]
    errors: list[BaseException] = []

    def read(table: Path) -> None:
        try:
            for _ in range(20):
                assert [len(c["text"]) for _, c in contents(table)] == [len(long), 1]
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=read, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert csv.field_size_limit() == before


def test_parquet_without_pyarrow_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    write(tmp_path / "x.parquet", "anything")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, out, said = cli("index", tmp_path / "x.parquet", "-o", tmp_path / "i")
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert "Parquet files need pyarrow; run 'pip install pyarrow'" in said


# Pipes and folders


LINES = "".join(json.dumps({"id": str(n), "text": f"dog {n}"}) + "\n" for n in range(5))


def test_pipes(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe behaves as /dev/stdin and process substitutions do."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spooled"))
    (tmp_path / "spooled").mkdir()
    table = "id,text,year\n1,a dog,1999\n2,a cat,2001\n"
    for n, (content, format) in enumerate(
        ((LINES.encode(), "jsonl"), (gzip.compress(LINES.encode()), "jsonl"), (table.encode(), "csv"))
    ):
        os.mkfifo(tmp_path / f"{n}.pipe")
        writer = threading.Thread(target=(tmp_path / f"{n}.pipe").write_bytes, args=(content,))
        writer.start()
        code, _, said = cli("index", tmp_path / f"{n}.pipe", "--format", format, "-o", tmp_path / f"{n}.index")
        writer.join()
        assert (code, ("2 documents" if format == "csv" else "5 documents") in said) == (0, True), said
    assert json.loads(cli("search", tmp_path / "2.index", "dog", "--filter", "year < 2000", "--json")[1])["results"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    assert [d.id for d in read_documents("-", format="jsonl")] == list("01234")
    assert list((tmp_path / "spooled").iterdir()) == []
    for source, message in (("-", "name its format, as in --format jsonl"), ("/dev/zero", "this is a device")):
        with pytest.raises(InputError, match=message):
            Source.find(source, None if source == "-" else "jsonl")


def test_standard_input_is_read(tmp_path: Path) -> None:
    for n, source in enumerate(("-", "/dev/stdin")):
        command = [sys.executable, "-m", "vizsla", "index", source, "--format", "jsonl", "-o", str(tmp_path / str(n))]
        done = subprocess.run(command, input=LINES, capture_output=True, text=True, check=False)
        assert (done.returncode, "5 documents" in done.stderr) == (0, True), done.stderr


def test_an_empty_source_is_an_error_unless_allowed(tmp_path: Path, cli: Cli) -> None:
    empty, header = write(tmp_path / "x.jsonl", "\n\n"), write(tmp_path / "x.csv", "id,text\n")
    for source in (empty, header, write(tmp_path / "x.trec", "\n"), write(tmp_path / "y.json", "[]")):
        code, _, said = cli("index", source, "-o", tmp_path / "i")
        assert (code, f"{source.name}: this source has no documents; --allow-empty" in said) == (2, True), said
    with pytest.raises(InputError, match="this source has no documents"):
        list(Source.find(empty).raw_lines() or ())
    assert cli("index", empty, header, "-o", tmp_path / "i", "--allow-empty")[0] == 0
    assert cli("add", tmp_path / "i", empty)[0] == 2
    assert cli("add", tmp_path / "i", empty, "--allow-empty")[0] == 0


def test_a_folder_of_tables_and_texts(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "docs"
    write(folder / "a.jsonl", LINES)
    write(folder / "b.csv", "id,text,year,n\nb1,x,1999,1\n")
    write(folder / "sub/c.tsv", "id\ttext\tyear\tn\nc1\tx\tunknown\t2\n")
    write(folder / "d.md", "# Title\nText")
    for name in ("e.pdf", "f.PDF", "g.py", "LICENSE", ".hidden/x.pdf"):
        write(folder / name, "x")
    found = dict(contents(folder))
    assert list(found) == [*"01234", "b1", "d.md", "c1"]
    assert (found["b1"], found["c1"]["n"]) == ({"text": "x", "year": "1999", "n": 1}, 2)  # one type over all tables
    code, _, said = cli("index", folder, "-o", tmp_path / "i")
    assert (code, "skipping files that are not documents: .pdf (2), no ending (1), .py (1)" in said) == (0, True), said
    assert [d for d, _ in contents(folder, format="csv")] == ["b1"]
    with pytest.raises(InputError, match=r"this folder holds no files of \.parquet, \.pq"):
        Source.find(folder, "parquet")


def test_parquet_in_a_folder(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    row = {"id": "1", "text": "x", "day": dt.date(2024, 2, 29), "price": Decimal("7.50"), "raw": b"abc", "no": None}
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
    assert contents(tmp_path) == [("1", {"text": "x", "day": "2024-02-29", "price": 7.5, "raw": "abc"})]


# JSON in other layouts


RECORDS = [{"id": str(n), "text": f'a {"dog" * n} "[{{', "more": [{"n": n}]} for n in range(50)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_json_arrays_and_records_over_several_lines(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vizsla.datasets.records._CHUNK", 64)
    expected = [(r["id"], {"text": r["text"], "more": r["more"]}) for r in RECORDS]
    layouts = [json.dumps(RECORDS), json.dumps(RECORDS, indent=2), " \ufeff"[1:] + json.dumps(RECORDS, indent=1)]
    layouts += ["\n".join(json.dumps(r, indent=2) for r in RECORDS)]
    for layout in layouts:
        file = write(tmp_path / "x.json", layout.replace("\n", end))
        assert contents(file) == expected
        assert Source.find(file).raw_lines() is None
    spread = [d.origin.line for d in Source.find(file).documents() if d.origin]
    assert spread[:3] == [1, 10, 19]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": "1", "text": "x"}', r":1: the array is never closed"),
        ('[{"id": "1", "text": "x"}\n {}]', r":2: expected a comma or the end"),
        ('[\n{"id": "1", "text": "x"},\n]', r":3: expected another record after this comma"),
        ('[{"id": "1", "text": "x"}]\nx', r":2: expected nothing after the array"),
        ('{\n"id": "1",\n"text": }', r":3: this is not JSON \(Expecting value"),
        ('[{"id": "1", "text": "\\ud800"}]', r":1: this line has half a surrogate pair"),
        ('[{"id": "1", "n": ' + "1" * 5000 + "}]", r":1: this is not JSON"),
        ("[[", r":1: this is not JSON"),
        ("[1]", r":1: expected a JSON object with an id and a text, not the number 1"),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=r"x\.json" + message):
        contents(write(tmp_path / "x.json", content))


# Texts


def test_trec_documents_that_share_lines(tmp_path: Path) -> None:
    one = "<DOC><DOCNO>{0}</DOCNO>\n<TITLE>T{0}</TITLE> text {0}\n</DOC>"
    for between in ("", " ", "\n", "junk"):
        file = write(tmp_path / "x.trec", between.join(one.format(n) for n in range(4)))
        assert contents(file) == [(str(n), {"title": f"T{n}", "text": f"text {n}"}) for n in range(4)]
        flat = write(tmp_path / "y.trec", file.read_text().replace("\n", " "))
        assert contents(flat) == contents(file)
    for content, message in (
        ("<DOC><DOCNO>1</DOCNO><DOC>", r":1: a <DOC> starts inside the one of line 1"),
        ("\n</DOC>", r":2: this </DOC> closes nothing"),
        ("<DOC>", r":1: this <DOC> is never closed"),
    ):
        with pytest.raises(InputError, match=message):
            contents(write(tmp_path / "x.trec", content))


def test_front_matter_becomes_fields(tmp_path: Path) -> None:
    matter = '---\ntitle: "Dogs: a life"\n# no comment\nyear: 1999\ndraft: false\nday: 2024-02-29\nid: x\ntext: no\n'
    matter += "tags:\n  - a b\n  - c\nauthor:\n  name: somebody\nempty:\n---\n# Heading\nDogs bark.\n"
    for end in ("\n", "\r\n"):
        (document,) = read_documents(write(tmp_path / "x.md", matter.replace("\n", end)))
        assert document.content == {
            "title": "Dogs: a life", "year": 1999, "draft": False, "day": "2024-02-29", "id": "x",
            "tags": ["a b", "c"], "text": "Heading\nDogs bark.",
        }  # fmt: skip
        assert document.id == "x.md"
    for source in ("---\nno keys\n---\ntext", "---\na: b\nnever closed", "a: b\n---\n", "---"):
        assert front_matter(source) == ({}, source)


PAGES = [
    ("<![foo[ bar ]]>x", ("", "x")),
    ("&#" + "9" * 1_000_000 + ";x", ("", "\ufffdx")),
    ("&#" + "0" * 5000 + "65;", ("", "A")),
    ("<!-- a > b -->x<!--y", ("", "xy")),
    ("a < b and c <d", ("", "a < b and c <d")),
    ("<a title='x>y' href=\"a>b\">z</a>", ("", "z")),
    ("<a title=it's>z</a>", ("", "z")),
    ("<script>if (a</b) x</script >y<style>z", ("", "y")),
    ("<title>a <b> &amp; c</TITLE>x", ("a <b> & c", "x")),
    ("<title>never closed", ("", "never closed")),
    ("<template>a<noscript>b</noscript>c</template>d", ("", "d")),
    ("<?php x ?><!DOCTYPE html>y</>", ("", "y</>")),
    ("<p>a<br/>b<td>c", ("", "a\nbc")),
]


@pytest.mark.parametrize(("source", "expected"), PAGES, ids=range(len(PAGES)))
def test_pages_that_are_odd(source: str, expected: tuple[str, str]) -> None:
    assert html_text(source) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "<!--",
                "-->",
                "</",
                "<p>",
                "<script",
                "</title>",
                "<title>",
                "&#",
                "'",
                '"',
                "=",
                "a",
                "[",
                "]",
                "(",
            ]
        )
    )
)
def test_no_page_stops_the_readers(pieces: list[str]) -> None:
    source = "".join(pieces)
    html_text(source)
    markdown_text(source)
    assert unescaped(source)[:1] == source[:1]


def trec(source: str) -> None:
    """Read as the one line of a TREC file, in memory."""
    with suppress(InputError):
        _trec_document(source, Origin("x", 1))


@pytest.mark.parametrize(
    ("read", "piece", "end"),
    [
        (markdown_text, "[", ""), (markdown_text, "[](", ""), (markdown_text, "[a](b(", ""), (markdown_text, "![", ""),
        (markdown_text, "# a" + " " * 100, "b"), (markdown_text, " ", "# a"), (markdown_text, "#", "\na"),
        (markdown_text, "*", ""), (markdown_text, "1", ""), (markdown_text, "- [ ", ""), (markdown_text, "\n", "x"),
        (markdown_text, "# a ", "b"), (markdown_text, "[]((a)", ""), (front_matter, "---\na: b\n", ""),
        (trec, "<TITLE>", ""), (trec, "<TITLE></TI>", ""), (trec, "<DOCNO> ", ""), (trec, "<DOCNO>a</DOCNO><a", ""),
        (html_text, "<!--", ""), (html_text, "<a", ""), (html_text, "<a =", ""), (html_text, "<a ='", ""),
        (html_text, "<title>", ""), (html_text, "<script>", ""), (html_text, "<script></script", ""),
        (html_text, "<!", ""),
        (html_text, "<a b='\">", ""), (html_text, "&#0", ""), (html_text, "&", ""), (html_text, "</", ""),
        (html_text, "<template>", ""), (html_text, '<a b="', ""), (html_text, "<?", ""), (html_text, "= ", ""),
    ],
)  # fmt: skip
def test_time_grows_with_length(read: Callable[[str], object], piece: str, end: str) -> None:
    """A text 32 times as long takes about 32 times as long; where time grew with the square it would be 1,024."""

    def seconds(length: int) -> float:
        source = piece * (length // len(piece)) + end
        times = []
        for _ in range(3):
            started = time.perf_counter()
            read(source)
            times.append(time.perf_counter() - started)
        return min(times)

    assert seconds(64_000) < 150 * max(seconds(2_000), 5e-5)


def test_blanks_after_a_heading_and_a_docno_are_read_at_once() -> None:
    started = time.perf_counter()
    assert markdown_text("# a" + " " * 200_000 + "b")[0] == "a" + " " * 200_000 + "b"
    trec("<DOCNO>" + " " * 200_000)
    assert time.perf_counter() - started < 2


# Bounds


def test_a_line_and_a_document_are_bounded(tmp_path: Path, cli: Cli) -> None:
    long = "x" * 2000
    sources = {
        "x.jsonl": (json.dumps({"id": "0", "text": "x"}) + "\n" + json.dumps({"id": "1", "text": long}), 2),
        "x.json": (json.dumps([{"id": "1", "text": long}], indent=1), 2),
        "x.csv": (f'id,text\n0,x\n1,"{chr(10).join([long[:500]] * 4)}"', 3),
        "y.csv": ('id,text\n1,"never closed\n' + "x\n" * 2000, 2),
        "x.tsv": (f"0\tx\n1\t{long}", 2),
        "x.trec": ("<DOC>\n" + "x\n" * 2000 + "</DOC>", 1),
        "x.md": ("x\n" * 2000, 1),
        "x.html": ("x\n" * 2000, 1),
    }
    for name, (content, line) in sources.items():
        file = write(tmp_path / name, content)
        message = rf"{name}:{line}: this document has more than 1,000 bytes; --max-document allows larger ones"
        with pytest.raises(InputError, match=message):
            contents(file, max_document=1000)
    jsonl = tmp_path / "x.jsonl"
    assert cli("index", jsonl, "-o", tmp_path / "i", "--max-document", "1kB")[0] == 2
    assert cli("index", jsonl, "-o", tmp_path / "i")[0] == 0


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.json", "x.trec", "x.md"])
def test_a_line_without_end_takes_no_memory(tmp_path: Path, name: str) -> None:
    start = {"x.json": b'[{"id": "1", "text": "', "x.csv": b'id,text\n1,"'}.get(name, b'{"id": "1", "text": "')
    with gzip.open(tmp_path / f"{name}.gz", "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(60):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"more than 4,000,000 bytes"):
            contents(tmp_path / f"{name}.gz", max_document=4_000_000)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def npz_claiming(path: Path, shape: tuple[int, ...], bytes_there: int = 8, kind: str = "<f8") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("indptr", "indices", "data"):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(bytes_there))
        whole = io.BytesIO()
        np.save(whole, np.array([10**11, 10**11]))
        archive.writestr("shape.npy", whole.getvalue())
    return path


def test_a_matrix_that_claims_too_much_is_refused_by_its_header(tmp_path: Path) -> None:
    huge = npz_claiming(tmp_path / "a.npz", (10**11,))
    empty = npz_claiming(tmp_path / "b.npz", (10**11,), 0, "|V0")
    packed = npz_claiming(tmp_path / "c.npz", (3_000_000,), 24_000_000)
    wide = tmp_path / "d.npz"
    np.savez(wide, indptr=np.array([0, 1]), indices=np.array([7]), data=np.array([1.5]), shape=np.array([1, 10**11]))
    tracemalloc.start()
    try:
        for path, message in (
            (huge, "declares the shape"),
            (empty, "other than numbers"),
            (packed, "far more than its size"),
        ):
            with pytest.raises(InputError, match=message):
                list(read_matrix(InputFile.of(path)))
        assert [d.content for d in read_matrix(InputFile.of(wide))] == [{"vector": {"7": 1.5}}]
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_matrix_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    good = {
        "indptr": np.array([0, 2]),
        "indices": np.array([1, 1]),
        "data": np.array([1.0, 2.0]),
        "shape": np.array([1, 2]),
    }
    path = tmp_path / "x.npz"
    np.savez(path, **good)
    assert [d["vector"] for d in read_matrix(InputFile.of(path))] == [{"1": 3.0}]
    for change in (
        {"indptr": np.array([1, 2])}, {"indptr": np.array([0, 9, 2]), "shape": np.array([2, 2])},
        {"data": np.array(["a", "b"])}, {"indices": np.array([0.0, 1.0])}, {"indices": np.array([[0, 1]])},
        {"indices": np.array([-1, 1])}, {"shape": np.array([1])}, {"shape": np.array(["a", "b"])},
        {"format": np.array(b"csc")},
    ):  # fmt: skip
        np.savez(path, **{**good, **change})
        with pytest.raises(InputError, match=r"x\.npz: (this is not a sparse matrix|expected a sparse matrix)"):
            list(read_matrix(InputFile.of(path)))


# Nothing but a sentence leaves a reader


def samples(folder: Path) -> Iterator[Path]:
    yield write(folder / "x.jsonl", LINES)
    yield write(folder / "x.json", json.dumps(RECORDS[:3], indent=1))
    yield write(folder / "x.csv", TABLE)
    yield write(folder / "x.tsv", TABLE.replace(",", "\t"))
    yield write(folder / "x.trec", "<DOC>\n<DOCNO>1</DOCNO><TITLE>a</TITLE>\n&#65;<P>b</DOC>\n" * 3)
    yield write(folder / "x.md", "---\na: 1\nb:\n - x\n---\n# T\n[a](b) *c*\n")
    yield write(folder / "x.html", "<title>a</title><p class='x'>b &amp; c<!-- d --><script>e</script>")
    np.savez_compressed(
        folder / "x.npz", indptr=np.array([0, 1, 2]), indices=np.array([0, 1]), data=np.array([1.0, 2.0]),
        shape=np.array([2, 2]), format=np.array(b"csr"),
    )  # fmt: skip
    yield folder / "x.npz"
    for name in ("gz", "xz", "zst"):
        pack = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}[name]
        (folder / f"z.jsonl.{name}").write_bytes(pack(LINES.encode()))
        yield folder / f"z.jsonl.{name}"
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        return
    table = pyarrow.Table.from_pylist(
        [{"id": str(n), "text": "dog", "n": n, "d": dt.date(2024, 1, 1)} for n in range(9)]
    )
    parquet.write_table(table, folder / "x.parquet")
    yield folder / "x.parquet"


def damaged(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and place < len(data):
            data[place] = rng.randrange(256)
        elif kind == 1:
            data[place : place + rng.randrange(9)] = b""
        elif kind == 2:
            data[place:place] = rng.choice(
                (b"\0", b"\xff", b'"', b"\r", b"\n", b"<DOC>", b"{", b"[", b"\t", b",", b"&#x")
            )
        else:
            data[place:place] = data[place : place + rng.randrange(40)]
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)


def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    rng = random.Random(20)
    sentences = []
    for sample in list(samples(tmp_path)):
        whole = sample.read_bytes()
        for _ in range(120):
            sample.write_bytes(damaged(whole, rng))
            try:
                source = Source.find(sample)
                list(source.remarks())
                list(source.documents())
            except VizslaError as e:
                sentences.append(str(e))
        sample.write_bytes(whole)
        assert list(Source.find(sample).documents())
    assert not [sentence for sentence in sentences if "\n" in sentence]


def test_damaged_queries_judgements_and_runs_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(21)
    write_packed(Run({"q": [("d", 2.0), ("e", 1.0)]}), tmp_path / "run.npz")
    samples: list[tuple[Path, Callable[[Path], object]]] = [
        (write(tmp_path / "q.tsv", "1\ta dog\n2\ta cat\n"), read_queries),
        (write(tmp_path / "q.jsonl", LINES), read_queries),
        (write(tmp_path / "q.txt", LINES), read_queries),
        (write(tmp_path / "a.jsonl", '{"id": 1, "text": "x", "answers": ["y"]}\n'), read_questions),
        (write(tmp_path / "a.csv", 'who?\t[\'a\', "b"]\nwhat?\t["c"]\n'), read_questions),
        (write(tmp_path / "a.json", '[{"question": "who?", "answers": ["a"]}]'), read_questions),
        (write(tmp_path / "qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n"), Qrels.read),
        (write(tmp_path / "qrels.trec", "q1 0 d1 1\nq1 0 d2 0\n"), Qrels.read),
        (write(tmp_path / "run.trec", "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n"), Run.read),
        (tmp_path / "run.npz", read_packed),
    ]
    for sample, read in samples:
        whole = sample.read_bytes()
        assert read(sample)
        for _ in range(150):
            sample.write_bytes(damaged(whole, rng))
            with suppress(VizslaError):
                read(sample)
