"""Sources of documents: pipes, folders, JSON in other layouts, and the bounds of a line and a document."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from conftest import Cli
from made_documents import LINES, RECORDS, contents, write
from vizsla import read_documents
from vizsla.datasets import Source
from vizsla.errors import InputError


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
    for source, message in (("-", "name it, as in --format jsonl"), ("/dev/zero", "this is a device")):
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
    for name in ("e.xyz", "f.XYZ", "g.exe", "LICENSE", ".hidden/x.pdf"):
        write(folder / name, "x")
    found = dict(contents(folder))
    assert list(found) == [*"01234", "b1", "d.md", "c1"]
    assert (found["b1"], found["c1"]["n"]) == ({"text": "x", "year": "1999", "n": 1}, 2)  # one type over all tables
    code, _, said = cli("index", folder, "-o", tmp_path / "i")
    assert (code, "skipping 4 files: not documents: .xyz (2), no ending (1), .exe (1)" in said) == (0, True), said
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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_json_arrays_and_records_over_several_lines(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vizsla.datasets.formats.json._CHUNK", 64)
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
        message = rf"{name}:{line}: this document has more than 1,000 bytes; --max-document .* allows larger ones"
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
