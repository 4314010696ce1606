"""Kernels are built with the package: what calls them, what refuses to, and what they are built from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest

from kernel_build import building, signatures
from kernel_build.targets import TARGETS
from vizsla import Index
from vizsla.engine.blocks import Blocks
from vizsla.engine.deletions import _count_in_rows
from vizsla.engine.projection import _project
from vizsla.engine.vector_rows import widen
from vizsla.kernels import library
from vizsla.kernels.sources import Sources
from waiting import LIMIT

ROOT = Path(__file__).parents[1]


def python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in another process."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=LIMIT,
    )  # fmt: skip


def halves(*numbers: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arguments of `widen`."""
    narrow, bits = np.array(numbers, np.float16).view(np.uint16), np.zeros(len(numbers), np.uint32)
    return narrow, bits, bits.view(np.float32)


def test_a_kernel_takes_arrays_and_gives_back_nothing_else() -> None:
    narrow, bits, wide = halves(1.5, -2.0)
    before = [sys.getrefcount(array) for array in (narrow, bits, wide)]
    for _ in range(100):
        assert widen(narrow, bits, wide) is None
    assert wide.tolist() == [1.5, -2.0]
    assert [sys.getrefcount(array) for array in (narrow, bits, wide)] == before
    narrow.flags.writeable = False  # it is only read
    widen(narrow, bits, wide)
    assert widen.__name__ == "widen"
    assert widen.__doc__ == "const uint16[:], uint32[:], float32[:]"


def test_empty_arrays_are_arrays() -> None:
    widen(*halves())
    out = np.zeros((0, 3), np.float32)
    _project(np.zeros(1, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.float32), out)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[:2],
        lambda a: (*a, 1),
        lambda a: (a[0].astype(np.uint32), *a[1:]),
        lambda a: (a[0].astype(">u2"), *a[1:]),
        lambda a: (a[0].reshape(1, -1), *a[1:]),
        lambda a: (np.repeat(a[0], 2)[::2], *a[1:]),
        lambda a: (np.frombuffer(b"\0" * 5, np.uint8)[1:].view(np.uint16), *a[1:]),
        lambda a: (a[0].tolist(), *a[1:]),
        lambda a: (None, *a[1:]),
        lambda a: (7, *a[1:]),
        lambda a: (a[0], np.frombuffer(bytes(8), np.uint32), a[2]),  # it is written, and must not be
        lambda a: (a[0].astype(object), *a[1:]),
        lambda a: (a[0].astype(np.complex128), *a[1:]),
    ],
)
def test_other_types_are_refused_in_one_sentence(change) -> None:
    arguments = halves(1.0, 2.0)
    with pytest.raises(
        TypeError, match=r"^the kernel vizsla\.engine\.vector_rows\.widen takes \(const uint16\[:\], "
    ) as e:
        widen(*change(arguments))
    assert "\n" not in str(e.value)
    assert arguments[1].tolist() == [0, 0]


def test_numbers_of_numpy_are_numbers_and_large_ones_are_refused() -> None:
    from vizsla.text.lexicon import _fill_new_slots

    texts = np.array([3, 5], np.uint32)
    for count in (2, np.int64(2), np.uint8(2), np.array(2)):
        _fill_new_slots(texts, count, np.zeros(8, np.int32))
    slots = np.zeros(8, np.int32)
    with pytest.raises(OverflowError):
        _fill_new_slots(texts, 1 << 63, slots)
    for wrong in (True, 2.0, np.float64(2), "2", np.uint64(1 << 63)):
        with pytest.raises(TypeError, match=r"the kernel vizsla\.text\.lexicon\._fill_new_slots takes"):
            _fill_new_slots(texts, wrong, slots)


