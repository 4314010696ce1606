"""Kernels are compiled once: all of them, at the first command that needs one, with one message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DOCUMENTS, Cli
from vizsla import compiling
from vizsla.cli import warming
from vizsla.errors import CollectionError
from vizsla.index import Index
from vizsla.kernels.signatures import signature_of
from waiting import LIMIT, eventually

COMMANDS = r"""
import contextlib, pathlib, sys, tempfile
from vizsla.cli import main, warming
from vizsla.kernels.kernel import Kernel

def kernels():
    rooms = "vizsla.datasets", "vizsla.engine", "vizsla.text"
    modules = [m for name, m in sys.modules.items() if name.startswith(rooms)]
    return {(k.__name__, s) for m in modules for k in vars(m).values() if isinstance(k, Kernel) for s in k.compiled()}

for name, part in warming.PARTS.items():
    part(pathlib.Path(f"warming-{name}"))
before = kernels()
commands = '''index a.jsonl -o i
index many.jsonl -o j
search i dogs
search i dogs --json
explain i dogs d1
add i b.jsonl
delete i d2
search i --queries q.tsv --output run.trec
compact i
search i dogs --filter year=1999
eval pets
info i --terms dogs
analyze dogs'''
for command in commands.splitlines():
    sys.argv = ["vizsla", *command.split()]
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        main()
print(len(before), sorted(name for name, _ in kernels() - before))
"""


def test_what_is_compiled_at_once_is_what_commands_take(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    (tmp_path / "b.jsonl").write_text(json.dumps({"_id": "d5", "text": "A bird sings, not a dog."}))
    (tmp_path / "many.jsonl").write_text(json.dumps({"_id": "m", "text": " ".join(map(str, range(40_000)))}))
    (tmp_path / "q.tsv").write_text("1\tdog\n2\tpurring cats\n")
    done = subprocess.run([sys.executable, "-c", COMMANDS], cwd=tmp_path, capture_output=True, text=True, check=True)
    count, others = done.stdout.split(maxsplit=1)
    assert dataset.name == "pets"
    assert int(count) > 10
    assert others.strip() == "[]", done.stderr


def test_a_kernel_that_is_missing_has_all_compiled_once(tmp_path: Path) -> None:
    """A process that finds no kernel asks once, reads what was made for it, and tells the user in one line."""
    code = """
import sys
from vizsla import compiling
asked = []
compiling.hook = lambda: asked.append(len(asked))
from vizsla.text.porter import _consonant
import numpy as np
word = np.frombuffer(b"dogs", np.uint8).copy()
for _ in range(2):
    _consonant(word, 0)
print(asked)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )  # fmt: skip
        said.append((done.stdout.strip(), done.stderr.count("compiling kernels for this machine (once")))
    assert said == [("[0]", 1), ("[]", 0)]


def test_warming_up_is_done_by_one_process_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_marker", lambda: tmp_path / "warm")
    monkeypatch.setattr(compiling, "_announced", True)
    asked: list[int] = []
    monkeypatch.setattr(warming, "_compile_all", lambda **_: asked.append(1) or len(asked) > 1)
    assert [warming.warm_up() for _ in range(3)] == [False, True, False]  # a failure is tried again, success is not
    assert len(asked) == 2


