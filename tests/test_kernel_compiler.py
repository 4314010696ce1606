"""Kernels that call each other: compiled once for Python, with what they call in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

from vizsla.kernels import njit_no_alloc
from vizsla.kernels.compiler import Dispatcher
from vizsla.kernels.kernel import Kernel


@njit_no_alloc
def _clipped(x, low):
    if x < -100:
        raise ValueError("too small")
    return max(x, low)


@njit_no_alloc
def _clipped_sum(xs):
    total = xs[0] - xs[0]
    for x in xs:
        total += _clipped(x, 0)
    return total


def _may_allocate(function):
    return Kernel(function, {"nopython": True, "nogil": True})


@_may_allocate
def _both(xs):
    rest = np.zeros(3, xs.dtype)
    rest[1] = _clipped_sum(xs)
    return rest.sum() + _clipped(xs[0], -1)


class _Compiled(event.Listener):
    """The names of what numba compiles."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: event.Event) -> None:
        self.names.append(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: event.Event) -> None:
        """Nothing to do."""


def test_kernels_in_kernels_compute_what_python_does() -> None:
    for dtype in (np.int64, np.float64):
        xs = np.array([-3, 5, 7], dtype)
        assert _both(xs) == _both.py_func(xs) == 11
        assert _clipped_sum(xs) == _clipped_sum.py_func(xs) == 12  # called by Python, too, after it was a callee
        assert _clipped(xs[0], 0) == 0


def test_an_error_in_a_callee_reaches_python() -> None:
    with pytest.raises(ValueError, match="too small"):
        _both(np.array([-3.0, -101.0]))


def test_a_constant_argument_makes_no_second_version() -> None:
    def compiled(function):
        return Dispatcher(function, targetoptions={"nopython": True})  # and not from the cache

    @compiled
    def plus(x, y):
        return x + y

    @compiled
    def sums(x):
        return plus(x, 1) + plus(2, x) + plus(3, 4)

    seen = _Compiled()
    with event.install_listener("numba:compile", seen):
        assert sums(5) == 20
    assert seen.names == ["sums", "plus"]
    with event.install_listener("numba:compile", seen):
        assert plus(1, 2) == 3  # only now is there machine code of it
    assert seen.names == ["sums", "plus", "plus"]


def test_only_what_python_calls_is_cached_and_the_cache_has_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(Path(__file__).read_text())
    code = """
import numpy as np, pathlib, sys
from module import _both
print(_both(np.array([-3, 5, 7])))
try:
    _both(np.array([-101, 2]))
except ValueError as e:
    print(e)
names = sorted({f.name.split("-")[0] for f in pathlib.Path("cache").rglob("*.nbi")})
print(names, sum(_both.dispatcher.stats.cache_hits.values()))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for hits in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == ["11", "too small", f"['module._both'] {hits}"]


def test_numba_can_be_switched_off() -> None:
    code = "from vizsla.kernels import njit_no_alloc; print(njit_no_alloc(len) is len)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
