"""Readers: plain and compressed files, BEIR folders, and what is wrong with a line, by file and number."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import BeirDataset, Document, Splitter, VizslaError, read_documents
from vizsla.datasets import FieldNames, Source, read_queries
from vizsla.datasets.files import is_whole_zstd
from vizsla.datasets.stdlib import library_files, read_docstrings
from vizsla.errors import InputError
from vizsla.evaluation import compare
from vizsla.models import parse_model

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
        (b'{"_id": "1", "text": "x"}\n\n{"n": "x"}\n', r"corpus\.jsonl:3: the document has no id"),
        (b'{"_id": "1", "text": "\xff"}\n', r"corpus\.jsonl:1: this is not UTF-8 \(byte 0xff at position 23"),
        (b'["x"]\n', r"corpus\.jsonl:1: expected a JSON object with an id and a text, not the text 'x'"),
        (b'{"_id": "1", "text": "\\ud800"}\n', r"corpus\.jsonl:1: this line has half a surrogate pair"),
        (b"[" * 100_000, r"corpus\.jsonl:1: this is nested too deeply"),
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
    for cut in (1, 4, 20, 1000):
        file.write_bytes(pack(CONTENT)[:-cut])
        with pytest.raises(InputError, match="damaged or not what its name says"):
            list(read_documents(file))


@given(
    st.lists(st.binary(max_size=300) | st.sampled_from([b"x" * 300_000, os.urandom(200_000)]), min_size=1, max_size=3),
    st.booleans(), st.booleans(), st.integers(1, 30),
)  # fmt: skip
def test_frames_are_whole_or_cut_off(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], checksum: bool, sized: bool, cut: int
) -> None:
    packer = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=sized)
    whole = b"".join(map(packer.compress, parts)) + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    file = tmp_path_factory.mktemp("zst") / "x.zst"
    for content, expected in ((whole, True), (whole[:-11], True), (whole[: -11 - min(cut, 7)], False)):
        file.write_bytes(content)
        with file.open("rb") as opened:
            assert is_whole_zstd(opened.fileno()) == expected


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"id": 5, "contents": "dog"}\r\n')
    (document,) = read_documents(file)
    assert (document.id, document["text"]) == ("5", "dog")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.jsonl", "this file or folder does not exist"),
        ("", "this folder holds no files of .jsonl, "),
        ("x.xyz", "the format is unknown; expected a folder, or a file of .jsonl, .ndjson"),
    ],
)
def test_sources_that_are_none(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "x.xyz").write_text("x")
    with pytest.raises(InputError, match=message):
        list(read_documents(tmp_path / name))


def test_a_beir_folder(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "dog"}\n{"_id": "q2", "text": "cat"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td 1\t2\nq1\td2\t0\n")
    dataset = BeirDataset.open(tmp_path)
    assert dataset.queries() == {"q1": "dog", "q2": "cat"}
    assert dataset.qrels().judgements == {"q1": {"d 1": 2, "d2": 0}}
    with pytest.raises(InputError, match="unknown split 'dev'; known: test"):
        dataset.qrels("dev")
    with pytest.raises(InputError, match="this folder does not exist"):
        BeirDataset.open(tmp_path / "missing")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A data set of two documents, with generated queries beside its corpus."""
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "1", "text": "a vizsla"}, {"_id": "2", "text": "a tabby"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "dog"}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    lines = [{"_id": "1", "text": "old", "queries": ["dog breeds"]}, {"_id": "2", "queries": []}]
    write_lines(tmp_path / "expanded.jsonl", lines)
    return tmp_path


