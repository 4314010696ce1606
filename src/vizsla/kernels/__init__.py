"""Kernels: functions over arrays that are compiled when the package is built.

A kernel is written as a Python function with one of the decorators below. The types that Python calls it with are
listed beside it; a kernel without a list is called by other kernels alone. The build (folder `kernel_build`) compiles
all of them with numba and LLVM into one extension module, `_native`, with a version for each kind of processor. Here
the name of a function becomes the compiled one, so neither numba nor a compiler is needed when Vizsla runs.

`VIZSLA_KERNELS=jit` compiles kernels with numba when they are called, for development; `VIZSLA_KERNELS=x86-64-v2`
takes the version for older processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from vizsla.kernels import library

MODE = os.environ.get("VIZSLA_KERNELS", "")
"""How kernels are called: `jit`, or the kind of processor; empty takes the best."""


class Declared(NamedTuple):
    """A kernel that Python calls: its function, its types and the options of numba."""

    function: Callable[..., Any]
    signatures: tuple[str, ...]
    compiled: Any


declared: list[Declared] = []
"""All kernels that Python calls, where they are compiled by numba or built."""
translator: Callable[[Callable[..., Any], dict[str, Any]], Any] | None = None
"""What makes a kernel while they are built; the build sets it before it imports kernels."""


def njit(*signatures: Any) -> Any:
    """Compile a function over numbers and arrays; see `kernel_build/signatures.py` for the types.

    It allocates no arrays and so returns none: who calls it brings those it writes to. It returns one number, a truth
    value or nothing. It raises no errors; a number that it returns says what is wrong. Division by zero gives what IEEE
    754 says.

        @njit("const float64[:], float64[:]")
        def double(xs, out):
            for i in range(xs.size):
                out[i] = 2 * xs[i]
    """
    return _decorator(signatures, {})


def njit_inlined(*signatures: Any) -> Any:
    """`njit` for a function that is copied into every function that calls it.

    An array is passed as seven numbers. Where a function with many arrays is called for every block, the call takes
    longer than its work.
    """
    return _decorator(signatures, {"forceinline": True})


def njit_fastsum(*signatures: Any) -> Any:
    """`njit` with sums in any order, so that the processor adds several numbers at once."""
    return _decorator(signatures, {"fastmath": {"reassoc", "contract"}})


def intrinsic(define: Callable[[], Callable[..., Any]]) -> Any:
    """A function for kernels whose code is written for LLVM: what numba has no words for.

    `define` returns what `numba.extending.intrinsic` takes: a function of a typing context and the types of the
    arguments, which returns a signature and a generator of code. It is called when kernels are built.
    """
    if MODE != "jit" and translator is None:
        return define
    from numba.extending import intrinsic

    return intrinsic(define())


def data_of(context: Any, builder: Any, signature: Any, arguments: Any, i: int) -> Any:
    """The address of the first item of the array that is the i-th argument, in the code that an intrinsic generates."""
    from numba.np.arrayobj import make_array

    return make_array(signature.args[i])(context, builder, arguments[i]).data  # type: ignore[no-untyped-call]


def _decorator(signatures: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if len(signatures) == 1 and callable(signatures[0]):  # without brackets
        return _kernel(signatures[0], (), options)
    return lambda function: _kernel(function, signatures, options)


def _kernel(function: Callable[..., Any], signatures: tuple[str, ...], options: dict[str, Any]) -> Any:
    if MODE != "jit" and translator is None:
        return library.find(function, MODE) if signatures else function
    if translator is not None:
        kernel = translator(function, {**_OPTIONS, **options})
    else:
        import numba

        kernel = numba.njit(**_OPTIONS, **options)(function)  # type: ignore[call-overload]
    if signatures:
        declared.append(Declared(function, signatures, kernel))
    return kernel


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": None, "_nrt": False}
