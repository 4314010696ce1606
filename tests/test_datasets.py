"""Readers: plain and compressed files, BEIR folders, and what is wrong with a line, by file and number."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest
import zstandard

from vizsla.datasets import BeirDataset, read_documents, read_queries
from vizsla.datasets.stdlib import library_files, read_docstrings
from vizsla.errors import InputError

LINES = [{"_id": str(i), "text": f"text {i} é"} for i in range(2000)]
CONTENT = "".join(json.dumps(line) + "\n" for line in LINES).encode()


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_compressed_or_not(tmp_path: Path, ending: str) -> None:
    pack = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": lambda b: zstandard.compress(b[:9000]) + zstandard.compress(b[9000:]),
    }[ending]
    file = tmp_path / f"corpus.jsonl{ending}"
    file.write_bytes(pack(CONTENT))
    positions: list[int] = []
    found = list(read_documents(file, positions.append))
    assert [(d.id, d["text"]) for d in found] == [(line["_id"], line["text"]) for line in LINES]
    assert found[6].origin == (str(file), 7)
    assert positions == sorted(positions)
    assert 0 < positions[-1] <= file.stat().st_size
    assert [d.id for d in read_documents(tmp_path)] == [d.id for d in found]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"_id": "1", "text": "x"}\n{"_id": "2", \n', r"corpus\.jsonl:2: this line is not JSON"),
        (b'{"_id": "1", "text": "x"}\n\n{"text": "x"}\n', r"corpus\.jsonl:3: the document has no id"),
        (b'{"_id": "1", "text": "\xff"}\n', r"corpus\.jsonl:1: this is not UTF-8 \(byte 0xff at position 23"),
        (b'["x"]\n', r"corpus\.jsonl:1: expected a JSON object with an id and a text, not a list"),
        (b'{"_id": "1", "text": "\\ud800"}\n', r"corpus\.jsonl:1: this line has half a surrogate pair"),
        (b"[" * 100_000, r"corpus\.jsonl:1: this line is nested too deeply"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_documents(file))


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_cut_off_archive_is_named(tmp_path: Path, ending: str) -> None:
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[ending]
    file = tmp_path / f"corpus.jsonl{ending}"
    file.write_bytes(b"nonsense, not an archive")
    with pytest.raises(InputError, match="damaged or not what its name says"):
        list(read_documents(file))
    if ending != ".zst":  # a cut stream simply ends there
        file.write_bytes(pack(CONTENT)[:-20])
        with pytest.raises(InputError, match="damaged or not what its name says"):
            list(read_documents(file))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"id": 5, "contents": "dog"}\r\n')
    (document,) = read_documents(file)
    assert (document.id, document["text"]) == ("5", "dog")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.jsonl", "there is no such file or folder"),
        ("", "this folder holds no corpus.jsonl"),
        ("x.pdf", "expected a BEIR folder or a file of JSON lines"),
    ],
)
def test_sources_that_are_none(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "x.pdf").write_text("x")
    with pytest.raises(InputError, match=message):
        list(read_documents(tmp_path / name))


def test_a_beir_folder(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "dog"}\n{"_id": "q2", "text": "cat"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td 1\t2\nq1\td2\t0\n")
    dataset = BeirDataset.open(tmp_path)
    assert dataset.queries() == {"q1": "dog", "q2": "cat"}
    assert dataset.qrels().judgements == {"q1": {"d 1": 2, "d2": 0}}
    with pytest.raises(InputError, match="no split called 'dev'; there are test"):
        dataset.qrels("dev")
    with pytest.raises(InputError, match="no such folder"):
        BeirDataset.open(tmp_path / "missing")


def test_queries_with_tabs(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("1\twhat is a vizsla\n2\tand a pointer\n")
    assert read_queries(file) == {"1": "what is a vizsla", "2": "and a pointer"}
    file.write_text("1\tone\n1\ttwo\n")
    with pytest.raises(InputError, match=r"queries\.tsv:2: the query id '1' appears a second time"):
        read_queries(file)
    file.write_text("no tab\n")
    with pytest.raises(InputError, match=r"queries\.tsv:1: expected a query id, a tab and a text"):
        read_queries(file)


def test_the_standard_librarys_docstrings_are_read_not_run() -> None:
    (file,) = [f for f in library_files() if f.parts[-2:] == ("json", "__init__.py")]
    found = {d.id: d for d in read_docstrings(file)}
    assert found["json"].get("kind") == "module"
    assert found["json.dumps"]["text"].startswith("Serialize ``obj`` to a JSON formatted ``str``")
    assert not any(name.rpartition(".")[2].startswith("_") for name in found)
