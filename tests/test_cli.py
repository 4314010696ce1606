"""The command line as a user meets it: what goes where, and one clear sentence for each mistake."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import vizsla
from conftest import Cli
from vizsla.runs import Document, FilterLike, Hit, Retriever


@pytest.fixture
def corpus(tmp_path: Path, documents: list[dict[str, object]]) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(d) + "\n" for d in documents))
    return file


@pytest.fixture
def index(cli: Cli, corpus: Path, tmp_path: Path) -> Path:
    code, out, err = cli("index", corpus, "-o", tmp_path / "i")
    assert (code, out) == (0, "")
    assert "4 documents in" in err
    assert f"vizsla search {tmp_path / 'i'}" in err
    cli("search", tmp_path / "i", "dog")  # on a new machine this compiles kernels and says so
    return tmp_path / "i"


def test_search_shows_results(cli: Cli, index: Path) -> None:
    code, out, err = cli("search", index, "barking dogs")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["1.", "Dogs", "d1", out.splitlines()[0].split()[-1]]
    assert "A dog barks at the other dogs." in out


def test_search_as_json(cli: Cli, index: Path) -> None:
    code, out, _ = cli("search", index, "barking dogs", "--json", "-k", 1)
    found = json.loads(out)
    assert code == 0
    assert found["query"] == "barking dogs"
    (result,) = found["results"]
    assert (result["rank"], result["id"], result["document"]["year"]) == (1, "d1", 1999)
    with vizsla.Index.open(index) as opened:
        assert result["score"] == pytest.approx(opened.search("barking dogs")[0].score)


def test_milliseconds_are_of_the_search_alone(cli: Cli, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search of a process loads what it needs; that is told apart."""
    search, calls = vizsla.Index.search, []

    def slow_at_first(*arguments: object) -> object:
        calls.append(1)
        time.sleep(0.3 if len(calls) == 1 else 0)
        return search(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(vizsla.Index, "search", slow_at_first)
    found = json.loads(cli("search", index, "barking dogs", "--json")[1])
    assert 0 < found["milliseconds"] < 300 <= found["loading_milliseconds"]


def test_search_a_file_of_queries(cli: Cli, index: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("1\tdog\n2\txyzzy\n3\tcats\n")
    code, out, err = cli("search", index, "--queries", tmp_path / "q.tsv", "--output", tmp_path / "run.trec")
    assert (code, out) == (0, "")
    assert "3 queries" in err
    assert "1 query found nothing" in err
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert [(line[0], line[2], line[3]) for line in lines] == [("1", "d1", "1"), ("1", "d3", "2"), ("3", "d2", "1")]


def test_queries_from_standard_input(cli: Cli, index: Path) -> None:
    stdin = "vizsla\n:explain 1\n:show 1\n:k 1\ndog\n:explain 9\n:nonsense\n:quit\nnever read\n"
    code, out, err = cli("search", index, stdin=stdin)
    assert code == 0
    assert "The vizsla is a dog" in out
    assert "(in 1 document)" in out
    assert '"id": "d3"' in out
    assert "result 9 does not exist; the last query has 1" in err
    assert ":explain N" in err


def test_the_prompt_in_a_terminal_keeps_a_history(index: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "vizsla"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"}
    process = subprocess.Popen(
        [program, "search", index], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    os.write(ours, b"purring cats\n:quit\n")
    seen = b""
    end = time.time() + 60
    while time.time() < end:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the terminal closed
            break
    assert process.wait(10) == 0
    os.close(ours)
    assert b"vizsla> " in seen
    assert b"\x1b[1;33mcat\x1b[0m" in seen  # a match, marked
    assert "purring cats" in (tmp_path / "state" / "vizsla" / "history").read_text()


def test_explain(cli: Cli, index: Path) -> None:
    code, out, _ = cli("explain", index, "dogs bark xyzzy", "d1")
    assert code == 0
    assert "xyzzi  in no document" in out
    code, out, _ = cli("explain", index, "dogs bark xyzzy", "d1", "--json")
    tree = json.loads(out)
    assert tree["score"] == pytest.approx(sum(p["score"] for p in tree["parts"]))
    assert [p["term"] for p in tree["parts"]] == ["dog", "bark", "xyzzi"]


def test_info(cli: Cli, index: Path) -> None:
    code, out, _ = cli("info", index)
    assert code == 0
    assert "documents" in out
    facts = json.loads(cli("info", index, "--json")[1])
    assert (facts["documents"], facts["model"], facts["segments"]) == (4, "bm25", 1)


def test_analyze(cli: Cli) -> None:
    code, out, _ = cli("analyze", "The dogs' bones", "--json")
    assert (code, json.loads(out)) == (0, {"tokens": ["dog", "bone"], "offsets": [[4, 8], [10, 15]]})
    assert cli("analyze", "-", "-a", "whitespace", stdin="a [b]")[1].split() == ["0-1", "a", "2-5", "[b]"]


class Echo(Retriever):
    """Finds for each query a document that repeats it."""

    name = "echo"

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[list[Hit]]:
        assert filter is None
        found = [[Hit(1, 1.5, Document("e1", {"title": "Echo", "text": query * 100}))][:k] for query in queries]
        return [[] if query == "silence" else hits for query, hits in zip(queries, found, strict=True)]

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        return {str(i): Document(str(i), {"text": "echo"}) for i in ids}

    def __len__(self) -> int:
        return 1


def test_whatever_can_be_searched_is_searched(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("search", "explain"):
        monkeypatch.setattr(f"vizsla.cli.{verb}.open_retriever", lambda _: Echo())
    code, out, err = cli("search", "anywhere", "dog")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["1.", "Echo", "e1", "1.5000"]
    assert out.splitlines()[1].strip().startswith("dogdog")
    assert json.loads(cli("search", "anywhere", "dog", "--json")[1])["model"] == "echo"
    assert cli("search", "anywhere", "silence")[1:] == ("", "nothing found\n")
    assert '"id": "e1"' in cli("search", "anywhere", stdin="dog\n:show 1\n")[1]
    (tmp_path / "q.tsv").write_text("1\tdog\n")
    assert cli("search", "anywhere", "--queries", tmp_path / "q.tsv", "-o", "-")[1] == "1 Q0 e1 1 1.5 echo\n"
    for arguments, message in (
        (("search", "anywhere", "dog", "-m", "bm25"), "echo is not an index"),
        (("explain", "anywhere", "dog", "e1"), "echo cannot explain its scores"),
    ):
        code, out, err = cli(*arguments)
        assert (code, out) == (2, "")
        assert message in err


@pytest.fixture
def dataset(corpus: Path) -> Path:
    folder = corpus.parent
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "vizsla"}\n{"_id": "q2", "text": "xyzzy"}\n')
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td3\t1\nq2\td1\t1\n")
    return folder


def test_eval(cli: Cli, dataset: Path, index: Path) -> None:
    code, out, _ = cli("eval", dataset, "--json", "--output", dataset / "run.trec")
    found = json.loads(out)
    assert code == 0
    assert found["measures"] == {"nDCG@10": 0.5, "R@100": 0.5}
    assert (found["model"], found["dataset"], found["queries"], found["missing"]) == ("bm25", dataset.name, 2, 1)
    assert json.loads(cli("eval", dataset, "--index", index, "--json")[1])["measures"] == found["measures"]
    by_run = json.loads(cli("eval", dataset, "--run", dataset / "run.trec", "--measures", "RR", "--json")[1])
    assert by_run["measures"] == {"RR": 0.5}
    code, out, err = cli("eval", dataset, "--model", "bm25-multifield")
    assert code == 0
    assert "0.5000" in out
    assert "1 of them with nothing found" in err


def test_recipes(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    assert "bm25-multifield" in cli("recipes")[1]
    recipe = tmp_path / "mine.yaml"
    expected = "{%s: {figures: {nDCG@10: %s}, tolerance: 0.01, source: here}}"
    for figure, code in [(0.5, 0), (0.9, 1)]:
        recipe.write_text(f"name: mine\ntitle: t\nmodel: bm25\nexpected: {expected % (dataset.name, figure)}\n")
        found, out, _ = cli("recipes", "check", recipe, "--data", dataset.parent)
        assert found == code
        assert ("ok" in out) == (code == 0)
    recipe.write_text(f"name: mine\ntitle: t\nmodel: bm25(k1=-1)\nexpected: {expected % (dataset.name, 0.5)}\n")
    found, out, err = cli("recipes", "check", recipe, "--data", dataset.parent)
    assert found == 1  # what cannot be checked has not passed
    assert "cannot be checked" in out
    assert "k1 must be 0 or more" in err


def test_recipes_of_models_that_are_trained(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    recipe, models = tmp_path / "mine.yaml", tmp_path / "models"
    expected = f"{{{dataset.name}: {{figures: {{nDCG@10: 0.5}}, tolerance: 0.01, source: here}}}}"
    recipe.write_text(
        "name: mine\ntitle: t\ntrained: {my-bm: train bm26 --corpus x}\n"
        f"model: bm25(namespace=other) + 0.5 * my-bm\nexpected: {expected}\n"
    )
    code, out, err = cli("recipes", "check", recipe, "--data", dataset.parent, "--models", models)
    assert code == 0
    assert "not here" in out
    assert f"there is no {models / 'my-bm'}; to make it: vizsla train bm26 --corpus x" in " ".join(err.split())
    vizsla.BM25(k1=2.0).save(models / "my-bm")
    code, out, _ = cli("recipes", "check", recipe, "--data", dataset.parent, "--models", models)
    assert code == 0
    assert "ok" in out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"_id": "1", "text": "x"}\n{"_id": \n', "bad.jsonl:2: this line is not JSON"),
        ('{"text": "x"}\n', "bad.jsonl:1: the document has no id"),
        ('{"_id": "1"}\n', "bad.jsonl:1: the document '1' has no text; expected a field 'text' or 'contents'"),
        ('{"_id": "1", "text": "x"}\n{"_id": "1", "text": "y"}\n', "bad.jsonl:2: the id '1' appears a second time"),
    ],
)
def test_bad_documents_leave_nothing_behind(cli: Cli, tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "bad.jsonl").write_text(lines)
    code, out, err = cli("index", tmp_path / "bad.jsonl", "-o", tmp_path / "i")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "i").exists()


def test_empty_documents_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"_id": "1", "text": "dog"}\n{"_id": "2", "text": ""}\n{"_id": "3", "text": "-"}\n'
    )
    code, _, err = cli("index", tmp_path / "x.jsonl", "-o", tmp_path / "i")
    assert code == 0
    assert "x.jsonl:2: the document '2' has no words to be found by (2 such documents)" in err


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
        (["eval", "FOLDER", "--measures", "Acc@5"], "Acc@5 needs answers"),
        (["eval", "missing.jsonl", "--index", "INDEX"], "missing.jsonl: this file does not exist"),
        (["eval", "CORPUS"], "name it with --index INDEX"),
        (["eval", "CORPUS", "--index", "INDEX", "--limit", "0"], "must be 1 or more, not 0"),
        (["eval", "CORPUS", "--index", "INDEX", "--measures", "nDCG@10"], "nDCG@10 needs judgements"),
        (["eval", "CORPUS", "--index", "INDEX", "--measures", " "], "names no measure"),
        (["eval", "CORPUS", "--index", "INDEX", "--split", "dev"], "are for data sets"),
        (["eval", "CORPUS", "--run", "x", "--combine", "rrf"], "a run has been searched already"),
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
        (["delete", "INDEX"], "no id was given"),
        (["add", "missing", "CORPUS"], "missing: this folder does not exist"),
        (["explain", "INDEX", "", "d1"], "the query is empty"),
        (["index", "CORPUS", "-o", "x", "--memory", "1e400"], "'1e400' is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "nan"], "'nan' is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "9" * 400 + "GB"], "is not a size"),
        (["index", "CORPUS", "-o", "x", "--memory", "0"], "'0' is not a size"),
        (["index", "CORPUS", "-o", "-"], "- is standard output, and an index is a folder"),
        (["demo", "-o", "-"], "- is standard output, and an index is a folder"),
        (["export", "INDEX", "--format", "npz", "-o", "-"], "only jsonl can go to standard output"),
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


