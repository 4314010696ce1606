"""The command line among terminals, pipes, encodings and signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Cli
from waiting import LIMIT


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
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the terminal closed
            break
    assert process.wait(LIMIT) == 0
    os.close(ours)
    assert b"vizsla> " in seen
    assert b"\x1b[1;33mcat\x1b[0m" in seen  # a match, marked
    assert "purring cats" in (tmp_path / "state" / "vizsla" / "history").read_text()


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


@pytest.mark.slow
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
    assert len(cli("run", "fuse", "a.trec", "a.trec", "-o", "-")[1].splitlines()) == len(run.splitlines())
    vectors = cli("export", index, "-o", "-")[1].splitlines()
    assert [json.loads(line)["id"] for line in vectors] == ["d1", "d2", "d3", "d4"]
    assert not (tmp_path / "-").exists()


def test_output_that_is_closed_or_full(index: Path) -> None:
    program = f"'{sys.executable}' -m vizsla search '{index}' dog"
    for redirection, code in ((">&-", 0), ("2>&-", 0), ("--json >/dev/full", 2), ("--json | head -n 1", 0)):
        command = f"{program} {redirection}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


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
        _, err = process.communicate(timeout=LIMIT)
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
