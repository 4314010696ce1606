"""Stored kernels: called without numba, never taken for others, compiled again when they are damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vizsla.kernels import native, njit_no_alloc, numba_cache, store
from vizsla.kernels.kernel import Kernel
from vizsla.kernels.signatures import DTYPES, Signature, signature_of
from waiting import LIMIT

KERNEL = """
import sys
import numpy as np
from vizsla.kernels import njit_no_alloc

@njit_no_alloc
def total(xs):
    s = 0.0
    for x in xs:
        s += x
    return s

print(total(np.arange(5.0)), "numba" in sys.modules)
"""


class Pair(NamedTuple):
    """Two arrays and a number."""

    left: np.ndarray
    right: np.ndarray
    factor: float


class Other(NamedTuple):
    """The same fields, another class."""

    right: np.ndarray
    left: np.ndarray
    factor: float


@njit_no_alloc
def _weighted(pair, rows, i, negate, out):
    if i < 0:
        raise IndexError("no such row")
    value = (pair.left[i] - pair.right[i]) * pair.factor + rows[i, 1]
    out[i] = -value if negate else value
    return i + 1


@njit_no_alloc
def _sum_and_sign(xs, start):
    total = start
    for x in xs:
        total += x
    return total > 0


@njit_no_alloc
def _last(xs):
    return xs[-1]


@njit_no_alloc
def _fill(xs, value):
    for i in range(xs.size):
        xs[i] = value


def run(folder: Path, code: str = KERNEL, **environment: str) -> list[str]:
    (folder / "kernel.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "kernel.py"], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **environment},
    )  # fmt: skip
    return done.stdout.split()


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("total-*.o"))


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    (file,) = stored(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert run(tmp_path) == ["10.0", "True"]
    assert len(file.read_bytes()) == len(whole)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert store.write("some", b"some code")
    (file,) = tmp_path.rglob("some.o")
    whole = file.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
        file.write_bytes(damaged)
        assert store.read("some") is None


def test_a_stored_kernel_is_called_without_numba_and_another_source_is_another_kernel(tmp_path: Path) -> None:
    assert run(tmp_path) == ["10.0", "True"]
    assert run(tmp_path, KERNEL.replace("s += x", "s -= x")) == ["-10.0", "True"]
    assert run(tmp_path) == ["10.0", "False"]
    assert len(stored(tmp_path)) == 2


def test_where_a_kernel_is_has_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(kernel: Kernel = _last, kind: str = "int64[1]") -> tuple[str, str]:
        for cached in (store.machine, store.environment, store._compiler):
            cached.cache_clear()
        return store.machine(), store.name_of(kernel.py_func, (kind,))

    from llvmlite import binding

    before = place()
    assert before == place()
    seen = {before, place(kind="int64[1]r"), place(_fill)}
    for target, name, value in (
        (binding, "get_host_cpu_name", lambda: "another"),
        (binding, "get_host_cpu_features", lambda: binding.FeatureMap({"avx512f": False})),
        (binding, "get_process_triple", lambda: "another"),
        (sys, "version", "another"),
        (sys.modules["llvmlite"], "__version__", "another"),
        (store, "_digest", lambda file: f"another {file}"),
        (store, "_sources", lambda: "another"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            seen.add(place())
    assert len(seen) == 10
    assert place() == before


def test_a_kernel_that_came_translated_needs_no_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "TRANSLATED", tmp_path / "translated")
    monkeypatch.setattr(store, "keep_translated", True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "first"))
    xs = np.arange(5)
    assert Kernel(_last.py_func, _last.options)(xs) == 4
    monkeypatch.setattr(store, "keep_translated", False)
    translated: list[str] = []

    def translate(kernel: Kernel, signature: Signature, name: str) -> bytes | None:
        translated.append(name)
        return original(kernel, signature, name)

    original = numba_cache.translate
    monkeypatch.setattr(numba_cache, "translate", translate)
    (file,) = (tmp_path / "translated").rglob("*.ll.xz")
    whole = file.read_bytes()
    for i, content in enumerate((whole, whole[:-1], whole[:5], whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])):
        file.write_bytes(content)
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / f"other{i}"))
        assert Kernel(_last.py_func, _last.options)(xs) == 4
        assert bool(translated) == (i > 0)


def test_two_processes_at_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "kernel.py"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate(timeout=LIMIT)[0].split() for process in both] == [["10.0", "True"]] * 2
    assert run(tmp_path) == ["10.0", "False"]
    assert [file.name[0] for file in stored(tmp_path)] == ["t"]  # and nothing half written


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Kernels are compiled in memory; those that are there are read."""
    (tmp_path / "cache").write_text("a file, not a folder")
    assert run(tmp_path) == ["10.0", "True"]


