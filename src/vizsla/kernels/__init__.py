"""How numba is used here: three decorators for functions over numbers, which are compiled when they are first called.

A compiled kernel is stored on disk. A later process calls the stored machine code and does not import numba, which
takes longer than most commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from vizsla.kernels.kernel import Kernel


def njit_no_alloc(function: Callable[..., Any]) -> Any:
    """Compile a function over numbers with numba: no Python objects, no GIL, cached on disk.

    It allocates no arrays: who calls it brings those it writes to, and memory to work in. Numba then counts no
    references to arrays, which would cost much in functions that are called often. It raises no errors, and returns a
    number, a truth value or nothing if Python calls it. A stored kernel is called without numba, see `native.py`.

    >>> import numpy as np
    >>> @njit_no_alloc
    ... def double(xs, out):
    ...     for i in range(xs.size):
    ...         out[i] = 2 * xs[i]
    ...     return xs.size
    >>> out = np.zeros(2)
    >>> double(np.array([1.0, 2.5]), out), out.tolist()
    (2, [2.0, 5.0])
    """
    return _compiled(function, {"_nrt": False})


def njit_inlined(function: Callable[..., Any]) -> Any:
    """`njit_no_alloc` for a function that is copied into every function that calls it.

    An array is passed as seven numbers. Where a function with many arrays is called for every block, the call takes
    longer than its work.
    """
    return _compiled(function, {"_nrt": False, "forceinline": True})


def njit_fastsum(function: Callable[..., Any]) -> Any:
    """`njit_no_alloc` with sums in any order, so that the processor adds several numbers at once."""
    return _compiled(function, {"_nrt": False, "fastmath": {"reassoc", "contract"}})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return function
    always = {"nopython": True, "nogil": True, "error_model": "numpy", "boundscheck": None}
    return Kernel(function, {**always, **options})