def test_two_processes_warm_up_at_once_and_one_compiles(tmp_path: Path) -> None:
    """The verb, with parts that only say that they were done: whoever comes second waits and finds the work done."""
    code = """
import sys, time
from vizsla.cli import main, warming
warming._compile_all = lambda *, check: print("compiles", flush=True) or not time.sleep(1)
sys.argv = ["vizsla", "warm-up"]
main()
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    both = [subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    said = [process.communicate(timeout=LIMIT) for process in both]
    assert sorted(out for out, _ in said) == ["", "compiles\n"]
    assert [process.returncode for process in both] == [0, 0]
    assert all(f"common kernels in {tmp_path}" in err for _, err in said)
    assert all(err.endswith("Others are compiled at their first use.\n") for _, err in said)
    assert not any("nothing to do" in err or "start at once" in err for _, err in said)


def test_warm_up_says_why_it_cannot(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warming, "_marker", lambda: tmp_path / "warm")
    monkeypatch.setattr(warming, "PARTS", {"none": None})
    code, out, err = cli("warm-up")
    assert (code, out) == (2, "")
    assert "vizsla: the kernels could not be compiled: KeyError: 'none'" in err
    monkeypatch.setattr("vizsla.kernels.store.folder", lambda: None)
    code, _, err = cli("warm-up")
    assert code == 2
    assert "set NUMBA_CACHE_DIR to one" in err


def test_parts_are_shared_by_the_cores() -> None:
    shares = [warming._shares(cores) for cores in (1, 2, 64)]
    assert shares == [
        [["search", "text", "write", "update"]],
        [["search"], ["text", "write", "update"]],
        [["search"], ["text", "write", "update"]],
    ]


def test_what_is_compiled_for_a_search_is_what_a_search_takes(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "1", "text": "dogs bark"}])
        index.commit()
        with pytest.MonkeyPatch.context() as patch:
            engine = sys.modules["vizsla.engine.search"]
            patch.setattr(engine, "search_segment", lambda *arguments: seen.append(signature_of(arguments)))
            seen: list[object] = []
            with pytest.raises(CollectionError):  # the stand-in says that the segment is damaged
                index.search("dogs")
    assert seen == [warming.SEARCH]


def test_a_search_in_a_shell_imports_neither_numba_nor_networks(tmp_path: Path) -> None:
    """What it does not need took most of its time."""
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "d1", "text": "dogs bark"}])
        index.commit()
        index.search("dogs")  # its kernels are compiled now
    code = """
import sys
from vizsla.cli import main
sys.argv = ["vizsla", "search", "i", "dogs"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
heavy = ("numba", "scipy", "vizsla.networks", "vizsla.encoders.checkpoint", "vizsla.models.reranker")
print(sorted(set(heavy) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "d1" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def clean_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_running", None)
    monkeypatch.setattr(compiling, "hook", None)
    monkeypatch.setattr(compiling, "seconds", 0.0)


@pytest.mark.usefixtures("clean_compiling")
def test_a_command_waits_for_the_kernel_that_it_needs_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, at_work, looks = list[int](), [True], list[int]()

    def hook() -> Callable[[], bool]:
        begun.append(1)
        return lambda: at_work[0]

    def compiled_at_the_third_look() -> str | None:
        looks.append(1)
        return "code" if len(looks) == 3 else None

    monkeypatch.setattr(compiling, "hook", hook)
    compiling.start()
    assert compiling.find(lambda: "stored") == "stored"
    assert compiling.seconds == 0
    assert compiling.find(compiled_at_the_third_look) == "code"
    assert compiling.seconds > 0
    at_work[0] = False  # the processes fail, or compile something else
    assert compiling.find(lambda: None) is None
    assert len(begun) == 1


@pytest.mark.usefixtures("clean_compiling")
def test_without_a_hook_nobody_waits() -> None:
    assert compiling.find(lambda: None) is None
    assert compiling.seconds == 0


def test_kernels_are_compiled_beside_a_command_unless_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "_marker", lambda: tmp_path / "warm")
    monkeypatch.setattr(compiling, "_announced", True)
    go = threading.Event()
    monkeypatch.setattr(warming, "_compile_all", lambda **_: go.wait(LIMIT))
    running = warming.start()
    assert running is not None
    assert running()
    go.set()
    eventually(lambda: not running())
    assert (tmp_path / "warm").exists()
    assert warming.start() is None


def test_workers_end_with_who_wants_them(tmp_path: Path) -> None:
    code = (
        "from vizsla.cli import warming\nimport time\nwarming.PARTS['x'] = lambda _: time.sleep(600)\nwarming.work('x')"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=tmp_path)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(timeout=LIMIT) == 1


def test_starting_loads_no_linear_algebra_and_hides_none(tmp_path: Path) -> None:
    """Numba would import scipy's at its first kernel; who wants it has it, before and after, in a kernel, too."""
    code = """
import sys
from vizsla.cli import main
sys.argv = ["vizsla", "analyze", "dogs"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
assert "scipy.linalg" not in sys.modules
import numba, numpy as np
import numba.np.arraymath
import scipy.linalg.cython_blas
assert numba.np.arraymath._HAVE_BLAS
assert numba.np.linalg.ensure_blas.__module__ == numba.np.arraymath.ensure_blas.__module__ == "numba.np.linalg"
print(numba.njit(lambda a: np.dot(a, a))(np.ones(3)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["3.0"]), done.stderr
