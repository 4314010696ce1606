"""Run what the README and the docs show: every console and Python block, from top to bottom.

    python docs/run.py [FILE.md ...] [--no-install]

Each file is run in a fresh clone of the last commit, with a home of its own in which `data` is $VIZSLA_DATA, or empty.
A block runs in an environment that has what the page's lines `pip install ...` up to here install, and nothing else.
Environments are kept in .venv-docs for all pages with the same lines. With --no-install such lines and those with
`make` are left out, and blocks run in the environment of this Python.

A block fails if a command does; a block whose commands begin with `$`, or a Python session, also if something else
comes out than it shows. What stands in front of a block decides how it is taken:

    <!-- not run: REASON -->             it is only shown; the reason is listed at the end
    <!-- needs: scifact, nfcorpus -->    it is run where these data sets are, and listed elsewhere
    <!-- file: NAME -->                  it is a file; those of the README are there for all

Blocks of other languages are only shown; indented blocks are refused, so that none is overlooked.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-docs"
KERNELS = {"VIZSLA_KERNEL_CACHE": str(ENVIRONMENTS / "kernels")}
"""Compiled kernels are the same in all environments."""
SOURCES = ("src", "weights", "pyproject.toml", "constraints.txt")
"""What an environment depends on, beside the lines of a page."""
NOTE = re.compile(r"<!-- (not run|needs|file): (.+) -->")
INSTALL = re.compile(r"^pip install .*\n", re.MULTILINE)
MAKE = re.compile(r"^make .*\n", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.(\d+))?)(%?)[-+*]?(?!\w)")
"""A figure, its decimals, whether it is a percentage; a mark of significance may follow."""
SHELL = "set -eu -o pipefail\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n"
SESSION = (
    "import doctest, sys\n"
    "flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS\n"
    "sys.exit(doctest.testfile(sys.argv[1], module_relative=False, optionflags=flags).failed > 0)\n"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown file, and what the comment before it says of it."""

    place: str
    language: str
    text: str
    note: str = ""
    value: str = ""


class Failed(Exception):
    """A block did not do what it shows."""


def blocks(file: Path) -> Iterator[Block]:
    """The fenced blocks of a Markdown file, in their order."""
    lines = file.read_text().split("\n")
    place = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
    number = 0
    while number < len(lines):
        start, line = number, lines[number]
        number += 1
        if line.startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            raise SystemExit(f"{place}:{number}: an indented block, which nobody runs; put it between ```")
        if not line.startswith("```"):
            continue
        while not lines[number].startswith("```"):
            number += 1
        text = "\n".join(lines[start + 1 : number]) + "\n"
        number += 1
        note = NOTE.fullmatch(lines[start - 1].strip()) if start else None
        yield Block(f"{place}:{start + 1}", line[3:].strip(), text, *(note.groups() if note else ()))


@dataclass
class Page:
    """Where the blocks of a page are run: a clone of the repository, and an environment that grows with the page."""

    clone: Path
    install: bool = True
    installed: list[str] = field(default_factory=list)
    """The lines that have installed something, up to here."""

    def run(self, block: Block) -> str | None:
        """Run a block; why it was not run, or None."""
        if block.note == "file":
            (self.clone / block.value).write_text(block.text)
        elif block.note == "not run":
            return block.value
        elif block.note == "needs" and (absent := missing(block.value)):
            return f"needs {', '.join(absent)}"
        elif block.language == "python":
            self.run_python(block.text)
        elif block.text.startswith("$ "):
            self.run_transcript(block.text)
        else:
            return self.run_commands(block.text)
        return None

    def run_commands(self, text: str) -> str | None:
        """Commands, of which those that install something come first; which ones were left out, or None."""
        lines = [line.partition("  #")[0].strip() for line in INSTALL.findall(text)]
        text = INSTALL.sub("", text)
        left_out = None
        if self.install:
            environment([*self.installed, *lines], self.clone)
            self.installed += lines
        else:
            lines += [line.partition("  #")[0].strip() for line in MAKE.findall(text)]
            text = MAKE.sub("", text)
            left_out = f"--no-install ({', '.join(lines)})" if lines else None
        self.execute(["bash", "-c", SHELL + text])
        return left_out

    def run_python(self, text: str) -> None:
        """A script, or a session whose answers are compared."""
        script = self.clone / "block.py"
        script.write_text(text)
        self.execute(["python", *(["-c", SESSION] if text.startswith(">>> ") else []), str(script)])

    def run_transcript(self, text: str) -> None:
        """Commands after `$`, each with what a terminal shows of it."""
        for command, shown in re.findall(r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            printed = self.execute(["bash", "-c", f"exec 2>&1\n{SHELL}{command}"])
            if (difference := differs(shown, printed)) is not None:
                raise Failed(f"{command.strip()}\n{difference}\nprinted:\n{printed}")

    def execute(self, command: list[str]) -> str:
        """Standard output of a command; an error if it fails."""
        home = self.clone.parent / "home"
        own = {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path("~/.cache/pip").expanduser())),
            "VIZSLA_DATA": str(home / "data"),
        }
        if self.install:
            return execute(command, self.clone, environment(self.installed, self.clone), own | KERNELS)
        return execute(command, self.clone, Path(sys.executable).parent, own)


