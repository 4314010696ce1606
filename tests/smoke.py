"""A wheel where there is neither numba nor a compiler: every command once, from a folder outside of the checkout.

    python tests/smoke.py dist

The wheel of this system is installed into an empty environment, with what it asks for and nothing else. The extras that
other commands need are not installed: of those only the help is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCUMENTS = (
    '{"id": "1", "text": "The vizsla is a dog that points and retrieves.", "year": 1999}\n'
    '{"id": "2", "text": "Cats purr."}\n'
)
GERMAN = "Der Hund ist nicht im Garten, sondern auf der Straße vor den alten Häusern.\n"
COMMANDS = """
--version
--help
index pets.jsonl -o pets.index
search pets.index "pointing dogs"
search pets.index "pointing dogs" --json
search pets.index '"points and retrieves" year:>1990'
search pets.index "pintr~1 purr*"
search pets.index "poniting dgos" --typos on
search pets.index "hounds" --expand synonyms.txt
index folder -o folder.index --skip-bad
index folder/german.txt -o german.index --language de
search german.index "Haus"
queries draw pets.jsonl -o drawn
models --kind source
reproduce --list
explain pets.index "pointing dogs" 1
add pets.index more.jsonl
delete pets.index 2
info pets.index
verify pets.index
backup pets.index pets.backups
restore pets.backups -o restored.index
compact pets.index
search pets.index "birds"
analyze "Dogs barking"
models
models show bm25
datasets
recipes
search pets.index --queries queries.jsonl -o one.run
search pets.index --queries queries.jsonl -o two.run
run fuse one.run two.run -o fused.run
run overlap one.run two.run
"""


def main(folder: Path) -> None:
    wheels = [w for w in folder.glob("vizsla-*.whl") if _fits(w)]
    if len(wheels) != 1:
        sys.exit(f"{folder} has {len(wheels)} wheels for this system")
    with tempfile.TemporaryDirectory(prefix="vizsla-smoke-") as name:
        place = Path(name)
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
        started = time.perf_counter()
        pip = place / "venv" / "bin" / "pip"
        subprocess.run([pip, "install", "-q", "--disable-pip-version-check", wheels[0].resolve()], check=True)
        seconds = time.perf_counter() - started
        size = sum(f.stat().st_size for f in (place / "venv").rglob("*") if f.is_file() and not f.is_symlink())
        print(f"{wheels[0].name}: installed in {seconds:.1f} s, {size / 1e6:.0f} MB with pip", flush=True)
        (place / "pets.jsonl").write_text(DOCUMENTS)
        (place / "synonyms.txt").write_text("dog, hound\n")
        (place / "folder").mkdir()
        (place / "folder" / "german.txt").write_text(GERMAN, encoding="utf-8")
        (place / "folder" / "cats.html").write_text("<title>Cats</title><main><p>A cat purrs.</p></main>")
        (place / "folder" / "mail.eml").write_text("Subject: Dogs\n\nDogs wait.\n")
        (place / "folder" / "bad.jsonl").write_text("{\n")
        (place / "more.jsonl").write_text('{"id": "3", "text": "Birds sing."}\n')
        (place / "queries.jsonl").write_text('{"id": "q1", "text": "pointing dogs"}\n')
        lines = [*COMMANDS.strip().splitlines(), *(f"{verb} --help" for verb in _verbs(place))]
        failed = sum(not _runs(place, line) for line in lines)
        print(f"{len(lines) - failed} of {len(lines)} commands work")
        started = time.perf_counter()
        failed += not _runs(place, "demo -o demo.index")
        print(f"vizsla demo: {time.perf_counter() - started:.1f} s")
        sys.exit(f"{failed} commands failed" if failed else 0)


def _verbs(place: Path) -> list[str]:
    """All commands that the help lists."""
    shown = subprocess.run([place / "venv" / "bin" / "vizsla", "--help"], capture_output=True, text=True, check=True)
    return re.findall(r"^  ([a-z][a-z-]+)  ", shown.stdout.partition("First steps:")[2], re.MULTILINE)


def _fits(wheel: Path) -> bool:
    import platform

    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"manylinux_2_28_{machine}" in wheel.name


def _runs(place: Path, line: str) -> bool:
    """Run a command where neither numba nor a compiler can be found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIZSLA", "PIP"))}
    environment["PATH"] = str(place / "venv" / "bin")
    done = subprocess.run(
        f"vizsla {line}", shell=True, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, executable="/bin/sh",
    )  # fmt: skip
    said = (done.stderr or done.stdout).strip().splitlines()
    if done.returncode:
        print(f"FAILED vizsla {line}: {said[-1] if said else done.returncode}")
    return done.returncode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