def test_named_tuples_are_taken_by_their_fields() -> None:
    blocks = Blocks(np.zeros(1, np.uint16), np.zeros(2, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint8), 0)
    where, rows, counts = np.zeros((1, 2), np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    assert _count_in_rows(blocks, where, rows, counts)
    assert _count_in_rows(tuple(blocks), where, rows, counts)
    for wrong in (blocks[:4], list(blocks), (*blocks, 1), None, blocks._replace(kind=0.5)):
        with pytest.raises(TypeError, match="takes \\(Blocks\\("):
            _count_in_rows(wrong, where, rows, counts)


def test_what_is_built_is_what_is_declared(tmp_path: Path) -> None:
    code = """
import importlib, json, pathlib
import vizsla
from vizsla import kernels
from vizsla.kernels.sources import Sources
for module in Sources(pathlib.Path(vizsla.__file__).parent).with_kernels():
    importlib.import_module(module.name)
print(json.dumps({f"{k.function.__module__}.{k.function.__name__}": k.signatures for k in kernels.declared}))
"""
    done = python(code, tmp_path, VIZSLA_KERNELS="jit")
    assert done.returncode == 0, done.stderr
    assert library.native().signatures() == json.loads(done.stdout)
    for declared in library.native().signatures().values():
        assert len({signatures.shape_of(signatures.parse(each)) for each in declared}) == 1


LIFE = """
import hashlib, numpy as np, sys, vizsla
from vizsla.engine import VectorIndex
rng = np.random.default_rng(5)
words = ["w%d" % i for i in range(300)]
texts = [" ".join(rng.choice(words, rng.integers(3, 60), p=np.arange(300, 0, -1) / 45150)) for _ in range(3000)]
seen = hashlib.sha256()
def note(index, **options):
    for query in ("w1 w2 w3", "w250 w9", '"w1 w2"', "w5~1 w7", "+w3 -w4 w9", "w2*"):
        for k in (1, 10, 1000):
            hits = index.search(query, k, **options)
            seen.update(repr((hits.ids, hits.scores)).encode())
with vizsla.Index.create("life", positions=True) as index:
    index.add([{"id": str(i), "text": text, "n": i % 7} for i, text in enumerate(texts)])
    index.commit(); note(index, syntax="lucene")
    index.delete([str(i) for i in range(0, 3000, 5)]); index.commit(); note(index, syntax="lucene")
    index.add([{"id": "x%d" % i, "text": text} for i, text in enumerate(texts[:500])])
    index.commit(); note(index, syntax="lucene")
    seen.update(repr(index.search("w1 w2", 50, "n > 3").ids).encode())
    index.compact(); note(index, syntax="lucene")
with vizsla.Index.create("weights", "vectors") as index:
    for scale in (1, 300, 70_000, 0.37):
        for i in range(400):
            terms, values = rng.choice(words, 20, replace=False).tolist(), (scale * rng.integers(1, 9, 20)).tolist()
            index.add([{"id": f"{scale}-{i}", "vector": dict(zip(terms, values))}])
        index.commit(); note(index)
    index.compact(); note(index)
print(seen.hexdigest())
"""
"""Lives of two collections, and a digest of all that is found in them."""


def test_every_level_gives_the_same_bits(tmp_path: Path) -> None:
    levels = library.native().levels()
    digests = set()
    for level in levels:
        folder = tmp_path / level
        folder.mkdir()
        done = python(LIFE, folder, VIZSLA_KERNELS=level)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.slow
def test_numba_gives_the_same_bits(tmp_path: Path) -> None:
    digests = set()
    for mode in ("", "jit"):
        folder = tmp_path / f"mode-{mode}"
        folder.mkdir()
        done = python(LIFE, folder, VIZSLA_KERNELS=mode)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def test_inner_kernels() -> None:
    """Functions that only kernels call are tested in a process where numba compiles them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/jit"], cwd=ROOT, capture_output=True,
        text=True, env={**os.environ, "VIZSLA_KERNELS": "jit"}, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_search_in_a_shell_imports_neither_numba_nor_networks(tmp_path: Path) -> None:
    """What it does not need took most of its time."""
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "d1", "text": "dogs bark"}])
        index.commit()
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from vizsla.cli import main
sys.argv = ["vizsla", "search", "i", "dogs"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
heavy = ("scipy", "vizsla.neural.network", "vizsla.neural.checkpoints.checkpoint", "vizsla.models.reranker")
print(sorted(set(heavy) & set(sys.modules)))
"""
    done = python(code, tmp_path)
    assert "d1" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_child_that_was_forked_beside_a_search_searches(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(i), "text": "dogs bark"} for i in range(3000)])
        index.commit()
    code = """
import os, threading, vizsla
index = vizsla.Index.open("i")
go = threading.Event()
def search():
    while not go.is_set():
        index.search("dogs bark", 1000)
thread = threading.Thread(target=search)
thread.start()
codes = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        with vizsla.Index.open("i") as own:
            os._exit(0 if len(own.search("dogs", 10)) == 10 else 1)
    codes.append(os.waitpid(child, 0)[1])
go.set()
thread.join()
print(codes)
"""
    done = python(code, tmp_path)
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]", done.stderr


