"""Run what the README and the docs show: every console and Python block, from top to bottom.

    python docs/run.py [FILE.md ...] [--no-install]

Each file is run in a fresh copy of the repository, in the environment of this Python, with a home of its own in which
`data` is $VIZSLA_DATA, or empty. A block fails if a command does; a block whose commands begin with `$`, or a Python
session, also if something else comes out than it shows. What stands in front of a block decides how it is taken:

    <!-- not run: REASON -->         it is only shown; the reason is listed at the end
    <!-- needs: scifact, torch -->   it is run where these data sets and Python packages are, and listed elsewhere
    <!-- file: NAME -->              it is a file; those of the README are there for all

Blocks of other languages are only shown; indented blocks are refused, so that none is overlooked.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = re.compile(r"<!-- (not run|needs|file): (.+) -->")
NUMBER = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.(\d+))?)(%?)[-+*]?(?!\w)")
"""A figure, its decimals, whether it is a percentage; a mark of significance may follow."""
COMPILING = "vizsla: compiling kernels"
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


def missing(needs: str) -> list[str]:
    """Which of these data sets and packages are not here."""
    importlib.invalidate_caches()  # a block before this one may have installed it
    data = Path(os.environ.get("VIZSLA_DATA", os.devnull))
    return [n for n in needs.split(", ") if not ((data / n).is_dir() or importlib.util.find_spec(n))]


def run(block: Block, folder: Path) -> str | None:
    """Run a block in a folder; why it was not run, or None."""
    if block.note == "file":
        (folder / block.value).write_text(block.text)
    elif block.note == "not run":
        return block.value
    elif block.note == "needs" and (absent := missing(block.value)):
        return f"needs {', '.join(absent)}"
    elif block.language == "python":
        run_python(block.text, folder)
    elif block.text.startswith("$ "):
        run_transcript(block.text, folder)
    else:
        execute(["bash", "-c", SHELL + block.text], folder)
    return None


def run_python(text: str, folder: Path) -> None:
    """A script, or a session whose answers are compared."""
    script = folder / "block.py"
    script.write_text(text)
    execute([sys.executable, *(["-c", SESSION] if text.startswith(">>> ") else []), str(script)], folder)


def run_transcript(text: str, folder: Path) -> None:
    """Commands after `$`, each with what a terminal shows of it."""
    for command, shown in re.findall(r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        printed = execute(["bash", "-c", f"exec 2>&1\n{SHELL}{command}"], folder)
        if (difference := differs(shown, printed)) is not None:
            raise Failed(f"{command.strip()}\n{difference}\nprinted:\n{printed}")


def differs(shown: str, printed: str) -> str | None:
    """The first words that are not what was shown, but for blanks, line breaks and what `about` allows figures."""
    lines = (line for line in printed.split("\n") if not line.startswith(COMPILING))
    theirs, ours = shown.split(), " ".join(lines).split()
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


def execute(command: list[str], folder: Path) -> str:
    """Standard output of a command; an error if it fails."""
    home = folder.parent / "home"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path("~/.cache/pip").expanduser())),
        "VIZSLA_DATA": str(home / "data"),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def lay_out(folder: Path) -> None:
    """A copy of the repository, the README's files in it, and beside it a home with the data sets."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    home = folder.parent / "home"
    home.mkdir()
    if "VIZSLA_DATA" in os.environ:
        (home / "data").symlink_to(Path(os.environ["VIZSLA_DATA"]).absolute())
    else:
        (home / "data").mkdir()
    for block in blocks(ROOT / "README.md"):
        if block.note == "file":
            run(block, folder)


def without_installing(block: Block) -> tuple[Block, list[str]]:
    """A block without the lines that install something, and these lines."""
    lines = block.text.split("\n")
    left_out = [line for line in lines if re.match(r"(pip|make) ", line)]
    return replace(block, text="\n".join(line for line in lines if line not in left_out)), left_out


def run_file(file: Path, install: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Run a file's blocks: the places of those that failed, and of those not run with the reason."""
    failed, left = [], []
    with tempfile.TemporaryDirectory(prefix="vizsla-docs-") as temporary:
        folder = Path(temporary) / "vizsla"
        folder.mkdir()
        lay_out(folder)
        for block in blocks(file):
            if block.note != "file" and block.language not in ("console", "python"):
                continue
            if not install and block.note != "not run":
                block, lines = without_installing(block)
                left += [(block.place, f"--no-install ({line.partition('  ')[0]})") for line in lines]
            started = time.perf_counter()
            try:
                reason = run(block, folder)
            except Failed as e:
                failed.append(block.place)
                print(f"{block.place}: FAILED\n{e}\n", flush=True)
                continue
            if reason:
                left.append((block.place, reason))
            else:
                print(f"{block.place}: fine ({time.perf_counter() - started:.0f} s)", flush=True)
    return failed, left


def main() -> None:
    parser = argparse.ArgumentParser(description="Run what the README and the docs show.")
    parser.add_argument("files", nargs="*", type=Path, help="all unless named")
    parser.add_argument("--no-install", action="store_true", help="leave out lines that begin with pip or make")
    options = parser.parse_args()
    files = [f.resolve() for f in options.files] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
