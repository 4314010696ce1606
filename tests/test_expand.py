"""Document expansion: files that grow block by block, and go on where they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from expanding import Echo, records, write
from vizsla import VizslaError, read_documents
from vizsla.expansion import ExpansionSettings, expand
from vizsla.expansion.output import ExpansionFile, settings_file
from vizsla.models.generator import Sampling
from waiting import LIMIT, eventually

THREE = Sampling(texts=3)
SCRIPT = Path(__file__).with_name("expanding.py")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "documents.jsonl", records(23))


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    """The generator that the command line opens."""
    made = Echo()
    monkeypatch.setattr("vizsla.models.generator.open_generator", lambda _: made)
    return made


def run(source: Path, output: Path, *, block: int = 4, generator: Echo | None = None, **options: object) -> Echo:
    generator = generator or Echo()
    expand(read_documents(source), output, generator, THREE, block=block, **options)  # type: ignore[arg-type]
    return generator


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


def test_documents_keep_their_fields_and_get_queries(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "expanded.jsonl"
    report = expand(read_documents(source), output, Echo(), THREE, block=4)
    expanded = lines(output)
    assert [{name: value for name, value in line.items() if name != "queries"} for line in expanded] == records(23)
    assert all(len(line["queries"]) == (3 if line["text"].strip() else 0) for line in expanded)
    assert expanded[0]["queries"][0].startswith("Title d0 0 0 "), "on one line, with the document's own random numbers"
    assert (report.documents, report.queries, report.generated) == (23, 3 * 18, 18)
    assert (report.without_text, report.cut, report.length) == (5, 2, 12)


def test_what_is_generated_together_depends_on_the_position_alone(source: Path, tmp_path: Path) -> None:
    calls = run(source, tmp_path / "a.jsonl").calls
    assert calls[:2] == [["d0", "d1", "d3"], ["d4", "d5", "d6"]]
    assert len(calls) == 6


@given(drawn=st.data())
def test_a_file_that_was_cut_anywhere_becomes_the_same_again(
    drawn: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    count, block = drawn.draw(st.integers(1, 12)), drawn.draw(st.integers(1, 5))
    source, output = write(folder / "documents.jsonl", records(count)), folder / "expanded.jsonl"
    run(source, output, block=block)
    whole = output.read_bytes()
    os.truncate(output, drawn.draw(st.integers(0, len(whole))))
    kept = output.read_bytes().count(b"\n") // block * block
    generator = run(source, output, block=block)
    assert output.read_bytes() == whole
    again = [key for call in generator.calls for key in call]
    assert not {f"d{n}" for n in range(kept)} & set(again), "whole blocks are not generated again"


def test_a_torn_line_and_a_damaged_end_are_dropped(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "expanded.jsonl"
    run(source, output)
    whole = output.read_bytes()
    parts = whole.splitlines(keepends=True)
    output.write_bytes(b"".join(parts[:9]) + b"\0" * 50 + b"\n")  # what a disk may leave when the power goes
    run(source, output)
    assert output.read_bytes() == whole
    output.write_bytes(b"".join([*parts[:5], b'{"_id": "d5"}\n', *parts[6:]]))
    with pytest.raises(VizslaError, match=r"expanded\.jsonl:6: this line is not as it was written; restore the file"):
        run(source, output)


def test_a_finished_file_is_finished(source: Path, tmp_path: Path, echo: Echo, cli: Cli) -> None:
    command = (
        "queries",
        "generate",
        source,
        "-o",
        tmp_path / "e.jsonl",
        "--model",
        "echo",
        "--queries",
        3,
        "--batch",
        4,
    )
    code, out, err = cli(*command)
    assert (code, out) == (0, "")
    assert err.splitlines()[:2] == [
        "2 documents of more than 12 tokens: echo has read the first 12 of each",
        "5 documents without text, and so without queries",
    ]
    before, calls = (tmp_path / "e.jsonl").read_bytes(), len(echo.calls)
    code, out, err = cli(*command)
    assert code == 0
    assert f"{tmp_path / 'e.jsonl'} is finished: 23 documents with 54 queries" in err
    code, out, err = cli(*command, "--json")
    facts = json.loads(out)
    assert (facts["documents"], facts["resumed"], facts["generated"], facts["cut"]) == (23, 23, 0, 2)
    assert (tmp_path / "e.jsonl").read_bytes() == before
    assert len(echo.calls) == calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", 1), "begun with the seed 0, and now it is 1"),
        (("--queries", 4), "begun with 3 queries, and now it is 4"),
        (("--top-k", 0), "begun with top-k 10, and now it is 0"),
        (("--temperature", 0.5), "begun with a temperature of 1.0, and now it is 0.5"),
        (("--batch", 5), "begun with batches of 4, and now it is 5"),
        (("--fields", "text"), "begun with the fields title/text, and now it is text"),
        (("--preset", "beir"), "begun with top-p 1.0, and now it is 0.95"),
    ],
)
def test_other_settings_are_refused(
    source: Path, tmp_path: Path, echo: Echo, cli: Cli, options: tuple[object, ...], message: str
) -> None:
    del echo
    output = tmp_path / "e.jsonl"
    command = ("queries", "generate", source, "-o", output, "--model", "echo", "--queries", 3, "--batch", 4)
    assert cli(*command)[0] == 0
    before = output.read_bytes()
    code, _, err = cli(*command, *options)
    assert code == 2
    assert f"vizsla: {output}: this file was {message}; give what it was begun with" in err
    assert output.read_bytes() == before
    assert cli(*command, *options, "--overwrite")[0] == 0
    assert output.read_bytes() != before


def test_another_generator_is_refused(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.jsonl"
    run(source, output)
    other = Echo("other")
    other.digest = "4567"
    with pytest.raises(VizslaError, match="begun with the generator echo, and now it is the generator other"):
        run(source, output, generator=other)
    other.name = "echo"
    with pytest.raises(VizslaError, match="begun with a generator echo, and now it is another one of that name"):
        run(source, output, generator=other)
    other.task = "answer"
    with pytest.raises(VizslaError, match="write the answer of a question, not queries"):
        run(source, tmp_path / "other.jsonl", generator=other)
    settings_file(output).unlink()
    with pytest.raises(VizslaError, match=r"and e\.jsonl\.expansion is not beside it.*--overwrite"):
        run(source, output)
    settings_file(output).write_text("{}")
    with pytest.raises(VizslaError, match="another version of Vizsla"):
        run(source, output)


def test_changed_documents_are_refused(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.jsonl"
    run(source, output)
    made = records(23)
    changed = [{**record, "text": "Other text."} if record["_id"] == "d4" else record for record in made]
    swapped = [*made[:2], made[3], made[2], *made[4:]]
    for documents, message in (
        (changed, "the document 'd4' has changed since it was expanded; write to another file"),
        (swapped, "the source has the document 'd3' where it had 'd2', so documents were added, removed or reordered"),
        (made[1:], "the source has the document 'd1' where it had 'd0'"),
        (made[:-1], "has the document 'd22', and the source has ended before it"),
    ):
        with pytest.raises(VizslaError, match=message):
            run(write(source, documents), output)


def test_a_source_that_has_grown_at_its_end_is_gone_on_with(source: Path, tmp_path: Path) -> None:
    output, at_once = tmp_path / "e.jsonl", tmp_path / "at-once.jsonl"
    run(write(source, records(10)), output)
    run(write(source, records(23)), output)
    run(source, at_once)
    assert output.read_bytes() == at_once.read_bytes()


def test_two_writers(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.jsonl"
    with (
        ExpansionFile(output, ExpansionSettings("echo", "0123", THREE)),
        pytest.raises(VizslaError, match=r"e\.jsonl: another vizsla queries generate is writing this file"),
    ):
        run(source, output)
    run(source, output)


def test_documents_that_cannot_be_expanded_are_refused_before_anything_is_generated(
    tmp_path: Path, echo: Echo, cli: Cli
) -> None:
    output = tmp_path / "e.jsonl"
    for last, message in (
        ({"_id": "x", "text": "a", "queries": ["b"]}, "the document 'x' has a field 'queries' already"),
        ({"_id": "x", "text": 7}, "the document 'x' has a field 'text' that is not a text, but the number 7"),
        ({"n": "a"}, "the document has no id"),
        ({"_id": "x", "text": "a", "weight": float("nan")}, "the document 'x' cannot be written as JSON"),
    ):
        source = write(tmp_path / "documents.jsonl", [*records(3), last])
        code, _, err = cli("queries", "generate", source, "-o", output, "--model", "echo")
        assert code == 2
        assert f"{source}:4: {message}" in err
    assert echo.calls == []
    assert not output.exists()


def test_outputs_that_cannot_be_gone_on_with_are_refused(source: Path, tmp_path: Path, echo: Echo, cli: Cli) -> None:
    del echo
    for output, message in (
        ("-", "- is standard output"),
        (tmp_path / "e.jsonl.gz", "name a file that ends in .jsonl"),
        (tmp_path / "no" / "e.jsonl", "its folder does not exist"),
        (source, "this file is also an input"),
    ):
        code, _, err = cli("queries", "generate", source, "-o", output, "--model", "echo")
        assert code == 2
        assert message in err
    code, _, err = cli("queries", "generate", tmp_path, "-o", tmp_path / "e.jsonl", "--model", "echo")
    assert (code, "this file is inside the source" in err) == (2, True)
    code, _, err = cli(
        "queries", "generate", source, "-o", tmp_path / "e.jsonl", "--model", "echo", "--preset", "dot5query"
    )
    assert (code, "unknown preset 'dot5query'; did you mean 'doct5query'?" in err) == (2, True)


def test_pipes_and_tables(tmp_path: Path, echo: Echo, cli: Cli) -> None:
    del echo
    pipe, table = tmp_path / "documents.pipe", tmp_path / "documents.csv"
    text = "key,body,year\n1,Dogs bark.,1999\n2,Cats purr.,2001\n"
    table.write_text(text)
    os.mkfifo(pipe)
    options = ("--format", "csv", "--id-field", "key", "--text-field", "body", "--model", "echo", "--queries", 2)
    outputs = []
    for n, source in enumerate((table, pipe, pipe)):
        writer = threading.Thread(target=lambda: pipe.write_text(text))
        if source == pipe:
            writer.start()
        outputs.append(tmp_path / f"{min(n, 1)}.jsonl")
        assert cli("queries", "generate", source, "-o", outputs[-1], *options)[0] == 0
        if source == pipe:
            writer.join()
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    first = lines(outputs[0])[0]
    assert {name: first[name] for name in ("_id", "text", "year")} == {"_id": "1", "text": "Dogs bark.", "year": 1999}


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    made = [{"_id": str(n), "text": f"word{n} " * 30_000} for n in range(20)]
    source, output = write(tmp_path / "documents.jsonl", made), small_disk / "e.jsonl"
    with pytest.raises(VizslaError, match=r"cannot be written \(No space left on device\); run the same command again"):
        run(source, output, block=2)
    size = output.stat().st_size
    assert 0 < size < 3 << 20
    assert output.read_bytes().count(b"\n") % 2 == 0, "no half block is left"
    moved = tmp_path / "e.jsonl"
    for file, to in ((output, moved), (settings_file(output), settings_file(moved))):
        to.write_bytes(file.read_bytes())
    generator = run(source, moved, block=2)
    run(source, tmp_path / "at-once.jsonl", block=2)
    assert moved.read_bytes() == (tmp_path / "at-once.jsonl").read_bytes()
    assert 0 < len(generator.calls) < 10


def test_killed_twice_and_gone_on_with_the_file_is_the_same(tmp_path: Path) -> None:
    source, output = write(tmp_path / "documents.jsonl", records(60)), tmp_path / "e.jsonl"
    command = [
        sys.executable,
        SCRIPT,
        "1",
        "queries",
        "generate",
        source,
        "-o",
        output,
        "--model",
        "echo",
        "--batch",
        "2",
    ]
    sizes = []
    for _ in range(2):
        before = output.stat().st_size if output.exists() else 0
        process = subprocess.Popen([*map(str, command), "--queries", "3"], stderr=subprocess.PIPE)
        eventually(lambda size=before: output.exists() and output.stat().st_size > size)
        process.kill()
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == -signal.SIGKILL, err.decode()
        sizes.append(output.stat().st_size)
    run(source, tmp_path / "at-once.jsonl", block=2)
    whole = (tmp_path / "at-once.jsonl").read_bytes()
    assert 0 < sizes[0] < sizes[1] < len(whole)
    generator = run(source, output, block=2)
    assert output.read_bytes() == whole
    assert 0 < len(generator.calls) <= 28, "what was written is not generated again"
