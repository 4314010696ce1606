"""Documents as people have them: their text, headings, pages and fields, and what is said of those without text."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import made_documents as made
from conftest import Cli
from vizsla import Index
from vizsla.datasets import Extracted, Limits, Outline, Source
from vizsla.datasets.files import InputFile
from vizsla.errors import InputError, MissingPackageError, NoTextError


def read(folder: Path, files: dict[str, bytes], **options: Any) -> dict[str, dict[str, Any]]:
    """What is read of the files of a folder, by id."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return {document.id: dict(document.content) for document in Source.find(folder, **options).documents()}


def headings(content: dict[str, Any]) -> list[tuple[int, str]]:
    """The headings of a document; each stands where it says."""
    outline = Outline.of(content["outline"])
    assert outline is not None
    for heading in outline.headings:
        assert content["text"][heading.offset :].startswith(heading.text)
    return [(heading.level, heading.text) for heading in outline.headings]


def page_of(content: dict[str, Any], words: str) -> int | None:
    outline = Outline.of(content["outline"])
    assert outline is not None
    return outline.page_at(content["text"].index(words))


def column(x: float, lines: list[str]) -> list[made.Placed]:
    return [(x, 740.0 - 14 * n, 11.0, line) for n, line in enumerate(lines)]


def test_pdf(tmp_path: Path) -> None:
    left = [f"the left column goes on in line {n:2} of it and" for n in range(20)]
    right = [f"the right one has its own words in line {n:2} and" for n in range(20)]
    by_lines = [line for pair in zip(column(40, left), column(330, right), strict=True) for line in pair]
    body = ["Body of page {}: well-known dogs", "bark at infor-", "mation, and the well-", "known cats do not."]
    pages = [
        [(40.0, 780.0, 9.0, f"A running head  {n}"), (40.0, 30.0, 9.0, f"page {n}")]
        + [(60.0, 740.0 - 25 * n - 14 * i, 11.0, line.format(n)) for i, line in enumerate(body)]
        for n in range(1, 5)
    ]
    marks = [("Body of page 2: well-known dogs", 1, 705.0), ("Nowhere", 3, 615.0)]
    sizes_of = [(60.0, 700.0, 22.0, "Of Dogs"), (60.0, 660.0, 15.0, "Barking"), *column(60, [*left, "end."])[9:]]
    found = read(
        tmp_path,
        {
            "columns.pdf": made.pdf([by_lines]),
            "in order.pdf": made.pdf([[*column(40, left), *column(330, right)]]),
            "book.pdf": made.pdf(pages, title="A well-known book", marks=marks),
            "sizes.pdf.gz": gzip.compress(made.pdf([sizes_of], title="x.doc")),
        },
    )  # fmt: skip
    for name in ("columns.pdf", "in order.pdf"):
        text = " ".join(found[name]["text"].split())
        assert text == " ".join(" ".join([*left, *right]).split()), name
    book = found["book.pdf"]
    assert "running head" not in book["text"]
    assert "page 1" in book["text"]  # in the body, not at the foot
    assert "\npage 3" not in book["text"]
    assert "information, and the well-known cats do not." in book["text"].replace("\n\n", " ")
    assert (book["title"], page_of(book, "Body of page 3")) == ("A well-known book", 3)
    outline = Outline.of(book["outline"])
    assert outline is not None
    assert [(h.text, outline.page_at(h.offset)) for h in outline.headings] == [
        ("Body of page 2: well-known dogs", 2),
        ("Nowhere", 4),
    ]
    sizes = found["sizes.pdf.gz"]
    assert (sizes["title"], headings(sizes)) == ("Of Dogs", [(1, "Of Dogs"), (2, "Barking")])