def write_lines(file: Path, records: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_generated_queries_beside_a_corpus_are_read_by_models_that_read_queries(pets: Path, cli: Cli) -> None:
    plain = BeirDataset.open(pets)
    assert plain.reading(["title", "text"]) == plain
    documents = list(plain.reading(["text", "queries"]).documents())
    assert [(d.id, dict(d.content)) for d in documents] == [
        ("1", {"text": "a vizsla", "queries": ["dog breeds"]}),
        ("2", {"text": "a tabby", "queries": []}),
    ]
    figures = [
        json.loads(cli("eval", pets, "--model", model, "--json")[1])["measures"]["nDCG@10"]
        for model in ("bm25", "doct5query")
    ]
    assert figures == [0.0, 1.0]
    both = {name: parse_model(name) for name in ("bm25", "doct5query")}
    compared = compare([(plain, "test")], both, "nDCG@10")
    assert [compared.value(plain.name, name, "nDCG@10") for name in both] == figures
    (pets / "expanded.jsonl").unlink()
    assert plain.reading(["queries"]) == plain


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"_id": "1", "queries": []}], "ends after 1 documents, before '2' of the corpus"),
        ([{"_id": "2", "queries": []}, {"_id": "1", "queries": []}], "expected the document '1'"),
        ([{"_id": "1", "queries": "dog"}], "expected a list of texts 'queries'"),
        ([{"_id": str(i), "queries": []} for i in (1, 2, 3)], "not in the corpus"),
    ],
)
def test_generated_queries_of_other_documents_are_refused(
    pets: Path, lines: list[dict[str, object]], message: str
) -> None:
    write_lines(pets / "expanded.jsonl", lines)
    with pytest.raises(InputError, match=message) as error:
        list(BeirDataset.open(pets).reading(["queries"]).documents())
    assert "expanded.jsonl" in str(error.value)


def test_queries_with_tabs(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("1\twhat is a vizsla\n2\tand a pointer\n")
    assert read_queries(file) == {"1": "what is a vizsla", "2": "and a pointer"}
    file.write_text("1\tone\n1\ttwo\n")
    with pytest.raises(InputError, match=r"queries\.tsv:2: the query id '1' appears a second time"):
        read_queries(file)
    file.write_text("qid\tquery\n\n1\tone\n")
    assert read_queries(file) == {"1": "one"}
    file.rename(tmp_path / "topics.txt")
    assert read_queries(tmp_path / "topics.txt") == {"1": "one"}
    for line in ("q1 0\td1\t1\n", "query-id\tcorpus-id\tscore\nq1\td1\t1\n"):
        file.write_text(line)
        with pytest.raises(InputError, match=r"queries\.tsv:1: expected a query id, a tab and a text, not 3 columns"):
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


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def contents(source: Path, **names: str) -> list[tuple[str, dict[str, object]]]:
    found = Source.find(source, names=FieldNames(**names))
    return [(d.id, dict(d.content)) for d in found.documents()]


def test_comma_separated(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text('docno,body,year\n1,"two\nlines, one ""cell""",1999\n\n2,short,2000\n')
    assert contents(file) == [
        ("1", {"text": 'two\nlines, one "cell"', "year": 1999}),
        ("2", {"text": "short", "year": 2000}),
    ]
    remarks = ["taking the id from 'docno', the text from 'body'", "columns that are not texts: 'year' whole numbers"]
    assert [r.partition(" (")[0] for r in Source.find(file).remarks()] == remarks
    assert [d.origin.line for d in Source.find(file).documents() if d.origin] == [2, 5]
    assert contents(file, id="year", text="docno")[0] == ("1999", {"text": "1", "body": 'two\nlines, one "cell"'})


def test_one_field_is_one_thing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name,bodytext\nfoo,a dog\n")
    assert contents(tmp_path / "x.csv", id="name", text="bodytext") == [("foo", {"text": "a dog"})]
    (tmp_path / "y.csv").write_text("id,body,abstract\n1,long,short\n")
    assert contents(tmp_path / "y.csv", title="body") == [("1", {"title": "long", "text": "short"})]


def test_ms_marco_and_dpr(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text('0\tThe "quoted passage.\n1\tAnother\n')
    assert contents(tmp_path / "collection.tsv") == [
        ("0", {"text": 'The "quoted passage.'}),
        ("1", {"text": "Another"}),
    ]
    with gzip.open(tmp_path / "psgs.tsv.gz", "wt") as file:
        file.write('id\ttext\ttitle\n1\t"A ""dog"" barks"\tDogs\n')
    assert contents(tmp_path / "psgs.tsv.gz") == [("1", {"text": 'A "dog" barks', "title": "Dogs"})]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"pid": [1, 2], "passage": ["a dog", "a cat"], "tags": [["x"], None]})
    parquet.write_table(table, tmp_path / "x.parquet")
    assert contents(tmp_path / "x.parquet") == [("1", {"text": "a dog", "tags": ["x"]}), ("2", {"text": "a cat"})]
    (tmp_path / "y.parquet").write_text("no parquet")
    with pytest.raises(InputError, match=r"y\.parquet: the file is damaged"):
        contents(tmp_path / "y.parquet")


def test_a_folder_of_texts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.txt": "Plain text.",
            "sub/b.md": "# The *title*\n\nSome [link](x) and `code`.\n",
            "sub/c.html": "<html><title>Page</title><body><p>One<p>Two &lt;3<script>no()</script>",
            ".hidden/d.txt": "not seen",
            "e.bin": "not seen",
        },
    )
    assert contents(tmp_path) == [
        ("a.txt", {"title": "a.txt", "text": "Plain text.", "path": "a.txt"}),
        (
            "sub/b.md",
            {
                "title": "The title",
                "text": "The title\n\nSome link and code.",
                "path": "sub/b.md",
                "outline": {"headings": [[0, 1, "The title"]]},
            },
        ),
        ("sub/c.html", {"title": "Page", "text": "One\n\nTwo <3", "path": "sub/c.html"}),
    ]