def missing(needs: str) -> list[str]:
    """Which of these data sets are not here."""
    data = Path(os.environ.get("VIZSLA_DATA", os.devnull))
    return [name for name in needs.split(", ") if not (data / name).is_dir()]


def environment(lines: list[str], clone: Path) -> Path:
    """The programs of an environment in which these lines were run, and no others; it is made once, by one process."""
    sources = git("rev-parse", *(f"HEAD:{name}" for name in SOURCES), folder=clone)
    digest = hashlib.sha256("\n".join([sys.version, sources, *lines]).encode()).hexdigest()
    folder = ENVIRONMENTS / digest[:16]
    programs = folder / "bin"
    ENVIRONMENTS.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            without_pip = () if lines else ("--without-pip",)  # which takes seconds to install
            execute([sys.executable, "-m", "venv", *without_pip, str(folder)], clone, programs)
            for line in lines:
                execute(["bash", "-c", SHELL + line], clone, programs, KERNELS)
            (folder / "ready").write_text("".join(f"{line}\n" for line in lines))
    return programs


def execute(command: list[str], folder: Path, programs: Path, own: dict[str, str] | None = None) -> str:
    """Standard output of a command that finds these programs first; an error if it fails."""
    variables = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"} | (own or {})
    if programs != Path(sys.executable).parent:
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):  # those of this Python
            variables.pop(name, None)
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as said,
    ):  # no pipes, which servers would hold
        started = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = started.wait()
        finally:
            with suppress(ProcessLookupError):  # what a block has left running
                os.killpg(started.pid, signal.SIGTERM)
        out.seek(0)
        said.seek(0)
        printed, error = out.read(), said.read()
    if code:
        raise Failed(f"exit code {code}\n{printed[-2000:]}{error[-4000:]}")
    return printed


def git(*arguments: str, folder: Path = ROOT) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def differs(shown: str, printed: str) -> str | None:
    """The first words that are not what was shown, but for blanks, line breaks and what `about` allows figures."""
    theirs, ours = shown.split(), printed.split()
    if theirs[-1:] == ["..."]:  # only the beginning is shown
        theirs, ours = theirs[:-1], ours[: len(theirs) - 1]
    for i, (a, b) in enumerate(zip_longest(theirs, ours, fillvalue="")):
        if a != b and not about(a, b):
            near = slice(max(i - 5, 0), i + 5)
            return f"shown:   {' '.join(theirs[near])}\nprinted: {' '.join(ours[near])}"
    return None


def about(shown: str, printed: str) -> bool:
    """Whether words are the same but for figures as an 8-bit network makes them, a little different on each processor.

    Figures may differ by 0.005, points and percentages by one, and be marked as significant or not; counts may not.
    """
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    for a, b in zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True):
        allowed = 1 if a[3] or len(a[2] or "") == 1 else 0.005 if a[2] else 0
        if abs(float(a[1].replace(",", "")) - float(b[1].replace(",", ""))) > allowed:
            return False
    return True


def lay_out(folder: Path, install: bool) -> Page:
    """A clone of the last commit, the README's files in it, and beside it a home with the data sets."""
    page = Page(folder / "vizsla", install)
    git("clone", "--quiet", "--shared", str(ROOT), str(page.clone))
    home = folder / "home"
    home.mkdir()
    if "VIZSLA_DATA" in os.environ:
        (home / "data").symlink_to(Path(os.environ["VIZSLA_DATA"]).absolute())
    else:
        (home / "data").mkdir()
    for block in blocks(ROOT / "README.md"):
        if block.note == "file":
            page.run(block)
    return page


def run_file(file: Path, install: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Run a file's blocks: the places of those that failed, and of those not run with the reason."""
    failed, left, fine = [], [], 0
    with tempfile.TemporaryDirectory(prefix="vizsla-docs-") as temporary:
        page = lay_out(Path(temporary), install)
        for block in blocks(file):
            if block.note != "file" and block.language not in ("console", "python"):
                continue
            started = time.perf_counter()
            try:
                reason = page.run(block)
            except Failed as e:
                failed.append(block.place)
                print(f"{block.place}: FAILED\n{e}\n", flush=True)
                continue
            if reason:
                left.append((block.place, reason))
            else:
                fine += 1
                print(f"{block.place}: fine ({time.perf_counter() - started:.0f} s)", flush=True)
    print(f"{file.name}: {fine} fine, {len(failed)} failed, {len(left)} not run", flush=True)
    return failed, left


def main() -> None:
    parser = argparse.ArgumentParser(description="Run what the README and the docs show.")
    parser.add_argument("files", nargs="*", type=Path, help="all unless named")
    parser.add_argument("--no-install", action="store_true", help="take this environment as it is")
    options = parser.parse_args()
    files = [f.resolve() for f in options.files] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if git("status", "--porcelain"):
        print("Clones are of the last commit, without what has changed since.", flush=True)
    failed, left = [], []
    for file in files:
        outcome = run_file(file, not options.no_install)
        failed += outcome[0]
        left += outcome[1]
    if left:
        print("\nNot run:")
    for reason, places in groupby(sorted(left, key=lambda x: x[1]), key=lambda x: x[1]):
        print(f"  {reason}: {', '.join(place for place, _ in places)}")
    print(f"\n{len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