def test_office(tmp_path: Path) -> None:
    table = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>".format(made.word("cell"), made.word("other"))
    gone = (
        "<w:p><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    )
    twice = "<w:p><w:r><mc:AlternateContent><mc:Choice><w:t>once</w:t></mc:Choice><mc:Fallback><w:t>once</w:t>"
    twice += "</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    body = "".join(
        [made.word("Pets & more", "T"), made.word("Dogs", "berschrift1"), made.word("They bark."), gone, table, twice,
         made.word("Cats", "Own", "<w:lastRenderedPageBreak/>"),
         "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>"]
    )  # fmt: skip
    odf = (
        '<text:h text:outline-level="1">Dogs</text:h><text:p>They<text:s/>bark<text:note><text:note-citation>1'
        "</text:note-citation><text:note-body><text:p>loudly</text:p></text:note-body></text:note>.</text:p>"
        "<table:table><table:table-row><table:table-cell><text:p>cell</text:p></table:table-cell><table:table-cell>"
        "<text:p>other</text:p></table:table-cell></table:table-row></table:table><text:list><text:list-item><text:p>one"
        "</text:p></text:list-item><text:list-item><text:p>two</text:p></text:list-item></text:list><text:soft-page-break/>"
        '<text:h text:outline-level="2">Cats</text:h>'
    )
    slides = [("Second", ["a", "b"], "say it"), ("First", ["c"], "aloud")]
    found = read(
        tmp_path,
        {
            "a.docx": made.docx(body, notes=made.word("a note"), author="Somebody"),
            "b.pptx": made.pptx(slides, title="Talk"),
            "c.odt": made.odt(odf),
            "d.epub": made.epub(
                ["<h1>One</h1><p>&eacute;t&eacute;", "<!DOCTYPE html><h2>Two</h2><p>b<script>x</script>"]
            ),
        },
    )
    docx = found["a.docx"]
    assert docx["text"] == "Pets & more\n\nDogs\n\nThey bark.\ncell other\n\nonce\n\nCats\n\na b\n\na note"
    assert headings(docx) == [(1, "Pets & more"), (1, "Dogs"), (2, "Cats")]
    assert (docx["title"], docx["author"], docx["date"]) == ("Pets & more", "Somebody", "2024-02-29")
    assert [page_of(docx, words) for words in ("They bark", "Cats", "a note")] == [1, 2, 2]
    pptx = found["b.pptx"]
    assert pptx["text"] == "First\n\nc\n\naloud\n\nSecond\n\na\nb\n\nsay it"
    assert (pptx["title"], page_of(pptx, "aloud"), page_of(pptx, "say it")) == ("Talk", 1, 2)
    odt = found["c.odt"]
    assert odt["text"] == "Dogs\n\nThey bark.\n\nloudly\ncell other\none\ntwo\n\nCats"
    assert (odt["title"], headings(odt), page_of(odt, "Cats")) == ("Pets", [(1, "Dogs"), (2, "Cats")], 2)
    epub = found["d.epub"]
    assert (epub["text"], headings(epub)) == ("One\n\nété\n\nTwo\n\nb", [(1, "One"), (2, "Two")])
    assert (epub["title"], epub["author"], epub["language"]) == ("Pets", "Somebody", "en")


def test_mail(tmp_path: Path) -> None:
    parts = (
        "--X\nContent-Type: multipart/alternative; boundary=Y\n\n--Y\nContent-Type: text/html\n\n<p>no\n"
        "--Y\nContent-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n"
        "Hunde bellen sch=F6n.\n--Y--\n--X\nContent-Type: text/plain\n"
        "Content-Disposition: attachment; filename=notes.txt\n\n"
        "attached\n--X--\n"
    )
    multipart = made.message("=?utf-8?q?Sch=C3=B6n?=", parts, Content_Type="multipart/mixed; boundary=X")
    page = made.message("Page", "<nav>menu</nav><p>Dogs <img src='http://example.org/x'>bark", Content_Type="text/html")
    box = b"".join(
        b"From a@example.org Thu Feb 29 12:00:00 2024\n" + made.message(f"No {n}", body, **ids) + b"\n\n"
        for n, (body, ids) in enumerate(
            [("first", {"Message-ID": "<1@x>"}), (">From me\nto you", {}), ("again", {"Message-ID": "<1@x>"})]
        )
    )
    found = read(tmp_path, {"a.eml": multipart, "b.eml": page, "c/all.mbox": box})
    first = found["a.eml"]
    assert (first["title"], first["text"], first["attachments"]) == ("Schön", "Hunde bellen schön.", ["notes.txt"])
    assert (first["from"], first["to"], first["date"]) == (
        "a@example.org",
        "b@example.org",
        "2024-02-29T10:00:00+00:00",
    )
    assert found["b.eml"]["text"] == "Dogs bark"
    (second,) = (content for doc_id, content in found.items() if len(doc_id) == 32)
    assert (second["text"], second["path"], second["title"]) == ("From me\nto you", "c/all.mbox", "No 1")
    assert found["1@x"]["text"] == "again"


