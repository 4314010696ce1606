"""The command line as a user meets it: searching, explaining, and the life of an index."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

import vizsla
from conftest import Cli
from vizsla import Document, Hit, Retriever
from vizsla.runs import FilterLike


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
    search, durations = vizsla.Index.search, iter((0.3, 0.002))
    now = 5.0

    def lasting(*arguments: object, **options: object) -> object:
        nonlocal now
        now += next(durations)
        return search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(vizsla.Index, "search", lasting)
    monkeypatch.setattr("vizsla.cli.search.time", SimpleNamespace(perf_counter=lambda: now))
    found = json.loads(cli("search", index, "barking dogs", "--json")[1])
    assert (found["milliseconds"], found["loading_milliseconds"]) == (2.0, 300.0)


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
    monkeypatch.setattr("vizsla.cli.search.open_retriever", lambda _: Echo())
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


def test_indexing_says_what_was_done_and_what_comes_next(cli: Cli, corpus: Path, tmp_path: Path) -> None:
    code, out, err = cli("index", corpus, "-o", tmp_path / "i")
    assert (code, out) == (0, "")
    assert "4 documents in" in err
    assert f"vizsla search {tmp_path / 'i'}" in err


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
    assert cli("delete", index, "--filter", "year = 2020")[2] == "1 document deleted\n"
    assert cli("compact", index)[0] == 0
    facts = json.loads(cli("info", index, "--json")[1])
    assert (facts["documents"], facts["deleted"], facts["segments"]) == (2, 0, 1)
    code, _, err = cli("verify", index)
    assert code == 0
    assert "no damage found: 2 documents" in err
    (postings,) = index.glob("segments/*/small_blocks.npy")
    postings.write_bytes(postings.read_bytes()[:-1] + b"\xff")
    code, out, _ = cli("verify", index)
    assert code == 1
    assert "small_blocks.npy is damaged" in out
    assert json.loads(cli("verify", index, "--json")[1])["problems"]


HEAVY = ("scipy", "torch", "transformers", "onnx", "onnxruntime", "pyarrow", "faiss", "ir_measures", "beir")


@pytest.mark.slow
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
    verbs = ("index", "search", "explain", "serve")
    assert [c.split()[:2] for c in commands] == [["bin/vizsla", verb] for verb in verbs]
    with vizsla.Index.open(shlex.split(commands.pop())[2]) as index:
        assert index.search("subprocess")
    for command in commands:
        done = run(command)
        assert done.returncode == 0, (command, done.stderr)
    assert "bm25 for dogs.md" in done.stdout


def test_version(cli: Cli) -> None:
    assert cli("--version")[1] == f"vizsla {vizsla.__version__}\n"