def test_threads_call_kernels_together() -> None:
    results: list[list[float]] = []

    def work() -> None:
        for _ in range(200):
            narrow, bits, wide = halves(*range(50))
            widen(narrow, bits, wide)
            results.append(wide.tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[float(i) for i in range(50)]] * 1600


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"VIZSLA_KERNELS": "x86-64-v9"}, "VIZSLA_KERNELS is 'x86-64-v9'; it may be jit or "),
        ({"VIZSLA_KERNELS": "build"}, "VIZSLA_KERNELS is 'build'; it may be jit or "),
    ],
)
def test_wrong_settings_are_one_sentence(environment: dict[str, str], sentence: str, tmp_path: Path) -> None:
    code = "import sys; from vizsla.cli import main; sys.argv = ['vizsla', 'demo', '-o', 'x']; main()"
    done = python(code, tmp_path, **environment)
    assert done.returncode == 2
    assert done.stderr.startswith(f"vizsla: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what kernels are built from."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "kernel_build", copy / "kernel_build", ignore=shutil.ignore_patterns("__pycache__"))
    ignored = shutil.ignore_patterns("__pycache__", "data", "_native*")
    shutil.copytree(ROOT / "src" / "vizsla", copy / "src" / "vizsla", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def test_a_library_is_stale_when_a_kernel_changes_and_not_before(checkout: Path) -> None:
    built = library.summarize(checkout)[0]
    assert built == library.native().digest

    def edited(file: str, old: str, new: str) -> bool:
        place = checkout / file
        text = place.read_text()
        assert old in text
        place.write_text(text.replace(old, new, 1))
        changed = library.summarize(checkout)[0] != built
        place.write_text(text)
        return changed

    engine = "src/vizsla/engine"
    assert edited(f"{engine}/row_search.py", "_OPEN_TERMS = 1000", "_OPEN_TERMS = 9") is False  # Python alone reads it
    assert edited(f"{engine}/blocks.py", "RANGE_BITS = 14", "RANGE_BITS = 15")
    assert edited(f"{engine}/topk.py", "DIGIT = 256", "DIGIT = 128")
    assert edited(f"{engine}/stop_flag.py", "stop[0] -= 1", "stop[0] -= 2")
    assert edited(f"{engine}/intrinsics.py", "_AT_ONCE = 16", "_AT_ONCE = 32")
    assert edited(f"{engine}/vector_rows.py", '@njit("const uint16[:], uint32', '@njit("uint16[:], uint32')
    assert edited(f"{engine}/vector_rows.py", "shift sign and fraction", "shift signs and fractions") is False
    assert edited(f"{engine}/stop_flag.py", "def failure() -> Exception:", "def failure() -> BaseException:") is False
    assert edited("kernel_build/module.c", "MAX_VALUES = 40", "MAX_VALUES = 41")
    assert edited("pyproject.toml", "numba==", "numba==1")
    assert edited("pyproject.toml", "typer>=", "typer>") is False


def test_a_kernel_depends_on_what_it_names(tmp_path: Path) -> None:
    package = tmp_path / "vizsla"
    package.mkdir()
    (package / "numbers.py").write_text(
        '"""Numbers."""\nTWO = 2  # two\nTHREE = (\n    3\n)\n\n\ndef other():\n    return TWO\n'
    )
    (package / "twice.py").write_text(
        "from vizsla.kernels import njit\nfrom vizsla.numbers import THREE, TWO as FACTOR\n\n\n"
        '@njit(\n    "int64"\n)\ndef twice(x):\n    """THREE times."""\n    return FACTOR * _same(x)\n\n\n'
        "@njit\ndef _same(x):\n    return x\n"
    )
    sources = Sources(package)
    assert [module.name for module in sources.with_kernels()] == ["vizsla.twice"]
    found = sources.closure("vizsla.twice", "twice")
    assert set(found) == {("vizsla.twice", "twice"), ("vizsla.twice", "_same"), ("vizsla.numbers", "TWO")}
    assert found["vizsla.numbers", "TWO"] == "TWO = 2"
    assert sources.module("vizsla.numbers").statements["THREE"] == "THREE = (\n    3\n)"


def test_a_stale_or_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "is_stale", lambda _: True)
    with pytest.raises(library.KernelsError, match="older than their sources; run: make kernels"):
        library.native.__wrapped__()
    monkeypatch.setattr(library, "SUMMARY", tmp_path / "none.txt")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "vizsla.kernels._native", None)
    monkeypatch.delattr("vizsla.kernels._native")
    with pytest.raises(library.KernelsError, match="the compiled kernels cannot be loaded"):
        library.native.__wrapped__()
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 1)
    with pytest.raises(library.KernelsError, match="no kernels for free-threaded Python"):
        library.native.__wrapped__()
    assert library.is_stale("another")