def test_notebooks_code_and_encodings(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "a.ipynb": made.notebook(
                ("markdown", "# Dogs\n<!-- x -->"), ("code", "if dog:\n    bark()"), ("raw", "raw")
            ),
            "b.py": b"def bark():\n    pass\n",
            "c.TSX": b"let dog",
            "d.txt": "\ufeffHündchen".encode("utf-16-le"),
            "e.html": "<meta charset=iso-8859-1><p>Hündchen".encode("latin-1"),
            "sp ace\n ü.md": b"# x",
        },
    )
    assert found["a.ipynb"]["text"] == "Dogs\n\nif dog:\n    bark()\n\nraw"
    assert (found["a.ipynb"]["title"], found["a.ipynb"]["language"]) == ("Dogs", "python")
    assert found["b.py"] == {"title": "b.py", "text": "def bark():\n    pass\n", "path": "b.py", "language": "python"}
    assert found["c.TSX"]["language"] == "typescript"
    assert (found["d.txt"]["text"], found["e.html"]["text"]) == ("Hündchen", "Hündchen")
    assert found["sp ace\n ü.md"]["title"] == "x"


NO_TEXT = {
    "locked.pdf": (made.pdf([[(50, 700, 11, "x")]], encrypted=True), "this file is encrypted"),
    "scanned.pdf": (made.pdf([[]], picture=True), "its page has no text, only pictures; --ocr"),
    "locked.odt": (made.odt("<text:p>x</text:p>", encrypted=True), "this file is encrypted"),
    "locked.docx": (b"\xd0\xcf\x11\xe0" + bytes(600), "this file is encrypted, or of a program from before 2007"),
    "locked.epub": (made.epub(["<p>x"], encryption="http://ns.adobe.com/adept"), "this book is encrypted"),
}


