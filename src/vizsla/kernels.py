"""How numba is used here: one decorator, kernels cached on disk, and a word when one is compiled.

Kernels are cached beside the package, else in the user's cache folder (numba looks for both); where neither
can be written they are compiled in memory, in every process anew, and the message says so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import event

_cached = True


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function over numbers with numba: no Python objects, no GIL, cached on disk.

    >>> @kernel
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    return _compiled(function, {})


def still(function: Callable[..., Any]) -> Any:
    """A kernel that makes no arrays, only works in those it is given.

    Numba need not count references to arrays then, which costs more than it seems in functions called often.
    """
    return _compiled(function, {"_nrt": False})


def reordered(function: Callable[..., Any]) -> Any:
    """A kernel whose sums may be added up in any order, so that several numbers are added at once."""
    return _compiled(function, {"fastmath": {"reassoc", "contract"}})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    global _cached
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder it may write its cache to
        _cached = False
        return numba.njit(**options)(function)
    with suppress(AttributeError):  # where numba keeps it is no promise of theirs
        compiled._cache._cache_file._source_stamp = _stamp()
    return compiled


@functools.cache
def _stamp() -> str:
    """What a cached kernel was compiled from: all files with kernels, since they call each other.

    Numba alone would look at the kernel's own file and go on using what has changed in others.
    """
    here = Path(__file__).parent
    files = [Path(__file__), *sorted((here / "engine").glob("*.py")), *sorted((here / "text").glob("*.py"))]
    stats = [file.stat() for file in files]
    return " ".join(f"{s.st_mtime_ns}:{s.st_size}" for s in stats)


class _CompilationNotice(event.Listener):
    """Says once per process that kernels are being compiled, so that a slow first run explains itself."""

    def __init__(self) -> None:
        self.silent = False

    def on_start(self, event: event.Event) -> None:
        if self.silent or not event.data["dispatcher"].py_func.__module__.startswith("vizsla."):
            return
        self.silent = True
        where = "once, later runs start at once" if _cached else "in memory: no cache folder can be written"
        print(f"vizsla: compiling kernels for this machine ({where}) ...", file=sys.stderr, flush=True)

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


event.register("numba:compile", _CompilationNotice())  # type: ignore[no-untyped-call]
