"""Kernels: functions over arrays that are compiled when the package is built.

A kernel is written as a Python function with one of the decorators below. The decorator lists
the types that Python calls it with; a kernel without such a list is only called by other kernels. The build (folder
`kernel_build`) compiles all kernels with numba and LLVM into one extension module, `_native`, with a version for each
processor level. The decorators then return the compiled function, so Vizsla runs without numba or a compiler.

`VIZSLA_KERNELS=jit` compiles kernels with numba when they are called, for development; `VIZSLA_KERNELS=x86-64-v2`
takes the version for older processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from vizsla.kernels import library

MODE = os.environ.get("VIZSLA_KERNELS", "")
"""How kernels are called: `jit`, or a processor level; empty selects the best level of this machine."""


class Declared(NamedTuple):
    """A kernel that Python calls: its function, its types and the options of numba."""

    function: Callable[..., Any]
    signatures: tuple[str, ...]
    compiled: Any


declared: list[Declared] = []
"""All kernels that Python calls; filled only when numba compiles them, at run time (`jit`) or in a build."""
translator: Callable[[Callable[..., Any], dict[str, Any]], Any] | None = None
"""The kernel factory of the build; the build sets it before it imports any kernels."""


def njit(*signatures: Any) -> Any:
    """Compile a function over numbers and arrays; see `kernel_build/signatures.py` for the types.

    A kernel allocates and returns no arrays: the caller provides the arrays that it writes to. It returns a number, a
    bool or nothing. It raises no exceptions; errors are reported by the number it returns. Division by zero follows
    IEEE 754.

        @njit("const float64[:], float64[:]")
        def double(xs, out):
            for i in range(xs.size):
                out[i] = 2 * xs[i]
    """
    return _decorator(signatures, {})


def njit_inlined(*signatures: Any) -> Any:
    """`njit` for a function that is inlined into its callers.

    Passing an array to a function means passing seven numbers. For a function that takes many arrays and is called for
    every block, the call would take longer than the work.
    """
    return _decorator(signatures, {"forceinline": True})


def njit_fastsum(*signatures: Any) -> Any:
    """`njit` that may reorder floating-point sums, so that they can be vectorised."""
    return _decorator(signatures, {"fastmath": {"reassoc", "contract"}})


def intrinsic(define: Callable[[], Callable[..., Any]], in_python: Callable[..., Any] | None = None) -> Any:
    """An intrinsic: a function for kernels that generates LLVM IR itself, for what numba cannot express.

    `define` returns what `numba.extending.intrinsic` takes: a function of a typing context and the types of the
    arguments, which returns a signature and a generator of code. It is called when kernels are built. `in_python`: the
    same for kernels that are called as Python functions, as tests do.
    """
    if MODE != "jit" and translator is None:
        return in_python or define
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
