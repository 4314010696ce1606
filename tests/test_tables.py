"""Tables: types of columns, separators, line ends, and Parquet without pyarrow."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from made_documents import TABLE, contents, write
from vizsla import VizslaError
from vizsla.datasets import parse_types
from vizsla.errors import InputError


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
    assert "parquet files need pyarrow, which is not installed; get it with: pip install 'vizsla[parquet]'" in said