def test_a_folder_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that another user built: kernels are beside the package, new ones go to the user's cache."""
    beside, own = tmp_path / "package", tmp_path / "cache"
    monkeypatch.setattr(store, "_places", lambda: iter([beside, own]))
    assert store.write("old", b"old")
    mkstemp = tempfile.mkstemp

    def refuse(**options: Any) -> tuple[int, str]:
        if Path(options["dir"]).is_relative_to(beside):  # the tests may run as root, who may write anywhere
            raise PermissionError
        return mkstemp(**options)

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert store.write("new", b"new")
    assert [store.read(name) for name in ("old", "new")] == [b"old", b"new"]
    assert [len(list(place.rglob("*.o"))) for place in (beside, own)] == [1, 1]


def test_old_versions_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for name, age in (("vizsla-kernels-old", 10**8), ("vizsla-kernels-new", 60), ("of-others", 10**8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.o").write_bytes(b"")
        now = (tmp_path / name).stat().st_mtime
        os.utime(tmp_path / name, (now - age, now - age))
    assert store.write("some", b"code")
    assert store.read("some") == b"code"
    assert store.read("other") is None
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"vizsla-kernels-new", "of-others", f"vizsla-kernels-{store.machine()}"}


def test_an_entry_takes_what_it_is_for_and_nothing_else() -> None:
    assert native.SUPPORTED
    xs = np.arange(6.0)
    entry = _entry(_sum_and_sign, (xs, 1))
    assert entry(xs, 1) is True
    assert entry(-xs, 1) is False
    assert entry(xs, np.int64(-99)) is False
    for others in (
        (xs.astype(np.float32), 1), (xs[::2], 1), (xs.reshape(2, 3), 1), (xs.tolist(), 1), (xs, 1.0), (xs, True),
        (xs, np.int32(1)), (xs,), (xs, 1, 2), (None, None), (xs.astype(">f8"), 1),
    ):  # fmt: skip
        assert entry(*others) is NotImplemented
    with pytest.raises(OverflowError):
        entry(xs, 1 << 63)
    readonly = xs.copy()
    readonly.flags.writeable = False
    assert entry(readonly, 1) is NotImplemented
    assert _entry(_sum_and_sign, (readonly, 1))(xs, 1) is True  # who may not write may read what others may write


def test_an_entry_returns_numbers_and_nothing() -> None:
    for name in DTYPES:
        xs = np.array([1, 0, 1], name)
        result = _entry(_last, (xs,))(xs)
        assert (result, type(result)) == (xs[-1].item(), type(xs[-1].item()))
    for value, name in ((-1, "int8"), (255, "uint8"), (2**64 - 1, "uint64"), (-(2**63), "int64")):
        assert _entry(_last, (np.array([value], name),))(np.array([value], name)) == value
    xs = np.zeros(3)
    fill = _entry(_fill, (xs, 0.25))
    before = [sys.getrefcount(thing) for thing in (xs, None, 0.25)]
    for _ in range(1000):
        assert fill(xs, np.float64(0.25)) is None
    assert xs.tolist() == [0.25] * 3
    after = [sys.getrefcount(thing) for thing in (xs, None, 0.25)]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 100


def test_named_tuples_and_errors() -> None:
    pair = Pair(np.array([5.0, 7.0]), np.array([1.0, 2.0]), 0.5)
    rows, out = np.ones((2, 3)), np.zeros(2)
    entry = _entry(_weighted, (pair, rows, 1, True, out))
    assert (entry(pair, rows, 1, True, out), out.tolist()) == (2, [0.0, -3.5])
    assert (entry(pair, rows, 0, False, out), out.tolist()) == (1, [3.0, -3.5])
    assert entry(Other(*pair), rows, 0, False, out) is NotImplemented
    assert entry(tuple(pair), rows, 0, False, out) is NotImplemented
    assert entry(pair._replace(factor=None), rows, 0, False, out) is NotImplemented
    _weighted(Other(*pair), rows, 0, False, out)
    assert out[0] == -1.0  # the fields are found by their names
    with pytest.raises(IndexError, match="no such row"):
        _weighted(pair, rows, -1, False, out)


@settings(max_examples=60)
@given(st.sampled_from(["float64", "int64"]), st.lists(st.integers(0, 9), max_size=6), st.integers(-20, 20))
def test_an_entry_computes_what_python_does(dtype: str, numbers: list[int], start: int) -> None:
    xs = np.array(numbers, dtype)
    assert _sum_and_sign(xs, start) == _sum_and_sign.py_func(xs, start)


def _entry(kernel: Kernel, arguments: tuple[object, ...]):  # type: ignore[no-untyped-def]
    signature = signature_of(arguments)
    assert signature is not None
    entry = kernel._entry(signature)
    assert entry is not None
    return entry


@pytest.mark.slow
def test_a_process_that_called_stored_kernels_ends_well(tmp_path: Path) -> None:
    """With a network in the same process: what functions point to was once freed before them, one time in three."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "dogs.jsonl").write_text('{"id": "1", "text": "A dog that points."}\n')
    command = [sys.executable, "-m", "vizsla"]
    subprocess.run([*command, "index", "dogs.jsonl", "-o", "my.index"], cwd=tmp_path, check=True, capture_output=True)
    for _ in range(8):
        search = [*command, "search", "my.index", "pointing dogs", "--expand", "general"]
        subprocess.run(search, cwd=tmp_path, check=True, capture_output=True)