def test_files_without_text_are_named_and_do_not_stop_a_folder(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "papers"
    read(folder, {name: data for name, (data, _) in NO_TEXT.items()} | {"a.md": b"# Dogs\nbark"})
    fonts = made.epub(["<p>fonts"], encryption="http://www.idpf.org/2008/embedding")
    read(folder, {"fonts.epub": fonts})
    code, _, said = cli("index", folder, "-o", tmp_path / "i")
    assert code == 0
    assert "2 documents in" in said
    for name, (_, message) in NO_TEXT.items():
        assert f"left out: {folder / name}: {message}" in said
    assert "left out in all: 5\n" in said
    with pytest.raises(NoTextError, match="this book is encrypted"):  # as the only source it is an error
        list(Source.find(folder / "locked.epub").documents())


def test_a_sample_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = "".join(f"From a@b\nSubject: No {n}\n\nDogs\n\n" for n in range(300))
    (tmp_path / "all.mbox").write_text(messages)
    assert len(list(Source.find(tmp_path / "all.mbox").sample())) == 100
    for n in range(47):
        (tmp_path / f"{n}.txt").write_text("dogs")
    assert len([d for d in Source.find(tmp_path).sample() if d.id.endswith(".txt")]) <= 24
    recognised = []

    def read(reader: object, format: str, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG001
        if not limits.ocr:
            raise NoTextError("only pictures", file=file.name)
        recognised.append(file.path.name)
        yield Extracted("dogs")

    monkeypatch.setattr("vizsla.datasets.sources.ConfinedReader.read", read)
    (tmp_path / "all.mbox").unlink()
    (tmp_path / "scans").mkdir()
    for n in range(3):
        (tmp_path / "scans" / f"{n}.pdf").touch()
    for folder, read_in in ((tmp_path, []), (tmp_path / "scans", ["0.pdf"])):
        source = replace(Source.find(folder), limits=Limits(ocr=True))
        assert list(source.sample())
        assert recognised == read_in


def test_a_folder_of_everything(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "my papers"
    files = {
        **made.examples(),
        "damaged.pdf": made.examples()["x.pdf"][:200],
        "empty.docx": b"",
        "empty.txt": b"",
        "latin.txt": "Hündchen".encode("latin-1"),
        "big.txt": b"x" * 3000,
        "a\nb ü.txt": b"dogs",
        "table.csv": b"id,text\n1,dog\n2,cat,extra\n3,fish\n",
        "lines.jsonl": b'{"id": "j1", "text": "dog"}\n{"id": \n{"id": "j2"}\n{"id": "j1", "text": "dog again"}\n'
        b'{"text": "no id"}\n',
        "program.exe": b"MZ",
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.txt").symlink_to("self.txt")
    (folder / "nothing.pdf").symlink_to("gone.pdf")
    os.mkfifo(folder / "pipe.txt")
    code, _, said = cli("index", folder, "-o", tmp_path / "i", "--max-document", "2000")
    assert code == 2
    assert said.count("\n") <= 4  # what is not read, and the first file that cannot be
    assert not (tmp_path / "i").exists()
    code, _, said = cli("index", folder, "-o", tmp_path / "i", "--max-document", "2000", "--skip-bad")
    assert code == 0, said
    for name, reason in {
        "damaged.pdf": "the file is damaged or not what its name says (Failed to load document",
        "empty.docx": "the file is damaged or not what its name says (File is not a zip file)",
        "latin.txt:1": "this is not UTF-8 (byte 0xfc at position 2 of the line)",
        "big.txt:1": "this document has more than 2,000 bytes",
        "table.csv:3": "expected 2 columns as in the header, not 3",
        "lines.jsonl:2": "this line is not JSON",
        "lines.jsonl:3": "the document 'j2' has no text",
    }.items():
        assert f"left out: {folder / name}: {reason}" in said
    assert "left out in all: 7\n" in said
    assert "1 document left out, since a later one has the same id" in said
    assert "not documents: .exe (1)" in said
    with Index.open(tmp_path / "i") as index:
        ids = {d.id for d in index.documents()}
        assert ids >= {*made.examples().keys() - {"x.mbox"}, "1@a", "a\nb ü.txt", "1", "3", "j1", "empty.txt"}
        assert index.get("j1")["text"] == "dog again"
        assert len(ids) == len(made.examples()) + 6


def test_what_is_left_out_is_listed_in_python(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", passages=3) as index:
        bad = [7, {"id": "x"}, {"id": "", "text": "x"}, {"id": "y", "text": 7}, {"id": "z", "text": "x", "n": {1}}]
        added = index.add([{"id": "1", "text": "a dog"}, *bad, {"text": "a cat"}, {"text": "a cat"}], skip_bad=True)
        assert (added.documents, added.skipped.count, added.repeated) == (2, 5, 1)
        places = [(error.line, error.problem) for error in added.skipped.errors]
        assert places[:2] == [
            (2, "expected a JSON object with an id and a text, not the number 7"),
            (4, "the id must be a text or a whole number, not an empty text"),
        ]
        index.commit()
        assert len(index) == 2
        many = index.add([{"n": n} for n in range(1000)], skip_bad=True).skipped
        assert (many.count, len(many.errors), many.reasons.total()) == (1000, 100, 1000)


def test_skipping_lines_of_any_length(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "x.jsonl"
    good = [json.dumps({"id": str(n), "text": "dog"}) for n in range(3)]
    file.write_bytes(
        "\n".join([good[0], '{"id": "' + "x" * 5000 + '"}', good[1], "[", "\ud800", good[2]]).encode(
            "utf-8", "surrogatepass"
        )
    )
    source = Source.find(file, skip_bad=True, max_document=1000)
    for _ in range(2):  # what is read again is not counted twice
        assert [d.id for d in source.documents()] == ["0", "1", "2"]
        assert [(e.line, e.problem[:20]) for e in source.skipped.errors] == [
            (2, "this document has mo"), (4, "this line is not JSO"), (5, "this is not UTF-8 (b")]  # fmt: skip
    file.write_text("{}\n")
    code, _, said = cli("index", file, "-o", tmp_path / "i", "--skip-bad")
    assert (code, "nothing in this source can be read" in said) == (2, True), said


def test_missing_packages_are_named(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.pdf": made.examples()["x.pdf"], "b.md": b"# Dogs"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    code, _, said = cli("index", tmp_path, "-o", tmp_path / "x.index")
    advice = "pdf files need pypdfium2, which is not installed; get it with: pip install 'vizsla[documents]'"
    assert (code, f"skipping 1 file: {advice}" in said) == (0, True), said
    with pytest.raises(MissingPackageError, match="pypdfium2"):
        Source.find(tmp_path / "a.pdf")
    assert "pip install 'vizsla[ocr]'" in cli("index", tmp_path, "-o", tmp_path / "y.index", "--ocr")[2]


def test_documents_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(made.examples()["x.pdf"])))
    (document,) = Source.find("-", "pdf").documents()
    assert (document.id, "dogs bark at cats" in document["text"]) == ("-", True)
    (tmp_path / "x.txt").write_text("no zip")
    with pytest.raises(InputError, match="the file is damaged or not what its name says"):
        list(Source.find(tmp_path / "x.txt", "docx").documents())