def test_overwriting_replaces_only_when_the_new_index_is_there(cli: Cli, index: Path, corpus: Path) -> None:
    def found() -> list[str]:
        return [r["id"] for r in json.loads(cli("search", index, "vizsla", "--json")[1])["results"]]

    before = found()
    for arguments in [(corpus, corpus), (corpus, "--model", "bm52"), ("missing.jsonl",)]:
        assert cli("index", *arguments, "-o", index, "--overwrite")[0] == 2
        assert found() == before
    corpus.write_text('{"id": "new", "text": "vizsla"}\n')
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert found() == ["new"]
    assert sorted(p.name for p in index.parent.iterdir() if p.name.startswith(".")) == []


def test_what_is_no_index_is_never_touched(cli: Cli, index: Path, corpus: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    sqlite3.connect(foreign / "index.db").execute("CREATE TABLE x (y)").connection.close()
    (index / "NOTES.txt").write_text("mine")
    for folder in (foreign, index):
        code, _, err = cli("index", corpus, "-o", folder, "--overwrite")
        assert code == 2
        assert "holds something that is not an index" in err
    assert (foreign / "index.db").exists()
    assert (index / "NOTES.txt").read_text() == "mine"


def test_the_life_of_an_index(cli: Cli, index: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text(
        '{"id": "d1", "text": "A newer dog.", "year": 2020}\n{"id": "d5", "text": "Another dog.", "year": 1950}\n'
    )
    code, out, err = cli("add", index, more)
    assert (code, out) == (0, "")
    assert "2 documents in" in err
    assert "1 of them replacing others" in err
    found = json.loads(cli("search", index, "dog", "--filter", "year > 1960", "--json")[1])["results"]
    assert [r["id"] for r in found] == ["d1"]
    assert "(1 deleted or replaced, not yet compacted away)" in cli("info", index)[1]
    assert "words: dog" in cli("info", index, "--terms", "dogs")[1]
    code, _, err = cli("delete", index, "d5", "nope")
    assert (code, err) == (0, "1 document deleted; 1 of the ids was not there\n")
    (tmp_path / "ids.txt").write_text("d2\n")
    assert cli("delete", index, "--ids", tmp_path / "ids.txt")[0] == 0
    assert cli("compact", index)[0] == 0
    facts = json.loads(cli("info", index, "--json")[1])
    assert (facts["documents"], facts["deleted"], facts["segments"]) == (3, 0, 1)
    code, _, err = cli("verify", index)
    assert code == 0
    assert "all is well: 3 documents" in err
    (postings,) = index.glob("segments/*/small_postings.npy")
    postings.write_bytes(postings.read_bytes()[:-1] + b"\xff")
    code, out, _ = cli("verify", index)
    assert code == 1
    assert "small_postings.npy is damaged" in out
    assert json.loads(cli("verify", index, "--json")[1])["problems"]


def test_ids_and_terms_reach_the_terminal_spelt_out(cli: Cli, tmp_path: Path) -> None:
    ids = ["[/nope]", "[bold]x[/bold]", "\x1b[2J", "two\nlines", "x" * 5000]
    lines = [json.dumps({"id": i, "text": "dog \x1b[31m \u202e", "title": "a [/b] dog"}) for i in ids]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert cli("index", tmp_path / "x.jsonl", "-o", tmp_path / "i")[0] == 0
    out = cli("search", tmp_path / "i", "dog")[1]
    assert "[/nope]" in out
    assert "[bold]x[/bold]" in out
    assert "\\x1b[2J" in out
    assert "two\\nlines" in out
    for i in ids:
        code, explained, _ = cli("explain", tmp_path / "i", "dog", i)
        assert code == 0
        out += explained
    out += cli("search", tmp_path / "i", "\x1b[5mxyzzy")[2]
    assert "\x1b" not in out
    assert "x" * 300 not in out
    assert "\u202e" not in cli("search", tmp_path / "i", "dog", "--json")[1]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_output_encoding_will_do(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": "東京", "text": "dog … 東京", "title": "Tokio – 東京"}')
    program = Path(sys.executable).parent / "vizsla"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in [
        ["index", "x.jsonl", "-o", "i"],
        ["search", "i", "dog"],
        ["search", "i", "dog", "--json"],
        ["explain", "i", "dog", "東京"],
        ["analyze", "東京", "-a", "whitespace"],
    ]:
        done = subprocess.run([program, *arguments], cwd=tmp_path, env=environment, capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


def test_interrupting_a_build_leaves_nothing(
    cli: Cli, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vizsla.index.writing.writer.Writer.commit", interrupted)
    code, _, err = cli("index", corpus, "-o", tmp_path / "new")
    assert code == 130
    assert "interrupted" in err
    assert not (tmp_path / "new").exists()


HEAVY = ("scipy", "torch", "transformers", "onnx", "onnxruntime", "pyarrow", "faiss", "ir_measures", "beir")


def test_the_demo_needs_the_light_install_alone_and_says_what_next(tmp_path: Path) -> None:
    """What is not among the dependencies is hidden; the commands at the end are then run as they stand."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dogs.md").write_text("# Dogs\nA query about dogs.")
    program = tmp_path / "bin" / "vizsla"
    program.parent.mkdir()
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({HEAVY}))\nfrom vizsla.cli import main\nmain()\n"
    program.write_text(f"#!{sys.executable}\n{hidden}")
    program.chmod(0o755)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("bin/vizsla demo")
    assert (done.returncode, "documents indexed in" in done.stderr) == (0, True), done.stderr
    assert "subprocess" in done.stdout
    assert "length norm" in done.stdout
    commands = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    assert [c.split()[:2] for c in commands] == [["bin/vizsla", verb] for verb in ("index", "search", "explain")]
    for command in commands:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)
    assert "bm25 for dogs.md" in done.stdout


def test_version(cli: Cli) -> None:
    assert cli("--version")[1] == f"vizsla {vizsla.__version__}\n"


def test_a_reader_of_the_output_may_leave_early(index: Path) -> None:
    program = Path(sys.executable).parent / "vizsla"
    command = f"'{program}' search '{index}' 'dog cat fish' | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_input_that_is_no_text(index: Path) -> None:
    """In the locale C Python lets such bytes through in disguise, in others it does not."""
    for command, locale in (
        (["delete", index, "--ids", "-"], "C.UTF-8"),
        (["analyze", "-"], "C"),
        (["search", index], "C"),
    ):
        environment = {**os.environ, "LC_ALL": locale}
        done = subprocess.run(
            [sys.executable, "-m", "vizsla", *command],
            input=b"\xff\n",
            env=environment,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (2, b"vizsla: standard input: this is not UTF-8 text\n")


def test_standard_output_as_a_file(cli: Cli, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.tsv").write_text("1\tdog\n2\tcats\n")
    code, run, err = cli("search", index, "--queries", "q.tsv", "--output", "-")
    assert code == 0
    assert run.split()[:4] == ["1", "Q0", "d1", "1"]
    assert "written to standard output" in err
    (tmp_path / "a.trec").write_text(run)
    assert len(cli("fuse", "a.trec", "a.trec", "-o", "-")[1].splitlines()) == len(run.splitlines())
    vectors = cli("export", index, "-o", "-")[1].splitlines()
    assert [json.loads(line)["id"] for line in vectors] == ["d1", "d2", "d3", "d4"]
    assert not (tmp_path / "-").exists()


def test_standard_output_is_for_one_thing(cli: Cli, dataset: Path) -> None:
    code, out, err = cli("eval", dataset, "--output", "-")
    assert (code, out) == (2, "")
    assert "figures go to standard output; name a file" in err


@pytest.mark.parametrize(("signal_name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_being_stopped_is_quiet_from_the_first_line(signal_name: str, code: int) -> None:
    """Whatever the command does at that moment: importing, which takes longest, reading, or ending."""
    starts = """
import os, sys, vizsla.cli
class Told:
    def find_spec(self, name, *_):
        if name == "vizsla.cli.app":
            os.write(1, b"x")
sys.meta_path.insert(0, Told())
sys.argv = ["vizsla", "analyze", "-"]
vizsla.cli.main()
"""
    for delay in (0.0, 0.03, 0.08, 0.15, 1.5):
        process = subprocess.Popen(
            [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.read(1)  # the entry point is there
        time.sleep(delay)
        process.send_signal(getattr(signal, signal_name))
        _, err = process.communicate(timeout=30)
        by_signal = signal_name == "SIGTERM" and process.returncode == -signal.SIGTERM  # before anybody listens
        assert process.returncode == code or by_signal, err
        assert err in (b"", b"vizsla: interrupted; nothing that was committed is lost\n")


def test_the_command_line_leaves_its_process_as_it_was(cli: Cli, index: Path) -> None:
    def state() -> list[object]:
        handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        return [*handlers, sys.excepthook, sys.unraisablehook, sys.stdout.errors, sys.stderr.errors]

    before = state()
    for arguments in (["search", index, "dog"], ["search", index, ""], ["nonsense"], ["--help"]):
        cli(*arguments)
        assert state() == before


def test_output_that_is_closed_or_full(index: Path) -> None:
    program = f"'{sys.executable}' -m vizsla search '{index}' dog"
    for redirection, code in ((">&-", 0), ("2>&-", 0), ("--json >/dev/full", 2), ("--json | head -n 1", 0)):
        command = f"{program} {redirection}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_a_mistake_of_ours_is_no_finding(cli: Cli, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oh \x1b[31m no")

    monkeypatch.setattr("vizsla.index.Index.search", broken)
    code, out, err = cli("search", index, "dog")
    assert (code, out) == (70, "")
    assert "oh \\x1b[31m no" in err
    assert err.splitlines()[-1].endswith("please report it with the lines above")


def test_a_build_that_was_killed_is_swept_by_the_next(cli: Cli, index: Path, corpus: Path) -> None:
    left = index.with_name(f".{index.name}.new-12345678")
    vizsla.Index.create(left).close()
    (left / "building.lock").touch()
    begun = index.with_name(f".{index.name}.new-abcdef01")  # a build that has not come to its mark yet
    begun.mkdir()
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert not left.exists()
    os.utime(begun, (0, 0))
    assert cli("index", corpus, "-o", index, "--overwrite")[0] == 0
    assert not begun.exists()


def test_an_index_whose_replacement_was_stopped_gets_its_name_back(cli: Cli, index: Path) -> None:
    index.rename(index.with_name(f".{index.name}.old-12345678"))
    code, out, _ = cli("search", index, "vizsla")
    assert code == 0
    assert "d3" in out
