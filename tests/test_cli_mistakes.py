"""One clear sentence from the command line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Cli


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"_id": "1", "text": "x"}\n{"_id": \n', "bad.jsonl:2: this line is not JSON"),
        ('{"n": "x"}\n', "bad.jsonl:1: the document has no id"),
        ('{"_id": "1"}\n', "bad.jsonl:1: the document '1' has no text; expected a field 'text' or 'contents'"),
    ],
)
def test_bad_documents_leave_nothing_behind(cli: Cli, tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "bad.jsonl").write_text(lines)
    code, out, err = cli("index", tmp_path / "bad.jsonl", "-o", tmp_path / "i")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "i").exists()


def test_one_bad_line_or_file_of_many_names_skip_bad(cli: Cli, tmp_path: Path) -> None:
    hint = "; --skip-bad leaves it out\n"
    good, bad = '{"_id": "1", "text": "x"}\n', '{"_id": \n'
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.jsonl").write_text(bad)
    (tmp_path / "docs" / "b.txt").write_text("dogs")
    (tmp_path / "second.jsonl").write_text(good + bad)
    (tmp_path / "first.jsonl").write_text(bad + good)
    for source, hinted in (("docs", True), ("second.jsonl", True), ("first.jsonl", False)):
        code, _, err = cli("index", tmp_path / source, "-o", tmp_path / "i")
        assert (code, err.endswith(hint), err.count("\n")) == (2, hinted, 1)
    assert cli("index", tmp_path / "docs", "-o", tmp_path / "i", "--skip-bad")[0] == 0
    code, _, err = cli("add", tmp_path / "i", tmp_path / "second.jsonl")
    assert (code, err.endswith(hint)) == (2, True)


def test_empty_documents_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"_id": "1", "text": "dog"}\n{"_id": "2", "text": ""}\n{"_id": "3", "text": "-"}\n'
    )
    code, _, err = cli("index", tmp_path / "x.jsonl", "-o", tmp_path / "i")
    assert code == 0
    assert "x.jsonl:2: the document '2' has no searchable words (2 such documents)" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "INDEX", ""], "the query is empty"),
        (["search", "INDEX", "dog", "-k", "0"], "must be 1 or more, not 0"),
        (["search", "INDEX", "dog", "-k", "-3"], "must be 1 or more, not -3"),
        (["search", "missing", "dog"], "missing: this folder does not exist"),
        (["search", "INDEX", "--queries", "q.tsv"], "--queries and --output go together"),
        (["search", "INDEX", "--queries", "missing.tsv", "--output", "x"], "missing.tsv: this file does not exist"),
        (["index", "missing.jsonl", "-o", "x"], "missing.jsonl: this file or folder does not exist"),
        (["index", "CORPUS", "-o", "INDEX"], "an index exists here already; --overwrite"),
        (["verify", "missing"], "missing: this folder does not exist"),
        (["index", "CORPUS", "-o", "x", "--model", "bm52"], "unknown model 'bm52'"),
        (["explain", "INDEX", "dog", "d9"], "no document with the id 'd9'"),
        (["info", "missing"], "missing: this folder does not exist"),
        (["analyze", "x", "-a", "klingon"], "unknown analyzer or tokenizer 'klingon'"),
        (["eval", "missing"], "missing: this folder does not exist"),
        (["eval", "FOLDER"], "queries.jsonl does not exist in this folder"),
        (["eval", "FOLDER", "FOLDER"], "give one data set"),
        (["eval", "FOLDER", "-m", "bm25,bm25-wp"], "give one model"),
        (["eval", "FOLDER", "--limit", "5"], "--regex and --limit are for files of questions"),
        (["eval", "FOLDER", "--measures", "Acc@5"], "name it with --index INDEX"),
        (["eval", "FOLDER", "--measures", "Acc@5 nDCG@10"], "Acc@5 needs answers"),
        (["eval", "missing.jsonl", "--index", "INDEX"], "missing.jsonl: this file does not exist"),
        (["eval", "CORPUS"], "name it with --index INDEX"),
        (["eval", "CORPUS", "--index", "INDEX", "--limit", "0"], "must be 1 or more, not 0"),
        (["eval", "CORPUS", "--index", "INDEX", "--measures", "nDCG@10"], "nDCG@10 needs judgements"),
        (["eval", "CORPUS", "--index", "INDEX", "--measures", " "], "names no measure"),
        (["eval", "CORPUS", "--index", "INDEX", "--split", "dev"], "are for data sets"),
        (["eval", "CORPUS", "--run", "x", "--combine", "rrf"], "--run evaluates an existing run"),
        (["tune", "FOLDER", "--weights", "1"], "name it with --index"),
        (["tune", "FOLDER", "FOLDER"], "tune on one data set"),
        (["tune", "FOLDER", "--index", "INDEX", "--set", "b=1"], "for tuning without --index"),
        (["tune", "FOLDER", "--measure", "RR R@5"], "one measure to maximise"),
        (["recipes", "check", "bm52"], "unknown recipe 'bm52'"),
        (["search", "INDEX", "dog", "--filter", "yaer = 1"], "no document has a field 'yaer'"),
        (["search", "INDEX", "dog", "--filter", "year = "], "the filter ends too early, at character 7"),
        (
            ["search", "INDEX", "--queries", "CORPUS", "--output", "/nowhere/run"],
            "/nowhere/run: its folder does not exist",
        ),
        (["search", "x" * 300, "dog"], "File name too long"),
        (["index", "x" * 300 + ".jsonl", "-o", "x"], "File name too long"),
        (["index", "CORPUS", "-o", "x", "--memory", "much"], "'much' is not a size"),
        (["index", "CORPUS", "-o", "x", "--model", "1e400 * bm25"], "is not a weight"),
        (["delete", "INDEX"], "say which documents to delete"),
        (["delete", "INDEX", "d1", "--filter", "year < 2000"], "give ids or --filter, not both"),
        (["add", "missing", "CORPUS"], "missing: this folder does not exist"),
        (["explain", "INDEX", "", "d1"], "the query is empty"),
        (["index", "CORPUS", "-o", "x", "--memory", "1e400"], "'1e400' is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "nan"], "'nan' is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "9" * 400 + "GB"], "is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "0"], "'0' is not a size"),
        (["index", "CORPUS", "-o", "-"], "- is standard output, and an index is a folder"),
        (["demo", "-o", "-"], "- is standard output, and an index is a folder"),
        (["export", "INDEX", "--format", "ciff", "-o", "-"], "only jsonl and anserini can go to standard output"),
        (["delete", "INDEX", "--ids", "BINARY"], "this is not a UTF-8 text file"),
        (["delete", "INDEX", "--ids", "missing"], "missing: this file does not exist"),
        (["delete", "INDEX", "--ids", "FOLDER"], "this is a folder, not a file"),
        (["search", "INDEX", "dog\udcff"], "the argument 'dog\\udcff' is not text in UTF-8"),
        (["explain", "INDEX", "\udcff", "d1"], "is not text in UTF-8"),
        (["search", "INDEX", "dog", "--filter=year = '\udcff'"], "is not text in UTF-8"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, index: Path, corpus: Path, arguments: list[str], message: str) -> None:
    binary = corpus.with_name("binary")
    binary.write_bytes(b"d1\n\xff\xfe\x00")
    places = {"INDEX": index, "CORPUS": corpus, "FOLDER": index, "BINARY": binary}
    code, out, err = cli(*[places.get(a, a) for a in arguments])
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_finding_nothing_says_why(cli: Cli, index: Path) -> None:
    code, out, err = cli("search", index, "xyzzy the plugh")
    assert (code, out) == (0, "")
    assert "no document has any of these words: xyzzi, plugh" in err
    assert "the query has no words after analysis" in cli("search", index, "the of ...")[2]


def test_a_mistake_of_ours_is_no_finding(cli: Cli, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oh \x1b[31m no")

    monkeypatch.setattr("vizsla.index.Index.search", broken)
    code, out, err = cli("search", index, "dog")
    assert (code, out) == (70, "")
    assert "oh \\x1b[31m no" in err
    assert err.splitlines()[-1].endswith("please report it with the lines above")