def test_trec_sgml(tmp_path: Path) -> None:
    file = tmp_path / "x.sgml"
    file.write_text(
        "<DOC>\n<DOCNO> FT-1 </DOCNO>\n<HEADLINE>\nBig &amp; new\n</HEADLINE>\n"
        "<TEXT>\nThe <b>text</b>.\n</TEXT>\n</DOC>\n"
        "<DOC><DOCNO>FT-2</DOCNO>Short</DOC>\n"
    )
    assert contents(file) == [
        ("FT-1", {"title": "Big & new", "text": "The text ."}),
        ("FT-2", {"title": "", "text": "Short"}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "a,b\n1,2\n", r"x\.csv:1: none of the columns 'a', 'b' is the id"),
        ("x.csv", "id,text\n1,two\n3\n", r"x\.csv:3: expected 2 columns as in the header, not 1"),
        ("x.csv", 'id,text\n1,"open\n', r"x\.csv:2: this row cannot be read"),
        ("x.tsv", "1\tone\n2\n", r"x\.tsv:2: expected an id, a tab and a text, not 1 columns"),
        ("x.trec", "<DOC>\n<TEXT>x</TEXT></DOC>\n", r"x\.trec:1: this <DOC> has no <DOCNO>"),
        ("x.trec", "\n<DOC>\n<DOCNO>1</DOCNO>\n", r"x\.trec:2: this <DOC> is never closed"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        contents(tmp_path / name)


@given(
    words=st.lists(st.sampled_from(["dog", "cat", "x"]), max_size=30), size=st.integers(1, 8), overlap=st.integers(0, 7)
)
def test_passages_cover_the_text(words: list[str], size: int, overlap: int) -> None:
    if overlap >= size:
        with pytest.raises(VizslaError, match="a passage needs at least one word"):
            Splitter(size, overlap)
        return
    document = Document("d", {"text": " ".join(words), "year": 1})
    passages = list(Splitter(size, overlap).passages(document))
    cut = [p["text"].split() for p in passages]
    assert [p.id for p in passages] == [f"d#{n}" for n in range(len(passages))]
    assert all(len(c) <= size for c in cut)
    assert cut[0] + [w for c in cut[1:] for w in c[overlap:]] == words
    assert all(p["year"] == 1 for p in passages)