def test_a_plan_is_what_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIZSLA_TARGET", raising=False)
    monkeypatch.setenv("VIZSLA_LEVELS", "all")
    own = building.Plan.chosen()
    assert own.levels == own.target.levels
    assert not own.portable
    for target in TARGETS:
        monkeypatch.setenv("VIZSLA_TARGET", target.tag)
        plan = building.Plan.chosen()
        assert (plan.target, plan.levels, plan.portable, plan.tag) == (target, target.levels, True, target.tag)
    for name in ("VIZSLA_TARGET", "VIZSLA_LEVELS"):
        monkeypatch.setenv(name, "nonsense")
        with pytest.raises(building.BuildError, match=f"{name} is 'nonsense'; it may be"):
            building.Plan.chosen()
        monkeypatch.delenv(name)


def test_no_compiler_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VIZSLA_TARGET", raising=False)
    monkeypatch.setattr(building, "CACHE", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(building, "find_spec", lambda _: None)
    with pytest.raises(
        building.BuildError, match="needs a C compiler: install gcc or clang, or run: pip install ziglang"
    ):
        building.Plan.chosen().build()


def test_the_shim_agrees_with_the_headers_of_python(tmp_path: Path) -> None:
    """It declares the stable ABI itself; where Python's headers are, they are compared."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("there is no C compiler, or no Python.h")
    (tmp_path / "kernels.h").write_text(
        '#define DIGEST ""\nstatic const Kernel kernels[1];\nstatic const char *const level_names[] = {"x86-64-v2"};\n'
    )
    command = [compiler, "-fsyntax-only", "-Wall", "-Werror", "-DPYTHON_HEADERS", "-I", headers, "-I", tmp_path]
    done = subprocess.run([*command, ROOT / "kernel_build" / "module.c"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
